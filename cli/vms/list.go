package vms

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// page is the largest page of VMs that is asked for at once.
const page = 1000

var vmColumns = output.Columns[vmapi.VM]{
	Heads: []string{"NAME", "STATE", "CPUS", "MEMORY", "DISK", "IPS", "IMAGE", "TENANT", "NODE", "CREATED", "LAST ERROR"},
	Row: func(v vmapi.VM) []any {
		state, tenant, disk := string(v.State), "", ""
		if v.Unreachable {
			state += " (unreachable)"
		}
		if v.Tenant != nil {
			tenant = *v.Tenant
		}
		if v.Disk > 0 {
			disk = fmt.Sprintf("%d GiB", v.Disk)
		}
		return []any{
			v.Name, state, v.Cpus, fmt.Sprintf("%d MiB", v.Memory), disk, v.Ips, v.Image, tenant, v.Node, v.Created, v.LastError,
		}
	},
}

func (s commands) list() *cobra.Command {
	var state, tag, node, search, sort string
	var limit verb.Limit
	v := verb.Verb{
		Use: "list", Short: "List VMs by name",
		Example: "  mainstay vms list --state running\n  mainstay vms list --search debian --sort -created\n  mainstay vms list --tag prod --all -o json",
	}
	v.Check = limit.Filtered
	cmd := s.Command(v, func(ctx context.Context, c *call) error {
		params := vmapi.ListVMsParams{
			Tenant: s.of(), State: verb.Given(c, "state", vmapi.State(state)), Tag: verb.Given(c, "tag", tag),
			Node: verb.Given(c, "node", node), Q: verb.Given(c, "search", search),
			Sort: verb.Given(c, "sort", vmapi.ListVMsParamsSort(sort)),
		}
		l := output.NewList(c.Out, vmColumns)
		for got := 0; ; {
			size := limit.Next(got, page)
			params.Offset, params.Limit = &got, &size
			part, err := decode[struct {
				Items []json.RawMessage `json:"items"`
				Total int               `json:"total"`
			}](c.Send(c.API.ListVMs(ctx, &params)))
			if err != nil {
				return err
			}
			if err := l.Page(part.Items); err != nil {
				return err
			}
			got += len(part.Items)
			if got >= part.Total || len(part.Items) == 0 || limit.Next(got, page) == 0 {
				if err := l.Close(); err != nil {
					return err
				}
				if got < part.Total {
					c.More()
				}
				return nil
			}
		}
	})
	limit.AddFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only those in this state, for example running")
	f.StringVar(&tag, "tag", "", "only those with this tag")
	f.StringVar(&node, "node", "", "only those on this host")
	f.StringVar(&search, "search", "", "only VMs with this text in the name, the id, the image, a tag, an address or a label")
	f.StringVar(&sort, "sort", "", "name, created or state; a dash before it means descending")
	return cmd
}

func (s commands) show() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show VM", Short: "Show one VM", Example: "  mainstay vms show web\n  mainstay vms show web --tenant acme -o yaml",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetVM(ctx, c.Args[0], &vmapi.GetVMParams{Tenant: s.of()})
	})
}

func (s commands) metrics() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "metrics VM", Short: "Show what a VM uses", Example: "  mainstay vms metrics web",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetVMMetrics(ctx, c.Args[0], &vmapi.GetVMMetricsParams{Tenant: s.of()})
	})
}

func (s commands) events() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "events VM", Short: "List what happened to a VM, newest first", Example: "  mainstay vms events web --limit 20",
	}, output.Columns[vmapi.Event]{
		Heads: []string{"TIME", "KIND", "MESSAGE", "ACTOR"},
		Row:   func(e vmapi.Event) []any { return []any{e.At, e.Kind, e.Message, e.Actor} },
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListVMEvents(ctx, c.Args[0], &vmapi.ListVMEventsParams{Tenant: s.of(), Limit: p.Limit, Cursor: p.Cursor})
	})
}
