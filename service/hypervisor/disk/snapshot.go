package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// maxSnapshots limits the snapshots of one VM.
const maxSnapshots = 100

// checkpointer is a VM that can save its state to a folder. restorer is its backend.
type (
	checkpointer interface {
		Checkpoint(ctx context.Context, folder string) error
	}
	restorer interface {
		Restore(ctx context.Context, s *backend.Spec, folder string) (backend.Instance, error)
	}
)

// CreateSnapshot saves a VM's disk, and for a full snapshot also its memory.
func (w *Manager) CreateSnapshot(ctx context.Context, id string, snap record.Snapshot) (record.Snapshot, error) {
	r, err := w.store.VM(ctx, id)
	if err != nil {
		return snap, err
	}
	snap.VM = id
	take := func(ctx context.Context, r record.VM, d backend.Disks) error {
		if err := w.snapshotFits(ctx, &r, &snap); err != nil {
			return err
		}
		// Once started, it is finished.
		ctx = context.WithoutCancel(ctx)
		snap.Secret = r.Secret
		if snap.Kind == record.SnapshotFull {
			running := r.AsRunning()
			snap.Hardware.V = new(running.Hardware())
		}
		snap.Disks.V = heldDisks(&r)
		if err := w.store.IntendSnapshot(ctx, &snap); err != nil {
			return err
		}
		how, err := w.makeSnapshot(ctx, &r, d, &snap)
		if err == nil {
			err = w.store.SettleSnapshot(ctx, &snap, fmt.Sprintf("snapshot %s (%s), %s", snap.Name, snap.Kind, how))
		}
		if err == nil {
			return nil
		}
		if dropErr := w.dropSnapshot(ctx, id, snap.Name, d, "", ""); dropErr != nil {
			w.log.Warn("what there is of a snapshot that failed is not removed yet",
				"vm", id, "snapshot", snap.Name, "error", dropErr)
		}
		return err
	}
	if r.Backend == backend.Sandbox {
		err = w.withSandbox(ctx, id, take)
	} else {
		err = w.withDisk(ctx, id, take)
	}
	return snap, err
}

