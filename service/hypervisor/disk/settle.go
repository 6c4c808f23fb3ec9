package disk

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Settle finishes or undoes what was in progress on a VM's disk when the daemon ended: an
// unfinished snapshot is removed, and a revert is repeated. The caller has reattached to the VM's
// process, if it has one, and holds the work lock.
func (w *Manager) Settle(ctx context.Context, m *machine.Machine, r record.VM) error {
	if r.Backend == backend.Sandbox {
		return w.tidy(ctx, r.ID, nil)
	}
	if r.State == vm.Stopping || r.State == vm.Deleting {
		return nil // nobody uses the disk until that is done
	}
	r, err := w.settleDisks(ctx, m, r)
	if err != nil {
		return err
	}
	if _, err := w.diskKeeper(&r); err != nil { // it has no disk that is worked on
		if instance, _ := m.Process(); instance == nil {
			return nil
		}
		return w.life.Agree(ctx, r, "as it was found after the daemon came back")
	}
	d, err := w.openDisk(ctx, m, &r) // this also removes unfinished snapshots
	if err != nil {
		return err
	}
	instance, _ := m.Process()
	if instance == nil {
		if err := d.Close(); err != nil {
			return err
		}
	}
	snap, err := w.reverting(ctx, &r)
	switch {
	case err != nil:
		return err
	case snap != nil && instance != nil:
		return w.load(ctx, m, r, snap)
	case snap != nil && snap.Kind == record.SnapshotDisk:
		return w.revertDiskOf(ctx, m, r, snap)
	case instance == nil:
		return nil
	}
	if r.State == vm.Running {
		// Only the interrupted work has paused it.
		if err := instance.Resume(ctx); err != nil {
			return err
		}
	}
	return w.life.Agree(ctx, r, "as it was found after the daemon came back")
}

// BringUpAgain starts the process of a VM in state starting, from a snapshot if the VM was being
// reverted to one. The caller holds the VM's work lock.
func (w *Manager) BringUpAgain(ctx context.Context, m *machine.Machine, r record.VM) error {
	snap, err := w.reverting(ctx, &r)
	if err != nil {
		return err
	}
	if snap != nil {
		return w.bringUpFrom(ctx, m, r, snap)
	}
	_, err = w.life.BringUp(ctx, m, r)
	return err
}

// reverting returns the snapshot that a VM is being reverted to, or nil if there is none or it no
// longer exists.
func (w *Manager) reverting(ctx context.Context, r *record.VM) (*record.Snapshot, error) {
	if r.Reverting == "" {
		return nil, nil
	}
	snap, err := w.store.Snapshot(ctx, r.ID, r.Reverting)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return &snap, err
}
