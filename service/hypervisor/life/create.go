package life

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Create creates a VM. When it returns, the VM is stopped, or starting if the request asks for it.
func (l *Life) Create(ctx context.Context, req plan.Request) (record.VM, error) {
	sources, err := l.plan.Prepare(ctx, &req)
	if err != nil {
		return record.VM{}, err
	}
	defer sources.Release()
	r, err := l.plan.Admit(ctx, &req, sources, "vm.create")
	if err != nil {
		return r, err
	}
	// From here on, creation is finished or undone, whether or not the caller waits.
	ctx = context.WithoutCancel(ctx)
	err = l.machines.With(ctx, r.ID, In(vm.Creating), func(ctx context.Context, _ *machine.Machine, _ record.VM) error {
		if err := l.host.Make(ctx, &r, sources.Parts(req.Secret)); err != nil {
			return errors.Join(err, l.Undo(ctx, r, fault.From(err).Message))
		}
		if r, err = l.store.Move(ctx, r.ID, vm.Made, "", "", nil); err != nil || !req.Start {
			return err
		}
		r, err = l.store.Move(ctx, r.ID, vm.Start, "vm.start", "", nil)
		return err
	})
	if err == nil && req.Start {
		l.GoOnStarting(ctx, r.ID)
	}
	return r, err
}

// In returns a Check that the VM is still in the given state, else a conflict (wrong_state).
func In(state vm.State) machine.Check {
	return func(_ context.Context, r *record.VM) error {
		if r.State != state {
			return fault.New(fault.Conflict, "the VM is %s by now, and was %s", r.State, state).WithCode("wrong_state")
		}
		return nil
	}
}

// GoOnStarting starts the process of a VM that is stored as starting. It does not wait for it.
func (l *Life) GoOnStarting(ctx context.Context, id string) {
	l.machines.Go("VM start", func() { l.bringUpStored(ctx, id) })
}

func (l *Life) bringUpStored(ctx context.Context, id string) {
	err := l.machines.With(ctx, id, In(vm.Starting), func(ctx context.Context, m *machine.Machine, r record.VM) error {
		_, err := l.BringUp(ctx, m, r)
		return err
	})
	if err != nil {
		l.log.Warn("a VM did not start", "vm", id, "error", err)
	}
}

// Undo removes the remains of a VM that could not be created. If that fails, it is logged and
// retried on the next start.
func (l *Life) Undo(ctx context.Context, r record.VM, why string) error {
	if _, err := l.store.Move(ctx, r.ID, vm.Crashed, "", why, nil); err != nil {
		return err
	}
	if err := l.Erase(ctx, r); err != nil {
		l.log.Error("a VM that could not be made is not removed; that is tried again at the next start",
			"vm", r.ID, "error", err)
	}
	return nil
}
