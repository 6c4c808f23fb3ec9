package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// drained is the result of a drain.
type drained struct {
	Node  string `json:"node"`
	Moved []stay `json:"moved"`
	Stay  []stay `json:"stay"`
}

// stay is a VM of a host that was drained.
type stay struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"` // why it stays
}

func (s commands) drain() *cobra.Command {
	var restart bool
	var grace time.Duration
	cmd := s.Command(verb.Verb{
		Use: "drain NODE", Short: "Move all VMs of a host to other hosts of the fleet",
		Long: `Cordon a host, and move its VMs to other hosts of the fleet, one after the other. VMs that run stay, unless --restart is
given: then each is shut down, moved, and started. The command can be repeated. The exit code is 1 if a VM stays.`,
		Example: "  mainstay fleet drain host-3\n  mainstay fleet drain host-3 --restart",
	}, func(ctx context.Context, c *daemon.Call) error {
		node := c.Args[0]
		if _, err := c.Send(c.API.CordonNode(ctx, node, hypervisorapi.Nothing{})); err != nil {
			return err
		}
		all, err := daemon.Decode[[]hypervisorapi.FleetVM](c.Send(c.API.ListNodeVMs(ctx, node)))
		if err != nil {
			return err
		}
		on, err := daemon.At(c, node)
		if err != nil {
			return err
		}
		spec := hypervisorapi.MigrateSpec{Restart: verb.Given(c, "restart", restart)}
		if c.Cmd.Flags().Changed("grace") {
			seconds := int(grace.Round(time.Second) / time.Second)
			spec.GraceSeconds = &seconds
		}
		out := drained{Node: node, Moved: []stay{}, Stay: []stay{}}
		for _, vm := range all {
			one := stay{ID: vm.Id, Name: vm.Name}
			err := daemon.Finish(ctx, on, func() (*http.Response, error) { return on.API.MigrateVM(ctx, vm.Id, nil, spec) })
			if ctx.Err() != nil {
				return err
			}
			if err == nil {
				out.Moved = append(out.Moved, one)
				c.Note("%s has moved.", output.Escape(vm.Name))
				continue
			}
			one.Reason = err.Error()
			out.Stay = append(out.Stay, one)
			c.Note("%s stays: %s", output.Escape(vm.Name), one.Reason)
		}
		body, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if err := c.Out.ObjectAs(body, func() error {
			return c.Say("%s is cordoned; %d VMs have moved, %d stay.", node, len(out.Moved), len(out.Stay))
		}); err != nil || len(out.Stay) == 0 {
			return err
		}
		return exit.Hinted(fmt.Errorf("%d VMs stay at %s", len(out.Stay), node),
			"--restart moves VMs that run; run the command again when nothing else keeps the others")
	})
	cmd.Flags().BoolVar(&restart, "restart", false, "shut down VMs that run, and start them at their new hosts")
	cmd.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long each guest may take to shut down")
	return cmd
}
