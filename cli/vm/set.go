package vm

import (
	"context"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

// setting holds the flags of `mainstay vm set`.
type setting struct {
	spec     spec.Changes
	name     string
	unlabel  []string
	labels   verb.Pairs
	autoboot bool

	receive, send int64
}

func (s commands) set() *cobra.Command {
	var f setting
	cmd := s.Command(verb.Verb{
		Use: "set VM", Short: "Change a VM: its name, labels, processors, memory or network",
		Long: `Change a VM. What is not given stays as it is. The name, the labels, --autostart and the limits of the network change
at once. If the VM runs, processors, memory and the network change with its next start.`,
		Example: "  mainstay vm set web --vcpus 4 --memory 8G && mainstay vm restart web\n" +
			"  mainstay vm set web --name web-1 --label role=web --remove-label old\n" +
			"  mainstay vm set web --receive-limit 100000000 --send-limit 20000000",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		patch, err := f.patch(ctx, c, id)
		if err != nil {
			return err
		}
		a, err := c.Send(c.API.PatchVM(ctx, id, patch))
		vm, err := daemon.Decode[hypervisorapi.VM](a, err)
		if err != nil {
			return err
		}
		if len(vm.Pending) > 0 {
			return c.Done(a, "Changed %s; restart it to apply: %s.", vm.Name, strings.Join(vm.Pending, ", "))
		}
		return c.Done(a, "Changed %s.", vm.Name)
	})
	fs := cmd.Flags()
	f.spec.Add(cmd)
	fs.StringVar(&f.name, "name", "", "new name")
	fs.Var(&f.labels, "label", "label to set; may be repeated")
	fs.StringArrayVar(&f.unlabel, "remove-label", nil, "key of a label to remove; may be repeated")
	fs.BoolVar(&f.autoboot, "autostart", false, "start the VM with the host")
	fs.Int64Var(&f.receive, "receive-limit", 0, "most bits a second that the guest receives; needs a bridge or tap; 0: no limit")
	fs.Int64Var(&f.send, "send-limit", 0, "most bits a second that the guest sends; needs a bridge or tap; 0: no limit")
	cmd.MarkFlagsRequiredTogether("receive-limit", "send-limit")
	return cmd
}

// patch returns the request. The API replaces labels as a whole, so those that stay are read first.
func (f *setting) patch(ctx context.Context, c *daemon.Call, id string) (hypervisorapi.VMPatch, error) {
	out := hypervisorapi.VMPatch{
		Name: verb.Given(c, "name", f.name), Autostart: verb.Given(c, "autostart", f.autoboot),
	}
	f.spec.Apply(c, &out)
	if receive := verb.Given(c, "receive-limit", f.receive); receive != nil {
		out.NetworkLimits = &hypervisorapi.NetworkLimits{ReceiveBitsPerSecond: receive, SendBitsPerSecond: &f.send}
	}
	if len(f.labels) > 0 || len(f.unlabel) > 0 {
		vm, err := daemon.Decode[hypervisorapi.VM](c.Send(c.API.GetVM(ctx, id)))
		if err != nil {
			return out, err
		}
		labels := hypervisorapi.Labels{}
		maps.Copy(labels, vm.Labels)
		for _, key := range f.unlabel {
			delete(labels, key)
		}
		maps.Copy(labels, f.labels)
		out.Labels = &labels
	}
	if out == (hypervisorapi.VMPatch{}) {
		return out, exit.Usagef("nothing to change: give --name, --label, --vcpus, --memory, --network, --publish or --autostart")
	}
	return out, nil
}
