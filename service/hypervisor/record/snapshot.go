package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Snapshot is a saved state of a VM.
type Snapshot struct {
	VM          string  `db:"vm_id"`
	Name        string  `db:"name"`
	Kind        string  `db:"kind"`
	Description string  `db:"description"`
	MemoryBytes int64   `db:"memory_bytes"`
	Secret      string  `db:"secret"` // sealed; the agent's secret in the saved memory
	CreatedAt   db.Time `db:"created_at"`
	State       string  `db:"state"`
	// Hardware is what the VM's process had when a full snapshot was made; nil: not known.
	Hardware db.JSON[*Hardware] `db:"hardware"`
	// Disks are the ids of the disks beside the system disk that it holds.
	Disks db.JSON[[]string] `db:"disks"`
}

// States of snapshots. A snapshot has a row from before it is made until after it is removed, so
// that the remains that a killed daemon leaves in the disk are known. Callers see only ready ones.
const (
	snapshotMaking   = "making"
	snapshotReady    = "ready"
	snapshotRemoving = "removing"
)

// Kinds of snapshots.
const (
	SnapshotDisk = "disk"
	SnapshotFull = "full" // with memory and devices
)

// Snapshots lists the snapshots of a VM, oldest first.
func (s *Store) Snapshots(ctx context.Context, id string) ([]Snapshot, error) {
	if _, err := s.VM(ctx, id); err != nil {
		return nil, err
	}
	var all []Snapshot
	err := s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE vm_id = ? AND state = ? ORDER BY created_at, name",
		id, snapshotReady)
	return all, err
}

// Snapshot returns a snapshot. The caller must check that the VM is in scope.
func (s *Store) Snapshot(ctx context.Context, id, name string) (Snapshot, error) {
	var snap Snapshot
	err := s.db.Get(ctx, &snap, "SELECT * FROM snapshots WHERE vm_id = ? AND name = ? AND state = ?",
		id, name, snapshotReady)
	return snap, db.NotFound(err, "the VM has no snapshot %s", name)
}

// CountSnapshots returns the number of a VM's ready snapshots, and of all including unfinished
// ones.
func (s *Store) CountSnapshots(ctx context.Context, id string) (ready, all int, err error) {
	var n struct {
		All   int `db:"n"`
		Ready int `db:"ready"`
	}
	err = s.db.Get(ctx, &n, `SELECT COUNT(*) AS n, COALESCE(SUM(CASE WHEN state = ? THEN 1 ELSE 0 END), 0) AS ready
		FROM snapshots WHERE vm_id = ?`, snapshotReady, id)
	return n.Ready, n.All, err
}

// UnfinishedSnapshots returns the names of snapshots of which the VM's disk may hold a part: the
// daemon was killed while it made or removed them, or could not clean up.
func (s *Store) UnfinishedSnapshots(ctx context.Context, id string) (names []string, err error) {
	return names, s.db.Select(ctx, &names, "SELECT name FROM snapshots WHERE vm_id = ? AND state <> ? ORDER BY name",
		id, snapshotReady)
}

// IntendSnapshot stores that a snapshot is about to be made.
func (s *Store) IntendSnapshot(ctx context.Context, snap *Snapshot) error {
	snap.CreatedAt, snap.State = db.At(s.now()), snapshotMaking
	return s.db.Update(ctx, func(tx *db.Tx) error { return tx.Insert(ctx, "snapshots", *snap) })
}

// SettleSnapshot stores that a snapshot was made.
func (s *Store) SettleSnapshot(ctx context.Context, snap *Snapshot, message string) error {
	_, err := s.changeWith(ctx, snap.VM, EventDisk, "vm.snapshot", message, func(tx *db.Tx, _ *VM) error {
		_, err := tx.Exec(ctx, "UPDATE snapshots SET state = ?, memory_bytes = ? WHERE vm_id = ? AND name = ?",
			snapshotReady, snap.MemoryBytes, snap.VM, snap.Name)
		return err
	})
	return err
}

// IntendNoSnapshot stores that a snapshot is about to be removed.
func (s *Store) IntendNoSnapshot(ctx context.Context, id, name string) error {
	return s.setSnapshotState(ctx, id, name, snapshotRemoving)
}

// KeepSnapshot undoes IntendNoSnapshot.
func (s *Store) KeepSnapshot(ctx context.Context, id, name string) error {
	return s.setSnapshotState(ctx, id, name, snapshotReady)
}

func (s *Store) setSnapshotState(ctx context.Context, id, name, state string) error {
	return s.exec(ctx, "UPDATE snapshots SET state = ? WHERE vm_id = ? AND name = ?", state, id, name)
}

// SettleNoSnapshot stores that a snapshot was removed completely. If the message is empty, it adds
// neither an event nor an audit entry.
func (s *Store) SettleNoSnapshot(ctx context.Context, id, name, action, message string) error {
	const forget = "DELETE FROM snapshots WHERE vm_id = ? AND name = ?"
	if message == "" {
		return s.exec(ctx, forget, id, name)
	}
	_, err := s.changeWith(ctx, id, EventDisk, action, message, func(tx *db.Tx, _ *VM) error {
		_, err := tx.Exec(ctx, forget, id, name)
		return err
	})
	return err
}
