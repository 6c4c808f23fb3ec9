package hypervisor

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Create makes a VM: it is stopped when Create returns, or starting if that is asked.
func (s *Service) Create(ctx context.Context, req plan.Request) (record.VM, error) {
	sources, err := s.plan.Prepare(ctx, &req)
	if err != nil {
		return record.VM{}, err
	}
	defer sources.Release()
	r, err := s.plan.Admit(ctx, &req, sources, "vm.create")
	if err != nil {
		return r, err
	}
	// From here on it is finished, or undone, whether or not the caller waits.
	ctx = context.WithoutCancel(ctx)
	err = s.machines.With(ctx, r.ID, in(vm.Creating), func(ctx context.Context, _ *machine.Machine, _ record.VM) error {
		if err := s.host.Make(ctx, &r, sources.Parts(req.Secret)); err != nil {
			return errors.Join(err, s.undo(ctx, r, fault.From(err).Message))
		}
		if r, err = s.store.Move(ctx, r.ID, vm.Made, "", "", nil); err != nil || !req.Start {
			return err
		}
		r, err = s.store.Move(ctx, r.ID, vm.Start, "vm.start", "", nil)
		return err
	})
	if err == nil && req.Start {
		s.machines.Go("VM start", func() { s.goOnStarting(ctx, r.ID) })
	}
	return r, err
}

// in checks that a VM is still in the state in which it was left to the work.
func in(state vm.State) machine.Check {
	return func(_ context.Context, r *record.VM) error {
		if r.State != state {
			return fault.New(fault.Conflict, "the VM is %s by now, and was %s", r.State, state).WithCode("wrong_state")
		}
		return nil
	}
}

// goOnStarting starts the process of a VM whose start is stored.
func (s *Service) goOnStarting(ctx context.Context, id string) {
	err := s.machines.With(ctx, id, in(vm.Starting), func(ctx context.Context, m *machine.Machine, r record.VM) error {
		_, err := s.bringUp(ctx, m, r)
		return err
	})
	if err != nil {
		s.log.Warn("a VM did not start", "vm", id, "error", err)
	}
}

// undo removes what there is of a VM that could not be made.
func (s *Service) undo(ctx context.Context, r record.VM, why string) error {
	if _, err := s.store.Move(ctx, r.ID, vm.Crashed, "", why, nil); err != nil {
		return err
	}
	if err := s.erase(ctx, r); err != nil {
		s.log.Error("a VM that could not be made is not removed; that is tried again at the next start", "vm", r.ID, "error", err)
	}
	return nil
}

// erase removes all that a VM in state deleting has, and at last its row. It can be
// repeated.
func (s *Service) erase(ctx context.Context, r record.VM) error {
	if err := s.host.Clean(ctx, &r); err != nil {
		return err
	}
	if err := s.store.Forget(ctx, r.ID); err != nil {
		return err
	}
	s.machines.Forget(r.ID)
	s.nudgeFleet()
	if r.DiskBase == "" {
		return nil
	}
	return s.host.SweepBases(ctx)
}
