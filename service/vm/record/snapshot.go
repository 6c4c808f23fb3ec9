package record

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Snapshot is a state of a VM that is kept. The daemon knows it by its id.
type Snapshot struct {
	ID          string  `db:"id"`
	VM          string  `db:"vm_id"`
	Name        string  `db:"name"`
	Kind        string  `db:"kind"` // disk or full
	Description string  `db:"description"`
	Parent      string  `db:"parent_id"` // the snapshot that the disk stood on; empty: none
	SizeBytes   int64   `db:"size_bytes"`
	Ready       bool    `db:"ready"` // the daemon has it
	CreatedAt   db.Time `db:"created_at"`
}

var errNoSnapshot = fault.New(fault.NotFound, "there is no such snapshot")

// Snapshots lists the snapshots of a VM that the caller has read, oldest first.
func (s *Store) Snapshots(ctx context.Context, vm string) (all []Snapshot, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE vm_id = ? AND ready ORDER BY id", vm)
}

// Snapshot returns a snapshot of a VM that the caller has read.
func (s *Store) Snapshot(ctx context.Context, vm, id string) (Snapshot, error) {
	return snapshotIn(ctx, s.db, vm, id)
}

func snapshotIn(ctx context.Context, q db.Querier, vm, id string) (Snapshot, error) {
	var snapshot Snapshot
	err := q.Get(ctx, &snapshot, "SELECT * FROM snapshots WHERE vm_id = ? AND id = ? AND ready", vm, id)
	if db.NotFound(err, "") != err {
		return snapshot, errNoSnapshot
	}
	return snapshot, err
}

// AddSnapshot stores a snapshot that is about to be taken. It becomes visible with SnapshotTaken.
func (s *Store) AddSnapshot(ctx context.Context, vm string, snapshot *Snapshot) (VM, error) {
	var r VM
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if r, err = s.ready(ctx, tx, vm); err != nil {
			return err
		}
		if err := s.admit(ctx, tx, r.Tenant, Use{Snapshots: 1}); err != nil {
			return err
		}
		snapshot.VM, snapshot.Parent, snapshot.CreatedAt = r.ID, r.SnapshotID, db.At(s.now())
		if err := tx.Insert(ctx, "snapshots", *snapshot); db.IsUnique(err) {
			return fault.New(fault.Conflict, "the VM has a snapshot named %s already", snapshot.Name)
		} else if err != nil {
			return err
		}
		return s.noteSnapshot(ctx, tx, "snapshot.create", &r, snapshot)
	})
	return r, err
}

// BeginSnapshot records a change to a snapshot that is about to be made, and returns the VM.
func (s *Store) BeginSnapshot(ctx context.Context, vm, id, action string) (VM, error) {
	var r VM
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		snapshot, err := snapshotIn(ctx, tx, vm, id)
		if err != nil {
			return err
		}
		if r, err = s.ready(ctx, tx, vm); err != nil {
			return err
		}
		return s.noteSnapshot(ctx, tx, action, &r, &snapshot)
	})
	return r, err
}

// ready returns a VM that the daemon has made and that no job changes.
func (s *Store) ready(ctx context.Context, tx *db.Tx, vm string) (VM, error) {
	r, err := locked(ctx, tx, vm)
	switch {
	case err != nil:
		return r, err
	case r.Job != nil:
		return r, errBusy(r.Job)
	case !r.Provisioned():
		return r, fault.New(fault.Conflict, "the VM has no disk yet: the daemon has not made it")
	}
	return r, nil
}

func (s *Store) noteSnapshot(ctx context.Context, tx *db.Tx, action string, r *VM, snapshot *Snapshot) error {
	return s.note(ctx, tx, audit.Entry{
		Action: action, Target: snapshot.ID, Tenant: r.Tenant, Message: snapshot.Name + " of " + r.Name,
	})
}

// Unfinished lists pending snapshots that are older than age.
func (s *Store) Unfinished(ctx context.Context, age time.Duration) (all []Snapshot, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE NOT ready AND created_at < ? ORDER BY id LIMIT 100",
		db.At(s.now().Add(-age)))
}

// SnapshotTaken stores that the daemon has taken a snapshot, on which the VM's disk stands now.
func (s *Store) SnapshotTaken(ctx context.Context, vm, id string, size int64) error {
	return s.snapshotChange(ctx, vm, id, "UPDATE snapshots SET ready = TRUE, size_bytes = ? WHERE id = ?", []any{size, id},
		func(r *VM, snapshot Snapshot) string {
			r.SnapshotID = id
			return "snapshot " + snapshot.Name + " taken"
		})
}

// SnapshotReverted stores that a VM has returned to a snapshot.
func (s *Store) SnapshotReverted(ctx context.Context, vm, id string) error {
	return s.snapshotChange(ctx, vm, id, "", nil, func(r *VM, snapshot Snapshot) string {
		r.SnapshotID = id
		return "returned to snapshot " + snapshot.Name
	})
}

// SnapshotDeleted forgets a snapshot. Its children get its parent.
func (s *Store) SnapshotDeleted(ctx context.Context, vm, id string) error {
	return s.snapshotChange(ctx, vm, id, "DELETE FROM snapshots WHERE id = ?", []any{id},
		func(r *VM, snapshot Snapshot) string {
			if r.SnapshotID == id {
				r.SnapshotID = snapshot.Parent
			}
			if !snapshot.Ready {
				return ""
			}
			return "snapshot " + snapshot.Name + " deleted"
		})
}

func (s *Store) snapshotChange(
	ctx context.Context, vm, id, statement string, args []any, f func(r *VM, snapshot Snapshot) string,
) error {
	ctx = caller.ByItself(ctx)
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		var snapshot Snapshot
		if err := tx.Get(ctx, &snapshot, "SELECT * FROM snapshots WHERE id = ? AND vm_id = ?", id, vm); err != nil {
			return db.NotFound(err, "there is no such snapshot")
		}
		if statement != "" {
			if _, err := tx.Exec(ctx, statement, args...); err != nil {
				return err
			}
		}
		var gone int
		if err := tx.Get(ctx, &gone, "SELECT COUNT(*) FROM snapshots WHERE id = ?", id); err != nil {
			return err
		}
		if gone == 0 {
			if _, err := tx.Exec(ctx, "UPDATE snapshots SET parent_id = ? WHERE parent_id = ?", snapshot.Parent, id); err != nil {
				return err
			}
		}
		_, err := s.change(ctx, tx, vm, func(r *VM) (string, string, error) {
			return EventSnapshot, f(r, snapshot), nil
		})
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return nil // the VM or the snapshot is gone
	}
	return err
}
