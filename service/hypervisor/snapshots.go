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
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
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
	State       string  `db:"state"`
}

// The states of snapshots. A snapshot is stored before it is made and until it is removed, so
// that whatever a daemon that is killed leaves in the disk is known. Callers see those that are
// ready.
const (
	snapshotMaking   = "making"
	snapshotReady    = "ready"
	snapshotRemoving = "removing"
)

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
	err := s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE vm_id = ? AND state = ? ORDER BY created_at, name", id, snapshotReady)
	return all, err
}

func (s *Service) snapshot(ctx context.Context, q db.Querier, id, name string) (Snapshot, error) {
	var snap Snapshot
	err := q.Get(ctx, &snap, "SELECT * FROM snapshots WHERE vm_id = ? AND name = ? AND state = ?", id, name, snapshotReady)
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
	snap.VM, snap.CreatedAt, snap.State = id, db.At(s.now()), snapshotMaking
	take := func(ctx context.Context, r Record, d backend.Disks) error {
		if err := s.snapshotFits(ctx, &r, &snap); err != nil {
			return err
		}
		// Once it is begun it is finished.
		ctx = context.WithoutCancel(ctx)
		snap.Secret = r.Secret
		if err := s.db.Update(ctx, func(tx *db.Tx) error { return tx.Insert(ctx, "snapshots", snap) }); err != nil {
			return err
		}
		how, err := s.makeSnapshot(ctx, &r, d, &snap)
		if err == nil {
			_, err = s.change(ctx, id, eventDisk, "vm.snapshot", fmt.Sprintf("snapshot %s (%s), %s", snap.Name, snap.Kind, how), func(tx *db.Tx, _ *Record) error {
				_, err := tx.Exec(ctx, "UPDATE snapshots SET state = ?, memory_bytes = ? WHERE vm_id = ? AND name = ?", snapshotReady, snap.MemoryBytes, id, snap.Name)
				return err
			})
		}
		if err == nil {
			return nil
		}
		if dropErr := s.dropSnapshot(ctx, id, snap.Name, d); dropErr != nil {
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
func (s *Service) makeSnapshot(ctx context.Context, r *Record, d backend.Disks, snap *Snapshot) (how string, err error) {
	switch {
	case d == nil:
		return "with its memory", s.checkpoint(ctx, r, snap)
	case snap.Kind == snapshotFull:
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

// dropSnapshot removes a snapshot, or what there is of one, and then its row. d is nil for a
// sandbox.
func (s *Service) dropSnapshot(ctx context.Context, id, name string, d backend.Disks) error {
	var err error
	if d == nil {
		err = os.RemoveAll(s.checkpointFolder(id, name))
	} else {
		err = d.DeleteSnapshot(ctx, name)
	}
	if err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM snapshots WHERE vm_id = ? AND name = ?", id, name)
		return err
	})
}

// unfinished are the snapshots that a VM's disk may hold a part of: the daemon was killed while
// it made or removed them, or could not clean up.
func (s *Service) unfinished(ctx context.Context, id string) (names []string, err error) {
	return names, s.db.Select(ctx, &names, "SELECT name FROM snapshots WHERE vm_id = ? AND state <> ? ORDER BY name", id, snapshotReady)
}

// tidy removes them. The VM's work is locked; d is nil for a sandbox.
func (s *Service) tidy(ctx context.Context, id string, d backend.Disks) error {
	names, err := s.unfinished(ctx, id)
	if err != nil || len(names) == 0 {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if d != nil {
		if err := d.Recover(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := s.dropSnapshot(ctx, id, name, d); err != nil {
			return err
		}
		if _, err := s.change(caller.ByItself(ctx), id, eventDisk, "", "snapshot "+name+" was not finished, and is removed", func(*db.Tx, *Record) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// tidyStopped is tidy for a VM whose disk nobody has open. The VM's work is locked.
func (s *Service) tidyStopped(ctx context.Context, m *machine, r *Record) error {
	names, err := s.unfinished(ctx, r.ID)
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
	if err := s.tidy(ctx, id, nil); err != nil {
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
	mark := func(ctx context.Context, state string) error {
		return s.db.Update(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE snapshots SET state = ? WHERE vm_id = ? AND name = ?", state, id, name)
			return err
		})
	}
	forget := func(ctx context.Context, _ Record, d backend.Disks) error {
		ctx = context.WithoutCancel(ctx)
		if err := mark(ctx, snapshotRemoving); err != nil {
			return err
		}
		if err := s.dropSnapshot(ctx, id, name, d); err != nil {
			return errors.Join(err, mark(ctx, snapshotReady)) // to be removed once more
		}
		_, err := s.change(ctx, id, eventDisk, "vm.snapshot.delete", "snapshot "+name+" removed", func(*db.Tx, *Record) error { return nil })
		return err
	}
	if r.Backend == backend.Sandbox {
		return s.withSandbox(ctx, id, forget)
	}
	return s.withDisk(ctx, id, forget)
}
