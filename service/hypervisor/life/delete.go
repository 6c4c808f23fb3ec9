package life

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// ErrDeleted ends the work on the disk of a VM that is deleted.
var ErrDeleted = fault.New(fault.Conflict, "the VM is being deleted")

// Delete stops a VM at once and removes all it has on the host. It waits for nobody who works
// on the VM: operations are cancelled, and the process is killed first.
func (l *Life) Delete(ctx context.Context, id string) error {
	r, err := l.operate.Doom(ctx, id)
	if err != nil {
		return err
	}
	return l.destroy(context.WithoutCancel(ctx), r)
}

// destroy removes all that a VM in state deleting has. It can be repeated.
func (l *Life) destroy(ctx context.Context, r record.VM) error {
	m := l.machines.Get(r.ID)
	m.Deleting(1)
	defer m.Deleting(-1)
	for pause := firstDestroyPause; ; pause = min(2*pause, maxDestroyPause) {
		if err := l.destroyProcesses(ctx, m, &r); err != nil {
			return err
		}
		m.BreakOff(ErrDeleted)
		// Whoever works on the VM may have started a process since.
		waiting, cancel := context.WithTimeout(ctx, pause)
		release, err := m.Work(waiting)
		cancel()
		if err == nil {
			defer release()
			break
		}
		if l.machines.Ending().Err() != nil {
			return machine.ErrEnding
		}
	}
	if err := l.destroyProcesses(ctx, m, &r); err != nil {
		return err
	}
	return l.Erase(ctx, r)
}

// The pauses are how long a VM that is being deleted is left to those who work on it, before
// their processes are killed once more.
const (
	firstDestroyPause = 100 * time.Millisecond
	maxDestroyPause   = 2 * time.Second
)

// destroyProcesses kills the process of a VM, or the one that has its disk open meanwhile.
func (l *Life) destroyProcesses(ctx context.Context, m *machine.Machine, r *record.VM) error {
	if instance, ended := m.Process(); instance != nil {
		return l.Kill(ctx, instance, ended)
	}
	b := l.host.Backends()[r.Backend]
	if _, ok := b.(backend.DiskKeeper); !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, host.CleanLimit)
	defer cancel()
	return b.Clean(ctx, l.host.Spec(r))
}

// Erase removes all that a VM in state deleting has, and at last its row. It can be
// repeated.
func (l *Life) Erase(ctx context.Context, r record.VM) error {
	if err := l.host.Clean(ctx, &r); err != nil {
		return err
	}
	if err := l.store.Forget(ctx, r.ID); err != nil {
		return err
	}
	l.machines.Forget(r.ID)
	l.roomChanged()
	if r.DiskBase == "" {
		return nil
	}
	return l.host.SweepBases(ctx)
}
