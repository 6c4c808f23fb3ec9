package vms

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) cd() *cobra.Command {
	cmd := verb.Group("cd", "The CD drive of a VM: insert, eject",
		"  mainstay vms cd insert web debian-12-iso\n  mainstay vms cd eject web")
	cmd.AddCommand(s.cdInsert(), s.cdEject())
	return cmd
}

func (s commands) cdInsert() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "insert VM IMAGE", Short: "Put an image into the CD drive, in place of what is there",
		Long: `Put an image into the CD drive, in place of what is there. A VM that boots its disk sees the CD at once, one that boots
a kernel from the catalog from its next start on. 'mainstay vms image iso' lists installation media.`,
		Example: "  mainstay vms cd insert web debian-12-iso",
	}, func(ctx context.Context, c *call) error {
		cd := vmapi.CDSpec{Image: c.Args[1]}
		a, err := c.Send(c.Slow.InsertCD(ctx, c.Args[0], &vmapi.InsertCDParams{Tenant: s.of()}, cd))
		vm, err := decode[vmapi.VM](a, err)
		if err != nil {
			return err
		}
		if slices.Contains(vm.Pending, "cd") {
			return c.Done(a, "The CD of %s will be %s with its next start.", c.Args[0], c.Args[1])
		}
		return c.Done(a, "The CD of %s is %s.", c.Args[0], c.Args[1])
	})
}

func (s commands) cdEject() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "eject VM", Short: "Take what is in the CD drive out", Example: "  mainstay vms cd eject web",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.Slow.EjectCD(ctx, c.Args[0], &vmapi.EjectCDParams{Tenant: s.of()}))
		if err != nil {
			return err
		}
		return c.Done(a, "The CD drive of %s is empty.", c.Args[0])
	})
}
