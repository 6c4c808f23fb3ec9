package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// maxSnapshots bounds those of one VM.
const maxSnapshots = 100

// checkpointer is a VM that keeps its state in a folder, and restorer its backend.
type (
	checkpointer interface {
		Checkpoint(ctx context.Context, folder string) error
	}
	restorer interface {
		Restore(ctx context.Context, s *backend.Spec, folder string) (backend.Instance, error)
	}
)

// CreateSnapshot keeps a VM's disk as it is, and with full its memory too.
func (s *Service) CreateSnapshot(ctx context.Context, id string, snap record.Snapshot) (record.Snapshot, error) {
	r, err := s.store.VM(ctx, id)
	if err != nil {
		return snap, err
	}
	snap.VM = id
	take := func(ctx context.Context, r record.VM, d backend.Disks) error {
		if err := s.snapshotFits(ctx, &r, &snap); err != nil {
			return err
		}
		// Once it is begun it is finished.
		ctx = context.WithoutCancel(ctx)
		snap.Secret = r.Secret
		if err := s.store.IntendSnapshot(ctx, &snap); err != nil {
			return err
		}
		how, err := s.makeSnapshot(ctx, &r, d, &snap)
		if err == nil {
			err = s.store.SettleSnapshot(ctx, &snap, fmt.Sprintf("snapshot %s (%s), %s", snap.Name, snap.Kind, how))
		}
		if err == nil {
			return nil
		}
		if dropErr := s.dropSnapshot(ctx, id, snap.Name, d, "", ""); dropErr != nil {
			s.log.Warn("what there is of a snapshot that failed is not removed yet", "vm", id, "snapshot", snap.Name, "error", dropErr)
		}
		return err
	}
	if r.Backend == backend.Sandbox {
		err = s.withSandbox(ctx, id, take)
	} else {
		err = s.withDisk(ctx, id, take)
	}
	return snap, err
}

// makeSnapshot makes a snapshot that is stored, and says how it went.
func (s *Service) makeSnapshot(ctx context.Context, r *record.VM, d backend.Disks, snap *record.Snapshot) (how string, err error) {
	switch {
	case d == nil:
		return "with its memory", s.checkpoint(ctx, r, snap)
	case snap.Kind == record.SnapshotFull:
		// Memory and disk fit together as they are, and the guest shall not find its file
		// systems at rest when it is back.
		snap.MemoryBytes, err = d.Snapshot(ctx, snap.Name, true)
		return "with its memory", err
	}
	return s.quiet(ctx, r, func() error {
		_, err := d.Snapshot(ctx, snap.Name, false)
		return err
	})
}

// dropSnapshot removes a snapshot, or what there is of one, and then its row, with an event and an
// audit entry unless the message is empty. It can be repeated. d is nil for a sandbox.
func (s *Service) dropSnapshot(ctx context.Context, id, name string, d backend.Disks, action, message string) error {
	var err error
	if d == nil {
		err = os.RemoveAll(s.host.CheckpointFolder(id, name))
	} else {
		err = d.DeleteSnapshot(ctx, name)
	}
	if err != nil {
		return err
	}
	return s.store.SettleNoSnapshot(ctx, id, name, action, message)
}

// tidy removes the snapshots that are not finished. The VM's work is locked; d is nil for a sandbox.
func (s *Service) tidy(ctx context.Context, id string, d backend.Disks) error {
	names, err := s.store.UnfinishedSnapshots(ctx, id)
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
		if err := s.dropSnapshot(ctx, id, name, d, "", "snapshot "+name+" was not finished, and is removed"); err != nil {
			return err
		}
	}
	return nil
}

// tidyStopped is tidy for a VM whose disk nobody has open. The VM's work is locked.
func (s *Service) tidyStopped(ctx context.Context, m *machine.Machine, r *record.VM) error {
	names, err := s.store.UnfinishedSnapshots(ctx, r.ID)
	if err != nil || len(names) == 0 {
		return err
	}
	d, err := s.openDisk(ctx, m, r)
	if err != nil {
		return err
	}
	return d.Close()
}

// withSandbox is withDisk for a VM that has none.
func (s *Service) withSandbox(ctx context.Context, id string, do func(ctx context.Context, r record.VM, d backend.Disks) error) error {
	return s.machines.With(ctx, id, machine.Any, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		if err := s.tidy(ctx, id, nil); err != nil {
			return err
		}
		return do(ctx, r, nil)
	})
}

func (s *Service) checkpoint(ctx context.Context, r *record.VM, snap *record.Snapshot) error {
	instance, _ := s.machines.Get(r.ID).Process()
	c, ok := instance.(checkpointer)
	if !ok {
		return fault.New(fault.Conflict, "the VM is %s; a full snapshot takes one that runs", r.State).WithCode("wrong_state")
	}
	folder := s.host.CheckpointFolder(r.ID, snap.Name)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(filepath.Dir(folder), 0o700)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, backend.MemoryLimit(r.MemoryMiB))
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

// snapshotFits says whether a snapshot can be made of a VM as it is.
func (s *Service) snapshotFits(ctx context.Context, r *record.VM, snap *record.Snapshot) error {
	if snap.Kind == record.SnapshotFull && r.State != vm.Running && r.State != vm.Paused {
		return fault.New(fault.Conflict, "the VM is %s; a full snapshot takes one that runs", r.State).WithCode("wrong_state")
	}
	if r.Backend == backend.Sandbox && snap.Kind != record.SnapshotFull {
		return fault.InvalidField("kind", "a sandbox has no disk; only full snapshots can be made of it")
	}
	_, n, err := s.store.CountSnapshots(ctx, r.ID)
	if err != nil {
		return err
	}
	if n >= maxSnapshots {
		return fault.New(fault.Conflict, "a VM may have %d snapshots; remove some", maxSnapshots)
	}
	_, err = s.store.Snapshot(ctx, r.ID, snap.Name)
	switch {
	case err == nil:
		return fault.New(fault.Conflict, "the VM has a snapshot %s already", snap.Name).WithCode("name_taken")
	case fault.Is(err, fault.NotFound):
		return nil
	}
	return err
}

// DeleteSnapshot removes a snapshot.
func (s *Service) DeleteSnapshot(ctx context.Context, id, name string) error {
	r, err := s.store.VM(ctx, id)
	if err != nil {
		return err
	}
	if _, err := s.store.Snapshot(ctx, id, name); err != nil {
		return err
	}
	forget := func(ctx context.Context, _ record.VM, d backend.Disks) error {
		ctx = context.WithoutCancel(ctx)
		if err := s.store.IntendNoSnapshot(ctx, id, name); err != nil {
			return err
		}
		if err := s.dropSnapshot(ctx, id, name, d, "vm.snapshot.delete", "snapshot "+name+" removed"); err != nil {
			return errors.Join(err, s.store.KeepSnapshot(ctx, id, name)) // to be removed once more
		}
		return nil
	}
	if r.Backend == backend.Sandbox {
		return s.withSandbox(ctx, id, forget)
	}
	return s.withDisk(ctx, id, forget)
}
