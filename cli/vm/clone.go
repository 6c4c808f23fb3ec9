package vm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) clone() *cobra.Command {
	var linked bool
	cmd := daemon.Operation(s.Session, verb.Verb{
		Use:     "clone VM NAME",
		Short:   "Make a VM with a copy of another's disk",
		Long:    "Make a VM with a copy of another's disk. With --linked the two share what neither changes; that takes a VM that is stopped.",
		Example: "  mainstay vm clone web web-2\n  mainstay vm clone web web-3 --linked",
	}, daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		return c.API.CloneVM(
			ctx, id, nil, hypervisorapi.CloneSpec{Name: c.Args[1], Linked: verb.Given(c, "linked", linked)},
		)
	}), func(c *daemon.Call, _ hypervisorapi.Operation) string {
		return fmt.Sprintf("%s is a copy of %s; it is stopped.", c.Args[1], c.Args[0])
	})
	cmd.Flags().BoolVar(&linked, "linked", false, "share what neither changes")
	return cmd
}

func (s commands) resize() *cobra.Command {
	size := input.GiB()
	return s.Command(verb.Verb{
		Use: "resize VM SIZE", Short: "Make a VM's system disk larger, also while it runs",
		Long:    "Make a VM's system disk larger, also while it runs. SIZE is in GiB, or has a unit: 40, 40G, 1T.",
		Example: "  mainstay vm resize web 40\n  mainstay vm resize web 1T",
	}, func(ctx context.Context, c *daemon.Call) error {
		if err := size.Set(c.Args[1]); err != nil {
			return exit.Usagef("SIZE %w", err)
		}
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.Slow.ResizeVM(ctx, id, hypervisorapi.Resize{DiskGib: size.Count}))
		if err != nil {
			return err
		}
		return c.Done(a, "The disk of %s has %d GiB.", c.Args[0], size.Count)
	})
}
