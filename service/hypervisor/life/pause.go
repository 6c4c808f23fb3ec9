package life

import (
	"context"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Pause pauses the processors of a running VM.
func (l *Life) Pause(ctx context.Context, id string) (record.VM, error) {
	return l.halt(ctx, id, vm.Pause, "vm.pause", backend.Instance.Pause)
}

// Resume resumes the processors of a paused VM.
func (l *Life) Resume(ctx context.Context, id string) (record.VM, error) {
	return l.halt(ctx, id, vm.Resume, "vm.resume", backend.Instance.Resume)
}

func (l *Life) halt(
	ctx context.Context, id string, kind vm.Move, action string, do func(backend.Instance, context.Context) error,
) (record.VM, error) {
	var out record.VM
	allowed := func(_ context.Context, r *record.VM) error {
		_, err := vm.Next(r.State, kind)
		return err
	}
	err := l.machines.With(ctx, id, allowed, func(ctx context.Context, m *machine.Machine, r record.VM) (err error) {
		instance, _ := m.Process()
		if instance == nil {
			return fault.New(fault.Conflict, "the VM is ending")
		}
		// The processors are paused before the move is stored. If the daemon is killed in between,
		// it asks the backend for the state when it starts again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), machine.CallLimit)
		defer cancel()
		if err := do(instance, ctx); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		out, err = l.store.Move(ctx, id, kind, action, "", nil)
		return err
	})
	return out, err
}

// Agree stores whether the processors of a running or paused VM are paused, as its backend reports,
// with why as the reason.
func (l *Life) Agree(ctx context.Context, r record.VM, why string) error {
	instance, _ := l.machines.Get(r.ID).Process()
	if instance == nil || r.State != vm.Running && r.State != vm.Paused {
		return nil // it has ended, or is about to
	}
	ctx, cancel := context.WithTimeout(ctx, machine.CallLimit)
	defer cancel()
	paused, err := instance.Paused(ctx)
	if err != nil {
		return err
	}
	if paused == (r.State == vm.Paused) {
		return nil
	}
	kind := map[bool]vm.Move{true: vm.Pause, false: vm.Resume}[paused]
	_, err = l.store.Move(ctx, r.ID, kind, "", why, nil)
	return err
}