// heldDisks returns the ids of the disks beside the system disk that a snapshot of a VM holds: those that its
// guest can write to. With a process, they are those that the process has.
func heldDisks(r *record.VM) []string {
	ids, running := []string{}, r.AsRunning()
	for _, d := range running.Disks.V {
		if !d.ReadOnly {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// fitsDisks returns a fault unless a VM has the disks that a snapshot holds, and no others: their content would
// not fit to that of the rest.
func fitsDisks(r *record.VM, snap *record.Snapshot) error {
	for _, d := range r.Disks.V {
		if !d.ReadOnly && !slices.Contains(snap.Disks.V, d.ID) {
			return fault.New(fault.Conflict, "the VM has the disk %s, which the snapshot %s does not hold; remove it first",
				d.Name, snap.Name).WithCode("disks_changed")
		}
	}
	return nil
}

// makeSnapshot makes a snapshot whose intent is stored. It returns how consistent it is, as text
// for people.
func (w *Manager) makeSnapshot(
	ctx context.Context, r *record.VM, d backend.Disks, snap *record.Snapshot,
) (how string, err error) {
	switch {
	case d == nil:
		return "with its memory", w.checkpoint(ctx, r, snap)
	case snap.Kind == record.SnapshotFull:
		// Memory and disk are consistent with each other, and after a revert the guest must not
		// find its file systems frozen.
		snap.MemoryBytes, err = d.Snapshot(ctx, snap.Name, true)
		return "with its memory", err
	}
	return w.quiet(ctx, r, func() error {
		_, err := d.Snapshot(ctx, snap.Name, false)
		return err
	})
}

// dropSnapshot removes a snapshot, or its remains, and then its row. It adds an event and an audit
// entry unless the message is empty. It is idempotent. d is nil for a sandbox.
func (w *Manager) dropSnapshot(ctx context.Context, id, name string, d backend.Disks, action, message string) error {
	var err error
	if d == nil {
		err = os.RemoveAll(w.host.CheckpointFolder(id, name))
	} else {
		err = d.DeleteSnapshot(ctx, name)
	}
	if err != nil {
		return err
	}
	return w.store.SettleNoSnapshot(ctx, id, name, action, message)
}

// tidy removes unfinished snapshots. The caller holds the VM's work lock. d is nil for a sandbox.
func (w *Manager) tidy(ctx context.Context, id string, d backend.Disks) error {
	names, err := w.store.UnfinishedSnapshots(ctx, id)
	if err != nil || len(names) == 0 {
		return err
	}
	ctx = caller.ByItself(context.WithoutCancel(ctx))
	if d != nil {
		if err := d.Recover(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := w.dropSnapshot(
			ctx, id, name, d, "", "snapshot "+name+" was not finished, and is removed",
		); err != nil {
			return err
		}
	}
	return nil
}

// tidyStopped is tidy for a VM without a process. The caller holds the VM's work lock.
func (w *Manager) tidyStopped(ctx context.Context, m *machine.Machine, r *record.VM) error {
	names, err := w.store.UnfinishedSnapshots(ctx, r.ID)
	if err != nil || len(names) == 0 {
		return err
	}
	d, err := w.openDisk(ctx, m, r)
	if err != nil {
		return err
	}
	return d.Close()
}

// withSandbox is withDisk for a sandbox, which has no disk.
func (w *Manager) withSandbox(ctx context.Context, id string, do work) error {
	return w.machines.With(ctx, id, machine.Any, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		if err := w.tidy(ctx, id, nil); err != nil {
			return err
		}
		return do(ctx, r, nil)
	})
}

func (w *Manager) checkpoint(ctx context.Context, r *record.VM, snap *record.Snapshot) error {
	instance, _ := w.machines.Get(r.ID).Process()
	c, ok := instance.(checkpointer)
	if !ok {
		return fault.New(
			fault.Conflict, "the VM is %s; a full snapshot takes one that runs", r.State,
		).WithCode("wrong_state")
	}
	folder := w.host.CheckpointFolder(r.ID, snap.Name)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(filepath.Dir(folder), 0o700)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, backend.MemoryLimit(r.AsRunning().MemoryMiB))
	defer cancel()
	if err := c.Checkpoint(limited, folder); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	size, err := sizeOf(folder)
	snap.MemoryBytes = size
	return err
}

func sizeOf(folder string) (total int64, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// errStartedWith is the error for full snapshots of a VM that has what only this start gave it: the
// snapshot could not be loaded into a VM without that.
var errStartedWith = fault.New(
	fault.Conflict, "the VM was started with options for this start only; restart it before a full snapshot",
).WithCode("hardware_changed")

// snapshotFits checks that a snapshot can be made of a VM in its current state.
func (w *Manager) snapshotFits(ctx context.Context, r *record.VM, snap *record.Snapshot) error {
	if snap.Kind == record.SnapshotFull && r.State != vm.Running && r.State != vm.Paused {
		return fault.New(
			fault.Conflict, "the VM is %s; a full snapshot takes one that runs", r.State,
		).WithCode("wrong_state")
	}
	if snap.Kind == record.SnapshotFull && r.StartedWith.V != nil {
		return errStartedWith
	}
	if waiting := r.Pending(); slices.Contains(waiting, "disks") {
		return fault.New(fault.Conflict, "a change to the disks of the VM waits for its next start; restart it before a snapshot").
			WithCode("disks_pending")
	}
	if r.Backend == backend.Sandbox && snap.Kind != record.SnapshotFull {
		return fault.InvalidField("kind", "a sandbox has no disk; only full snapshots can be made of it")
	}
	_, n, err := w.store.CountSnapshots(ctx, r.ID)
	if err != nil {
		return err
	}
	if n >= maxSnapshots {
		return fault.New(fault.Conflict, "a VM may have %d snapshots; remove some", maxSnapshots)
	}
	_, err = w.store.Snapshot(ctx, r.ID, snap.Name)
	switch {
	case err == nil:
		return fault.New(fault.Conflict, "the VM has a snapshot %s already", snap.Name).WithCode("name_taken")
	case fault.Is(err, fault.NotFound):
		return nil
	}
	return err
}

// DeleteSnapshot removes a snapshot.
func (w *Manager) DeleteSnapshot(ctx context.Context, id, name string) error {
	r, err := w.store.VM(ctx, id)
	if err != nil {
		return err
	}
	if _, err := w.store.Snapshot(ctx, id, name); err != nil {
		return err
	}
	forget := func(ctx context.Context, _ record.VM, d backend.Disks) error {
		ctx = context.WithoutCancel(ctx)
		if err := w.store.IntendNoSnapshot(ctx, id, name); err != nil {
			return err
		}
		if err := w.dropSnapshot(ctx, id, name, d, "vm.snapshot.delete", "snapshot "+name+" removed"); err != nil {
			return errors.Join(err, w.store.KeepSnapshot(ctx, id, name)) // to be removed again
		}
		return nil
	}
	if r.Backend == backend.Sandbox {
		return w.withSandbox(ctx, id, forget)
	}
	return w.withDisk(ctx, id, forget)
}
