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

// ErrDeleted is the cause with which work on the disk of a deleted VM is cancelled.
var ErrDeleted = fault.New(fault.Conflict, "the VM is being deleted")

// Delete kills a VM and removes everything that it has on the host. It does not wait for other work
// on the VM: operations are cancelled, and the process is killed first.
func (l *Life) Delete(ctx context.Context, id string) error {
	r, err := l.operate.Doom(ctx, id)
	if err != nil {
		return err
	}
	return l.destroy(context.WithoutCancel(ctx), r)
}

// destroy removes everything that a VM in state deleting has. It is idempotent.
func (l *Life) destroy(ctx context.Context, r record.VM) error {
	m := l.machines.Get(r.ID)
	m.Deleting(1)
	defer m.Deleting(-1)
	for pause := firstDestroyPause; ; pause = min(2*pause, maxDestroyPause) {
		if err := l.destroyProcesses(ctx, m, &r); err != nil {
			return err
		}
		m.BreakOff(ErrDeleted)
		// The holder of the work lock may have started a process since.
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

// While other work holds the lock of a VM that is being deleted, destroy waits this long before it
// kills the VM's processes again.
const (
	firstDestroyPause = 100 * time.Millisecond
	maxDestroyPause   = 2 * time.Second
)

// destroyProcesses kills a VM's process, or the process that has its disk open.
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

// Erase removes everything that a VM in state deleting has on the host, then its row. It is
// idempotent.
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
