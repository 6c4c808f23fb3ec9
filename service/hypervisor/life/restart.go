package life

import (
	"context"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Restart stops a VM as Stop does, starts it again with a new process, and returns when its
// processors run. It completes whether or not the caller waits: what observes the end of the VM
// starts it, and a daemon that ends meanwhile leaves the rest to the next one (GoOnRestarting). A
// later Stop or Delete cancels it.
func (l *Life) Restart(ctx context.Context, id string, grace time.Duration, force bool) (record.VM, error) {
	if r, err := l.takeDown(ctx, id, vm.Restart, "vm.restart", grace, force); err != nil {
		return r, err
	}
	var out record.VM
	err := l.machines.With(
		context.WithoutCancel(ctx), id, machine.Any,
		func(ctx context.Context, m *machine.Machine, r record.VM) (err error) {
			out, err = l.startAgain(ctx, m, r)
			return err
		})
	return out, err
}

// startAgain starts a VM that has stopped for a restart. The caller holds the VM's work lock. If
// somebody else has started or stopped the VM meanwhile, it returns what became of that.
func (l *Life) startAgain(ctx context.Context, m *machine.Machine, r record.VM) (record.VM, error) {
	switch {
	case r.State == vm.Running || r.State == vm.Paused:
		return r, nil
	case r.Restarting && (r.State == vm.Stopped || r.State == vm.Failed):
		r, err := l.store.Move(ctx, r.ID, vm.Start, "", "it restarts", func(r *record.VM) { r.LastError = "" })
		if err != nil {
			return r, err
		}
		return l.BringUp(ctx, m, r)
	case r.State == vm.Failed:
		return r, fault.New(fault.Unavailable, "the VM did not start: %s", r.LastError).WithCode("start_failed")
	}
	return r, fault.New(fault.Conflict, "the VM was stopped while it restarted")
}

// GoOnRestarting starts a VM in the background if it has stopped for a restart. ctx may have
// anybody's rights.
func (l *Life) GoOnRestarting(ctx context.Context, id string) {
	ctx = caller.ByItself(context.WithoutCancel(ctx))
	l.machines.Go("VM restart", func() {
		err := l.machines.With(ctx, id, machine.Any, func(ctx context.Context, m *machine.Machine, r record.VM) error {
			if !r.Restarting || r.State.HasProcess() {
				return nil
			}
			_, err := l.startAgain(ctx, m, r)
			return err
		})
		if err != nil && !fault.Is(err, fault.NotFound) {
			l.log.Warn("a VM that restarts did not start", "vm", id, "error", err)
		}
	})
}

func resettable(_ context.Context, r *record.VM) error {
	_, err := vm.Next(r.State, vm.Reset)
	return err
}

// Reset restarts the guest of a running VM at once, as the reset button of a computer does: what the
// guest has not written yet is lost. The VM's process, its console and its screens stay. It fails
// with reset_unsupported if the VM's backend has no reset.
func (l *Life) Reset(ctx context.Context, id string) (record.VM, error) {
	var out record.VM
	err := l.machines.With(
		ctx, id, resettable, func(ctx context.Context, m *machine.Machine, r record.VM) error {
			instance, _ := m.Process()
			if instance == nil {
				return fault.New(fault.Conflict, "the VM is ending")
			}
			button, ok := instance.(backend.Resetter)
			if !ok {
				return fault.New(fault.Conflict, "VMs of the backend %s cannot be reset; restart the VM",
					r.Backend).WithCode("reset_unsupported")
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), machine.CallLimit)
			defer cancel()
			if err := button.Reset(ctx); err != nil {
				return fmt.Errorf("reset: %w", err)
			}
			var err error
			out, err = l.store.Change(ctx, id, record.EventState, "vm.reset", "the guest was reset", nil)
			return err
		})
	return out, err
}
