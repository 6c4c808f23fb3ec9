package fleet

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

func (s commands) nodes() *cobra.Command {
	cmd := verb.Group(
		"node", "Hosts: list, show, cordon, delete", "  mainstay fleet node list\n  mainstay fleet node cordon host-3",
	)
	show := s.nodeShow()
	cmd.AddCommand(s.nodeList(), show, s.cordon(), s.uncordon(), s.nodeDelete())
	// Before there were verbs, "node NODE" showed a host.
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && len(verb.Suggestions(cmd, args[0])) == 0 {
			return show.RunE(cmd, args)
		}
		return verb.Subcommands(cmd, args)
	}
	return cmd
}

func (s commands) nodeList() *cobra.Command {
	return verb.List(
		s.Session,
		verb.Verb{
			Use:     "list",
			Short:   "List the hosts of the fleet, by name",
			Example: "  mainstay fleet node list\n  mainstay fleet node list -o json",
		},
		output.Columns[hypervisorapi.Node]{
			Heads: []string{
				"NAME", "STATE", "VMS", "FREE VCPUS", "FREE MEMORY", "BACKENDS", "LABELS", "VERSION", "HEARTBEAT",
				"URL",
			},
			Row: func(v hypervisorapi.Node) []any {
				return []any{
					v.Name, state(v), v.Vms, fmt.Sprintf("%d of %d", v.FreeVcpus, v.Vcpus),
					fmt.Sprintf("%d of %d MiB", v.FreeMemoryMib, v.MemoryMib), v.Backends,
					map[string]string(v.Labels), v.Version, v.HeartbeatAt, v.Url,
				}
			},
		},
		func(ctx context.Context, c *daemon.Call, _ verb.Page) (*http.Response, error) {
			return c.API.ListNodes(ctx)
		},
	)
}

func state(v hypervisorapi.Node) string {
	switch {
	case !v.Healthy && v.Cordoned:
		return "silent, cordoned"
	case !v.Healthy:
		return "silent"
	case v.Cordoned:
		return "cordoned"
	}
	return "healthy"
}

func (s commands) nodeShow() *cobra.Command {
	return s.Object(verb.Verb{Use: "show NODE", Short: "Show one host", Example: "  mainstay fleet node show host-3"},
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.GetNode(ctx, c.Args[0])
		})
}

func (s commands) cordon() *cobra.Command {
	return s.Change(
		verb.Verb{
			Use:     "cordon NODE",
			Short:   "Place nothing new on a host unless it is named",
			Example: "  mainstay fleet node cordon host-3",
		},
		"Nothing new is placed on %s.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.CordonNode(ctx, c.Args[0], hypervisorapi.Nothing{})
		},
	)
}

func (s commands) uncordon() *cobra.Command {
	return s.Change(
		verb.Verb{
			Use:     "uncordon NODE",
			Short:   "Place VMs on a host again",
			Example: "  mainstay fleet node uncordon host-3",
		},
		"VMs are placed on %s again.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.UncordonNode(ctx, c.Args[0], hypervisorapi.Nothing{})
		},
	)
}

func (s commands) nodeDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use:     "delete NODE",
		Aliases: []string{"deregister"},
		Short:   "Forget a host; its VMs keep running",
		Long: `Forget a host. Its VMs keep running. Its next heartbeat registers it again, so stop its daemon first, or start it
without --registry.`,
		Example: "  mainstay fleet node delete host-3 --yes",
	}, "Forget the host %s?", "Forgot the host %s.", func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		return c.API.DeregisterNode(ctx, c.Args[0])
	})
}

func (s commands) capacity() *cobra.Command {
	return s.Command(
		verb.Verb{
			Use:     "capacity",
			Short:   "Show what the fleet has, and what is left",
			Example: "  mainstay fleet capacity\n  mainstay fleet capacity -o json",
		},
		func(ctx context.Context, c *daemon.Call) error {
			a, err := c.Send(c.API.GetCapacity(ctx))
			v, err := daemon.Decode[hypervisorapi.Capacity](a, err)
			if err != nil {
				return err
			}
			const width = 30
			return c.Out.ObjectAs(a.Body, func() error {
				return c.Out.Rows([][]any{
					{"Hosts", "", fmt.Sprintf("%d, %d healthy", v.Nodes, v.HealthyNodes)},
					{"VMs", "", v.Vms},
					{
						"Processors",
						output.Bar(int64(v.Vcpus-v.FreeVcpus), int64(v.Vcpus), width),
						fmt.Sprintf("%d of %d left", v.FreeVcpus, v.Vcpus),
					},
					{
						"Memory",
						output.Bar(int64(v.MemoryMib-v.FreeMemoryMib), int64(v.MemoryMib), width),
						fmt.Sprintf("%d of %d MiB left", v.FreeMemoryMib, v.MemoryMib),
					},
				})
			})
		},
	)
}
