package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Snapshot is a state of a VM that is kept beside the one it has.
type Snapshot struct {
	VM          string  `db:"vm_id"`
	Name        string  `db:"name"`
	Kind        string  `db:"kind"`
	Description string  `db:"description"`
	MemoryBytes int64   `db:"memory_bytes"`
	Secret      string  `db:"secret"` // the agent's in the memory that is kept, sealed
	CreatedAt   db.Time `db:"created_at"`
}

// The kinds of snapshots.
const (
	snapshotDisk = "disk"
	snapshotFull = "full" // with memory and devices
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

// Snapshots lists those of a VM, oldest first.
func (s *Service) Snapshots(ctx context.Context, id string) ([]Snapshot, error) {
	if _, err := s.record(ctx, s.db, id); err != nil {
		return nil, err
	}
	var all []Snapshot
	err := s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE vm_id = ? ORDER BY created_at, name", id)
	return all, err
}

func (s *Service) snapshot(ctx context.Context, q db.Querier, id, name string) (Snapshot, error) {
	var snap Snapshot
	err := q.Get(ctx, &snap, "SELECT * FROM snapshots WHERE vm_id = ? AND name = ?", id, name)
	return snap, db.NotFound(err, "the VM has no snapshot %s", name)
}

// checkpointFolder is where a sandbox's full snapshot is.
func (s *Service) checkpointFolder(id, name string) string {
	return filepath.Join(s.folder(id), "snapshots", filepath.Base(name))
}

// CreateSnapshot keeps a VM's disk as it is, and with full its memory too.
func (s *Service) CreateSnapshot(ctx context.Context, id string, snap Snapshot) (Snapshot, error) {
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return snap, err
	}
	snap.VM, snap.CreatedAt = id, db.At(s.now())
	var how string
	take := func(ctx context.Context, r Record, d backend.Disks) error {
		if err := s.snapshotFits(ctx, &r, &snap); err != nil {
			return err
		}
		// Once it is begun it is finished, so that no snapshot is there that nobody knows.
		ctx = context.WithoutCancel(ctx)
		var err error
		switch {
		case d == nil:
			err, how = s.checkpoint(ctx, &r, &snap), "with its memory"
		case snap.Kind == snapshotFull:
			// Memory and disk fit together as they are, and the guest shall not find its file
			// systems at rest when it is back.
			how = "with its memory"
			snap.MemoryBytes, err = d.Snapshot(ctx, snap.Name, true)
		default:
			how, err = s.quiet(ctx, &r, func() error {
				_, err := d.Snapshot(ctx, snap.Name, false)
				return err
			})
		}
		if err != nil {
			return err
		}
		_, err = s.change(ctx, id, eventDisk, "vm.snapshot", fmt.Sprintf("snapshot %s (%s), %s", snap.Name, snap.Kind, how), func(tx *db.Tx, r *Record) error {
			snap.Secret = r.Secret
			return tx.Insert(ctx, "snapshots", snap)
		})
		return err
	}
	if r.Backend == backend.Sandbox {
		return snap, s.withSandbox(ctx, id, take)
	}
	return snap, s.withDisk(ctx, id, take)
}

// withSandbox is withDisk for a VM that has none.
func (s *Service) withSandbox(ctx context.Context, id string, do func(ctx context.Context, r Record, d backend.Disks) error) error {
	m := s.machines.get(id)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return err
	}
	return do(ctx, r, nil)
}

func (s *Service) checkpoint(ctx context.Context, r *Record, snap *Snapshot) error {
	instance, _ := s.machines.get(r.ID).runs()
	c, ok := instance.(checkpointer)
	if !ok {
		return fault.New(fault.Conflict, "the VM is %s; a full snapshot takes one that runs", r.State).WithCode("wrong_state")
	}
	folder := s.checkpointFolder(r.ID, snap.Name)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(filepath.Dir(folder), 0o700)); err != nil {
		return err
	}
	if err := c.Checkpoint(ctx, folder); err != nil {
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
func (s *Service) snapshotFits(ctx context.Context, r *Record, snap *Snapshot) error {
	if snap.Kind == snapshotFull && r.State != vm.Running && r.State != vm.Paused {
		return fault.New(fault.Conflict, "the VM is %s; a full snapshot takes one that runs", r.State).WithCode("wrong_state")
	}
	if r.Backend == backend.Sandbox && snap.Kind != snapshotFull {
		return fault.InvalidField("kind", "a sandbox has no disk; only full snapshots can be made of it")
	}
	var n int
	if err := s.db.Get(ctx, &n, "SELECT COUNT(*) FROM snapshots WHERE vm_id = ?", r.ID); err != nil {
		return err
	}
	if n >= maxSnapshots {
		return fault.New(fault.Conflict, "a VM may have %d snapshots; remove some", maxSnapshots)
	}
	_, err := s.snapshot(ctx, s.db, r.ID, snap.Name)
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
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return err
	}
	if _, err := s.snapshot(ctx, s.db, id, name); err != nil {
		return err
	}
	forget := func(ctx context.Context, _ Record, d backend.Disks) error {
		ctx = context.WithoutCancel(ctx)
		if d == nil {
			if err := os.RemoveAll(s.checkpointFolder(id, name)); err != nil {
				return err
			}
		} else if err := d.DeleteSnapshot(ctx, name); err != nil {
			return err
		}
		_, err := s.change(ctx, id, eventDisk, "vm.snapshot.delete", "snapshot "+name+" removed", func(tx *db.Tx, _ *Record) error {
			_, err := tx.Exec(ctx, "DELETE FROM snapshots WHERE vm_id = ? AND name = ?", id, name)
			return err
		})
		return err
	}
	if r.Backend == backend.Sandbox {
		return s.withSandbox(ctx, id, forget)
	}
	return s.withDisk(ctx, id, forget)
}
