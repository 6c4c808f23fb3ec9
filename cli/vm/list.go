package vm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) list() *cobra.Command {
	var tenant, state, search, sort string
	var labels verb.Pairs
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List VMs, oldest first",
		Example: "  mainstay vm list --state running\n  mainstay vm list --search debian --sort name\n  mainstay vm list --label role=web --all -o json",
	}, output.Columns[hypervisorapi.VM]{
		Heads: []string{
			"NAME", "STATE", "BACKEND", "VCPUS", "MEMORY", "DISK", "IPS", "IMAGE", "TENANT", "CREATED", "ID",
		},
		Row: func(v hypervisorapi.VM) []any {
			return []any{
				v.Name, v.State, v.Backend, v.Vcpus, fmt.Sprintf("%d MiB", v.MemoryMib), disk(v), v.Ips, v.Image,
				v.Tenant, v.CreatedAt, v.Id,
			}
		},
	}, func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
		params := &hypervisorapi.ListVMsParams{Limit: p.Limit, Cursor: p.Cursor,
			Tenant: verb.Given(c, "tenant", tenant), State: verb.Given(c, "state", hypervisorapi.State(state)), Q: verb.Given(c, "search", search),
			Sort: verb.Given(c, "sort", hypervisorapi.ListVMsParamsSort(sort))}
		if len(labels) > 0 {
			params.Label = new(labels.List())
		}
		return c.API.ListVMs(ctx, params)
	})
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "only this tenant's")
	f.StringVar(&state, "state", "", "only those in this state, for example running")
	f.StringVar(&search, "search", "", "only VMs with this text in the name, the ID, the image, the tenant, an address or a label")
	f.StringVar(&sort, "sort", "", "created_at, name or state; a dash before it means descending")
	f.Var(&labels, "label", "only those with this label; may be repeated")
	return cmd
}

func disk(v hypervisorapi.VM) string {
	if v.DiskGib == 0 {
		return ""
	}
	return fmt.Sprintf("%d GiB", v.DiskGib)
}

func (s commands) show() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show VM", Short: "Show one VM",
		Example: "  mainstay vm show web\n  mainstay vm show web -o yaml",
	}, daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		return c.API.GetVM(ctx, id)
	}))
}
