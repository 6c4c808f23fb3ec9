package life

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Wait returns when a VM is in the given state, immediately if it already is. It fails with a
// conflict when the limit is reached.
func (l *Life) Wait(ctx context.Context, id string, state vm.State, limit time.Duration) (record.VM, error) {
	if _, err := l.store.VM(ctx, id); err != nil {
		return record.VM{}, err // before Get makes a machine for an id that a caller made up
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		m := l.machines.Get(id)
		bell := m.Bell() // taken before the row is read, so that no change is missed
		r, err := l.store.VM(ctx, id)
		if fault.Is(err, fault.NotFound) {
			// The VM was deleted meanwhile. Get may have made a machine after Delete forgot its own.
			l.machines.Forget(id)
		}
		if err != nil {
			return r, err
		}
		if r.State == state {
			return r, nil
		}
		select {
		case <-bell:
		case <-timer.C:
			return r, fault.New(
				fault.Conflict, "the VM is %s, and was not %s in time", r.State, state,
			).WithCode("wait_timeout")
		case <-l.machines.Ending().Done():
			return r, machine.ErrEnding
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// Metrics returns a VM's current resource usage. It fails with a conflict if the VM has no process.
func (l *Life) Metrics(ctx context.Context, id string) (backend.Metrics, error) {
	r, err := l.store.VM(ctx, id)
	if err != nil {
		return backend.Metrics{}, err
	}
	instance, _ := l.machines.Get(id).Process()
	if instance == nil {
		return backend.Metrics{}, fault.New(fault.Conflict, "the VM is %s and uses nothing", r.State)
	}
	ctx, cancel := context.WithTimeout(ctx, machine.CallLimit)
	defer cancel()
	metrics, err := instance.Metrics(ctx)
	if err == nil && r.Tap != "" {
		metrics.NetReceivedBytes, metrics.NetSentBytes = host.NetworkCounters(&r)
	}
	return metrics, err
}

// ConsoleLog returns the end of a VM's serial log, at most most bytes.
func (l *Life) ConsoleLog(ctx context.Context, id string, most int) ([]byte, error) {
	r, err := l.store.VM(ctx, id)
	if err != nil {
		return nil, err
	}
	return l.host.ReadConsoleLog(r.ID, most)
}
