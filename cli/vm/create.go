package vm

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

func (s commands) create() *cobra.Command {
	var flags spec.Flags
	var w waiting
	cmd := s.Command(verb.Verb{
		Use: "create [NAME]", Short: "Make a VM; it is stopped unless --start is given",
		Long: `Create a VM. It stays stopped unless --start is given.

The daemon chooses what neither the flags nor --file give. NAME may be omitted if the file has it. With --start the
command returns as soon as the VM is created; --wait running waits until its processors run, and --wait agent until the
agent in the guest is connected, which 'mainstay vm exec' and 'mainstay vm cp' need.`,
		Example: "  mainstay vm create web --image debian-12 --vcpus 2 --memory 2G --disk 20G --start --wait agent\n" +
			"  mainstay vm create web --image debian-12 --ssh-key id_ed25519.pub --hostname web --label role=web\n" +
			"  mainstay vm create --file web.yaml\n" +
			"  mainstay vm create tiny --kernel /boot/vmlinuz --initrd /boot/initrd.img --kernel-args console=ttyS0",
	}, func(ctx context.Context, c *daemon.Call) error {
		name := ""
		if len(c.Args) > 0 {
			name = c.Args[0]
		}
		request, err := flags.Spec(c, name)
		if err != nil {
			return err
		}
		switch {
		case request.Name == "":
			return exit.Usagef("NAME is missing")
		case w.target != "" && (request.Start == nil || !*request.Start):
			return exit.Usagef("--wait needs --start: a VM that is not started stays stopped")
		}
		if err := w.check(); err != nil {
			return err
		}
		var a daemon.Answer
		if err := c.While(ctx, "Making "+request.Name, func() (err error) {
			a, err = c.Send(c.Slow.CreateVM(ctx, request))
			return err
		}); err != nil {
			return err
		}
		vm, err := daemon.Decode[hypervisorapi.VM](a, nil)
		if err != nil {
			return err
		}
		if w.target == "" {
			return c.Done(a, "Made the VM %s (%s); it is %s.", vm.Name, vm.Id, vm.State)
		}
		w.up = true
		if err := w.finish(ctx, c, vm.Id, vm.Name); err != nil {
			return fmt.Errorf("the VM was made, but: %w", err)
		}
		return nil
	})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return exit.Usagef("unexpected argument %q", args[1])
		}
		return nil
	}
	flags.Add(cmd)
	w.addTo(cmd)
	return cmd
}
