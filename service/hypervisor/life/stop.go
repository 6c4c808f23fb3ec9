package life

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Stop asks the guest to shut down, kills the VM after the grace period, and returns when it has
// stopped. A later call can shorten the grace period.
func (l *Life) Stop(ctx context.Context, id string, grace time.Duration, force bool) (record.VM, error) {
	if r, err := l.takeDown(ctx, id, vm.Stop, "vm.stop", grace, force); err != nil {
		return r, err
	}
	return l.store.VM(ctx, id)
}

// takeDown stores that a VM is to stop, and stops it.
func (l *Life) takeDown(
	ctx context.Context, id string, kind vm.Move, action string, grace time.Duration, force bool,
) (record.VM, error) {
	r, err := l.store.Move(ctx, id, kind, action, "", func(r *record.VM) {
		killAt := db.At(l.now().Add(grace))
		if force || r.KillAt.IsZero() || killAt.Before(r.KillAt.Time) {
			r.KillAt = killAt
		}
	})
	if err != nil {
		return r, err
	}
	return r, l.BringDown(context.WithoutCancel(ctx), l.machines.Get(id), r, force || grace == 0)
}

// BringDown ends the process of a VM in state stopping.
func (l *Life) BringDown(ctx context.Context, m *machine.Machine, r record.VM, force bool) error {
	instance, ended := m.Process()
	if instance == nil {
		// It is being started, did not start, or has ended on its own.
		err := l.machines.With(
			ctx,
			r.ID,
			machine.Any,
			func(ctx context.Context, m *machine.Machine, r record.VM) error {
				if instance, ended = m.Process(); instance != nil {
					return nil
				}
				_, err := l.store.Move(ctx, r.ID, vm.Ended, "", "", notRunning)
				return err
			},
		)
		if instance == nil {
			if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
				return nil // the end is stored already
			}
			return err
		}
	}
	if !force {
		l.askToPowerDown(ctx, m, instance)
		timer := time.NewTimer(r.KillAt.Sub(l.now()))
		defer timer.Stop()
		select {
		case <-ended:
			return nil
		case <-timer.C:
		case <-l.machines.Ending().Done():
			return fault.New(fault.Unavailable,
				"the daemon is ending; the VM will be stopped when it is there again").WithRetryAfter(time.Second)
		}
	}
	return l.Kill(ctx, instance, ended)
}

// killLimit is how long the kernel may take to end a killed process. A process that waits for an
// unresponsive disk lives until the disk responds.
const killLimit = 30 * time.Second

// notRunning clears a row's fields about the process.
func notRunning(r *record.VM) { r.StartedAt, r.KillAt = db.Time{}, db.Time{} }

// Kill kills a process and returns when its end is stored. It fails with vm_silent if the process
// still exists after killLimit.
func (l *Life) Kill(ctx context.Context, instance backend.Instance, ended <-chan struct{}) error {
	if err := instance.Kill(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(killLimit)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fault.New(fault.Unavailable, "the VM's process (%d) was killed and does not end: "+
			"it waits for a disk of the host that does not answer", instance.PID()).WithCode("vm_silent")
	case <-l.machines.Ending().Done():
		return machine.ErrEnding
	}
}

// askLimit is the timeout for asking a guest to shut down.
const askLimit = 5 * time.Second

// askToPowerDown presses the guest's power button and asks its agent, if connected, to power off.
// It resumes a paused VM first, since that cannot react to either.
func (l *Life) askToPowerDown(ctx context.Context, m *machine.Machine, instance backend.Instance) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if paused, err := instance.Paused(ctx); err == nil && paused {
		if err := instance.Resume(ctx); err != nil {
			l.log.Warn("a VM that is to be stopped does not continue", "vm", m.ID, "error", err)
		}
	}
	if err := instance.PowerDown(ctx); err != nil {
		l.log.Warn("a VM cannot be asked to power down", "vm", m.ID, "error", err)
	}
	if client, err := m.Session(); err == nil {
		if err := client.Shutdown(ctx, "poweroff"); err != nil {
			l.log.Info("a guest's agent does not shut it down", "vm", m.ID, "error", err)
		}
	}
}
