package disk

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// RevertSnapshot reverts a VM to a snapshot. After a full snapshot, the VM is running.
func (w *Manager) RevertSnapshot(ctx context.Context, id, name string) (record.VM, error) {
	r, err := w.store.VM(ctx, id)
	if err != nil {
		return r, err
	}
	snap, err := w.store.Snapshot(ctx, id, name)
	if err != nil {
		return r, err
	}
	if err := errors.Join(fitsHardware(&r, &snap), fitsDisks(&r, &snap)); err != nil {
		return r, err
	}
	ctx = context.WithoutCancel(ctx)
	switch {
	case snap.Kind == record.SnapshotDisk:
		err = w.revertDisk(ctx, id, &snap)
	case r.Backend == backend.Sandbox, r.State != vm.Running && r.State != vm.Paused:
		err = w.startFrom(ctx, id, &snap)
	default:
		err = w.revertRunning(ctx, id, &snap)
	}
	if err != nil {
		return r, err
	}
	return w.store.VM(ctx, id)
}

// fitsHardware returns a fault unless a VM has, or gets at the start from a full snapshot, what its
// process had when the snapshot was made: memory can only be loaded into the same machine.
func fitsHardware(r *record.VM, snap *record.Snapshot) error {
	had := snap.Hardware.V
	if snap.Kind != record.SnapshotFull || had == nil {
		return nil
	}
	if r.StartedWith.V != nil {
		return errStartedWith
	}
	now := *r
	if r.Backend != backend.Sandbox { // which is started anew
		now = r.AsRunning()
	}
	nic := map[bool]string{true: "a network", false: "no network"}
	has := now.Hardware()
	if has.VCPUs != had.VCPUs || has.MemoryMiB != had.MemoryMiB || (has.MAC == "") != (had.MAC == "") {
		return fault.New(
			fault.Conflict, "the snapshot %s was made with %d vcpus, %d MiB of memory and %s, and the VM has %d, %d and %s; "+
				"change it back, and restart it if it runs", snap.Name, had.VCPUs, had.MemoryMiB, nic[had.MAC != ""],
			has.VCPUs, has.MemoryMiB, nic[has.MAC != ""],
		).WithCode("hardware_changed")
	}
	if !has.SameDisks(had) || !has.CD.Equal(had.CD) {
		return fault.New(
			fault.Conflict, "the disks of the VM, or the CD in its drive, are not those with which the snapshot %s was made; "+
				"change them back, and restart the VM if it runs", snap.Name,
		).WithCode("hardware_changed")
	}
	return nil
}

// revertDisk reverts the disks of a stopped VM.
func (w *Manager) revertDisk(ctx context.Context, id string, snap *record.Snapshot) error {
	atRest := func(_ context.Context, r *record.VM) error {
		if r.State != vm.Stopped && r.State != vm.Failed {
			return fault.New(fault.Conflict, "the VM is %s; stop it before its disk is put back, "+
				"or revert to a full snapshot", r.State).WithCode("wrong_state")
		}
		return fitsDisks(r, snap)
	}
	return w.machines.With(ctx, id, atRest, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		return w.revertDiskOf(ctx, m, r, snap)
	})
}

