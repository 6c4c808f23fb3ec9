package vm

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) templates() *cobra.Command {
	cmd := verb.Group(
		"template", "Templates, from whose memory VMs start instead of booting: create, list, show, delete",
		"  mainstay vm template create demo --memory 512\n  mainstay vm template list",
		"templates",
	)
	cmd.AddCommand(s.templateCreate(), s.templateList(), s.templateShow(), s.templateDelete())
	return cmd
}

func (s commands) templateCreate() *cobra.Command {
	var name string
	var vcpus int
	var network bool
	memory := input.MiB()
	cmd := daemon.Operation(s.Session, verb.Verb{
		Use: "create IMAGE", Short: "Make a template of an image of the catalog",
		Long: `Make a template of an image of the catalog: boot a VM of it, save its memory when its agent is ready, and remove the
VM. VMs that are made of the image later, with as many processors and as much memory, start from the template instead of
booting. 'mainstay vm create --instant=false' boots a VM all the same.`,
		Example: "  mainstay vm template create demo\n  mainstay vm template create debian-12 --name web --vcpus 2 --memory 2G\n" +
			"  mainstay vm template create demo --memory 256 --network=false",
	}, func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		return c.API.CreateTemplate(ctx, nil, hypervisorapi.TemplateSpec{
			Image: c.Args[0], Name: verb.Given(c, "name", name), Vcpus: verb.Given(c, "vcpus", vcpus),
			MemoryMib: verb.Given(c, "memory", memory.Count), Network: verb.Given(c, "network", network),
		})
	}, func(c *daemon.Call, _ hypervisorapi.Operation) string {
		return "Made the template; VMs of the image " + c.Args[0] + " that fit start from it."
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the template (default: made of the image and the sizes)")
	f.IntVar(&vcpus, "vcpus", 1, "number of processors")
	f.Var(&memory, "memory", "memory, in MiB or with a unit: 512, 2G (default 512)")
	f.BoolVar(&network, "network", true, "for VMs with a network device; --network=false: for those with --network none")
	return cmd
}

func (s commands) templateList() *cobra.Command {
	return verb.List(
		s.Session,
		verb.Verb{Use: "list", Short: "List templates, by name", Example: "  mainstay vm template list"},
		output.Columns[hypervisorapi.Template]{
			Heads: []string{"NAME", "IMAGE", "VCPUS", "MEMORY", "NETWORK", "SIZE", "USABLE", "CREATED"},
			Row: func(v hypervisorapi.Template) []any {
				usable := "yes"
				if !v.Usable {
					usable = "no: " + v.Detail
				}
				return []any{
					v.Name, v.Image, v.Vcpus, verb.Bytes(int64(v.MemoryMib) << 20), v.Network, verb.Bytes(v.SizeBytes),
					usable, v.CreatedAt,
				}
			},
		},
		func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
			return c.API.ListTemplates(ctx, &hypervisorapi.ListTemplatesParams{Limit: p.Limit, Cursor: p.Cursor})
		},
	)
}

func (s commands) templateShow() *cobra.Command {
	return s.Object(
		verb.Verb{Use: "show TEMPLATE", Short: "Show one template", Example: "  mainstay vm template show demo-1x512"},
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.GetTemplate(ctx, c.Args[0])
		},
	)
}

func (s commands) templateDelete() *cobra.Command {
	return s.Remove(
		verb.Verb{
			Use:     "delete TEMPLATE",
			Short:   "Delete a template; VMs that started from it keep running",
			Example: "  mainstay vm template delete demo-1x512 --yes",
		},
		"Delete the template %s?",
		"Deleted the template %s.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.DeleteTemplate(ctx, c.Args[0])
		},
	)
}