// revertDiskOf is idempotent. The caller holds the VM's work lock.
func (w *Manager) revertDiskOf(ctx context.Context, m *machine.Machine, r record.VM, snap *record.Snapshot) error {
	err := w.intending(ctx, snap, func() error {
		// Afterwards the bitmaps no longer match the disk: the next backup is a full one.
		if err := w.forgetBitmaps(ctx, m, &r); err != nil {
			return err
		}
		err := storage.DirPool{}.Revert(ctx, w.host.Volume(&r), snap.Name)
		for i := range r.Disks.V {
			if d := &r.Disks.V[i]; err == nil && !d.ReadOnly {
				err = storage.DirPool{}.Revert(ctx, w.host.DataVolume(&r, d), snap.Name)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.settleRevert(ctx, &r, "the disk is as in snapshot "+snap.Name)
}

// intending stores that a VM is being reverted to a snapshot before act reverts it. A daemon that
// is killed during that repeats the revert, since it may have left the disk half reverted or the VM
// paused. settleRevert clears the intent. The caller holds the VM's work lock.
func (w *Manager) intending(ctx context.Context, snap *record.Snapshot, act func() error) error {
	if err := w.store.SetReverting(ctx, snap.VM, snap.Name); err != nil {
		return err
	}
	if err := act(); err != nil {
		return errors.Join(err, w.store.SetReverting(ctx, snap.VM, ""))
	}
	return nil
}

// settleRevert stores that a VM was reverted to a snapshot. The disk also has its old size again.
func (w *Manager) settleRevert(ctx context.Context, r *record.VM, message string) error {
	size := r.Spec.V.DiskGiB
	if size != 0 && r.HasDisk() {
		bytes, err := image.VirtualSize(w.host.Disk(r).Target)
		if err != nil {
			return err
		}
		size = gib(bytes)
	}
	sizes := map[string]int{}
	for i := range r.Disks.V {
		d := &r.Disks.V[i]
		bytes, err := image.VirtualSize(w.host.DataDisk(r, d).Target)
		if err != nil {
			return err
		}
		sizes[d.ID] = gib(bytes)
	}
	_, err := w.store.Change(ctx, r.ID, record.EventDisk, "vm.snapshot.revert", message, func(r *record.VM) {
		r.Spec.V.DiskGiB, r.Reverting = size, ""
		for i := range r.Disks.V {
			r.Disks.V[i].SizeGiB = sizes[r.Disks.V[i].ID]
		}
	})
	return err
}

// forgetBitmaps makes the next backup a full one. The caller holds the VM's work lock.
func (w *Manager) forgetBitmaps(ctx context.Context, m *machine.Machine, r *record.VM) error {
	if err := w.store.ForgetBitmaps(ctx, r.ID); err != nil {
		return err
	}
	d, err := w.openDisk(ctx, m, r)
	if err != nil {
		return err
	}
	err = d.DropBitmaps(ctx, "")
	if !r.State.HasProcess() {
		err = errors.Join(err, d.Close())
	}
	return err
}

// revertRunning loads a full snapshot into a running VM.
func (w *Manager) revertRunning(ctx context.Context, id string, snap *record.Snapshot) error {
	fits := func(_ context.Context, r *record.VM) error {
		return errors.Join(fitsHardware(r, snap), fitsDisks(r, snap))
	}
	return w.machines.With(ctx, id, fits, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		return w.load(ctx, m, r, snap)
	})
}

// load reverts a running VM to a full snapshot. It is idempotent. The caller holds the VM's work
// lock.
func (w *Manager) load(ctx context.Context, m *machine.Machine, r record.VM, snap *record.Snapshot) error {
	if err := w.intending(ctx, snap, func() error { return w.loadNow(ctx, m, r, snap) }); err != nil {
		return err
	}
	if r.State == vm.Paused {
		if _, err := w.store.Move(ctx, r.ID, vm.Resume, "", "reverted to snapshot "+snap.Name, nil); err != nil {
			return err
		}
	}
	return w.reverted(ctx, &r, m, snap)
}

func (w *Manager) loadNow(ctx context.Context, m *machine.Machine, r record.VM, snap *record.Snapshot) error {
	if err := w.forgetBitmaps(ctx, m, &r); err != nil {
		return err
	}
	d, err := w.openDisk(ctx, m, &r)
	if err != nil {
		return err
	}
	if err := w.store.ExpectSecretOf(ctx, snap); err != nil {
		return err
	}
	if err := d.RevertFull(ctx, snap.Name); err != nil {
		if agreeErr := w.life.Agree(ctx, r, "the snapshot "+snap.Name+" could not be loaded"); agreeErr != nil {
			w.log.Warn("whether a VM is halted is not known", "vm", r.ID, "error", agreeErr)
		}
		return err
	}
	return nil
}

// startFrom starts a VM from a full snapshot. A running sandbox is killed first.
func (w *Manager) startFrom(ctx context.Context, id string, snap *record.Snapshot) error {
	m := w.machines.Get(id)
	if instance, ended := m.Process(); instance != nil {
		if _, err := w.store.Move(ctx, id, vm.Stop, "", "for the snapshot "+snap.Name, nil); err != nil {
			return err
		}
		if err := w.life.Kill(ctx, instance, ended); err != nil {
			return err
		}
	}
	return w.machines.With(ctx, id, machine.Any, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		if err := fitsHardware(&r, snap); err != nil {
			return err
		}
		r, err := w.store.Move(ctx, id, vm.Start, "", "from the snapshot "+snap.Name, func(r *record.VM) {
			r.LastError, r.Reverting = "", snap.Name
		})
		if err != nil {
			return err
		}
		return w.bringUpFrom(ctx, m, r, snap)
	})
}

// bringUpFrom starts the process of a VM in state starting from a full snapshot. The caller holds
// the VM's work lock.
func (w *Manager) bringUpFrom(ctx context.Context, m *machine.Machine, r record.VM, snap *record.Snapshot) error {
	if err := w.store.ExpectSecretOf(ctx, snap); err != nil {
		return err
	}
	b, err := w.host.Backend(&r)
	if err != nil {
		return err
	}
	begin := func(ctx context.Context, spec *backend.Spec) (backend.Instance, error) {
		if restores, ok := b.(restorer); ok {
			return restores.Restore(ctx, spec, w.host.CheckpointFolder(r.ID, snap.Name))
		}
		if keeper, ok := b.(backend.DiskKeeper); ok {
			return keeper.StartFrom(ctx, spec, snap.Name)
		}
		return nil, fault.New(fault.Conflict, "the backend %s has no full snapshots", r.Backend)
	}
	if _, err := w.life.BringUpBy(ctx, m, r, begin); err != nil {
		return err
	}
	return w.reverted(ctx, &r, m, snap)
}

// reverted stores that a VM was reverted to a full snapshot and gives its agent a new secret:
// someone who has seen the old one may be the reason for the revert.
func (w *Manager) reverted(ctx context.Context, r *record.VM, m *machine.Machine, snap *record.Snapshot) error {
	// Set before the session ends: the next one begins immediately and must know.
	m.SetRotate(true)
	if client, err := m.Session(); err == nil {
		_ = client.Close() // it was with the guest before the revert
	}
	return w.settleRevert(ctx, r, "the VM is as in snapshot "+snap.Name)
}
