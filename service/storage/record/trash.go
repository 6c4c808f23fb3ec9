package record

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Discarded is a volume in the trash. Its quota still counts it.
type Discarded struct {
	Volume
	Pool string `db:"pool"` // name
}

// TrashFilter selects volumes in the trash. Empty fields select all.
type TrashFilter struct{ Tenant, Cluster string }

// stored selects the rows of volumes that take room in their storage systems: those that there are, and those in the
// trash.
const stored = "(deleted_at IS NULL OR purge_at IS NOT NULL)"

const (
	selectDiscarded = "SELECT v.*, p.name AS pool FROM volumes v JOIN pools p ON p.id = v.pool_id"
	selectTrash     = selectDiscarded + " WHERE v.purge_at IS NOT NULL"
)

// Key is the place of a volume in the list of the trash: when it was deleted, and its id.
func (d Discarded) Key() string { return fmt.Sprintf("%d/%s", d.DeletedAt.UnixNano(), d.ID) }

// Trash lists volumes in the trash in the caller's scope, those first that were deleted last. before is the key of the
// last one that was listed.
func (s *Store) Trash(ctx context.Context, f TrashFilter, before string, limit int) (all []Discarded, err error) {
	scope := caller.From(ctx).Scope().And("purge_at IS NOT NULL AND deleted_at IS NOT NULL")
	if f.Tenant != "" {
		scope = scope.And("tenant = ?", f.Tenant)
	}
	if f.Cluster != "" {
		scope = scope.And("cluster_id = ?", f.Cluster)
	}
	if before != "" {
		var nanos int64
		var id string
		if _, err := fmt.Sscanf(before, "%d/%s", &nanos, &id); err != nil {
			return nil, fault.InvalidField("cursor", "is not one of this list")
		}
		at := db.At(time.Unix(0, nanos))
		scope = scope.And("(deleted_at < ? OR deleted_at = ? AND id < ?)", at, at, id)
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, selectTrash+" AND v.id IN (SELECT id FROM volumes WHERE "+condition+
		") ORDER BY v.deleted_at DESC, v.id DESC LIMIT ?", append(args, limit)...)
}

// AnyDiscarded returns a volume in the caller's scope with the name of its pool, wherever it is by now.
func (s *Store) AnyDiscarded(ctx context.Context, id string) (Discarded, error) {
	return discarded(ctx, s.db, selectDiscarded+" WHERE v.id = ?", id)
}

// InTrash returns a volume in the trash, or one that is on its way out of it, in the caller's scope.
func (s *Store) InTrash(ctx context.Context, id string) (Discarded, error) {
	return inTrash(ctx, s.db, id, "")
}

func inTrash(ctx context.Context, q db.Querier, id, lock string) (Discarded, error) {
	return discarded(ctx, q, selectTrash+" AND v.id = ?"+lock, id)
}

func discarded(ctx context.Context, q db.Querier, query, id string) (d Discarded, err error) {
	err = q.Get(ctx, &d, query, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(d.Tenant) {
		return Discarded{}, fault.New(fault.NotFound, "the trash has no such volume")
	}
	return d, err
}

// DueTrash lists volumes whose time in the trash is over. One that could not be removed is due again after a while.
func (s *Store) DueTrash(ctx context.Context, retry time.Duration) (all []Discarded, err error) {
	now := s.now()
	return all, s.db.Select(ctx, &all, selectTrash+` AND v.purge_at <= ? AND v.state = ?
		AND (v.last_error = '' OR v.updated_at <= ?) ORDER BY v.purge_at LIMIT 100`,
		db.At(now), state.Trashed, db.At(now.Add(-retry)))
}

// Purge stores that a volume in the trash is removed for ever, and begins the job.
func (s *Store) Purge(ctx context.Context, id string, begin Begin) (d Discarded, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if d, err = inTrash(ctx, tx, id, lockOf(tx)); err != nil {
			return err
		}
		j, err = s.beginTrash(ctx, tx, &d, JobPurge, state.Purge, begin)
		return err
	})
	return d, j, err
}

// Undelete stores that a volume comes back out of the trash, and begins the job. name is what it is called then; empty:
// what it was called before. From now on it has that name, and the list of the trash lacks it unless the job fails.
func (s *Store) Undelete(ctx context.Context, id, name string, begin Begin) (d Discarded, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if d, err = inTrash(ctx, tx, id, lockOf(tx)); err != nil {
			return err
		}
		if name != "" {
			d.Name = name
		}
		if err := s.freeName(ctx, tx, &d.Volume); err != nil {
			return err
		}
		j, err = s.beginTrash(ctx, tx, &d, JobUndelete, state.Undelete, begin)
		return err
	})
	if db.IsUnique(err) {
		err = errNameTaken(d.Name)
	}
	return d, j, err
}

func errNameTaken(name string) error {
	return fault.New(fault.Conflict, "there is a volume named %s already; give this one another name", name).
		WithField("name")
}

// lockOf locks only the row of the volume, not that of its pool.
func lockOf(tx *db.Tx) string {
	if lock := tx.ForUpdate(); lock != "" {
		return lock + " OF v"
	}
	return ""
}

func (s *Store) beginTrash(
	ctx context.Context, tx *db.Tx, d *Discarded, kind string, action state.Action, begin Begin,
) (j Job, err error) {
	place, err := placeOf(ctx, tx, &d.Volume)
	if err != nil {
		return j, err
	}
	if place.Backend.Mode == ReadOnly { // not if it is cordoned: what is in the trash is not new
		if err := place.Backend.Writable(); err != nil {
			return j, err
		}
	}
	if d.State, err = d.State.Begin(action); err != nil {
		return j, err
	}
	a := VolumeArgs{ID: d.ID, Before: state.Trashed, DeletedAt: d.DeletedAt}
	if d.LastError = ""; action == state.Undelete {
		d.DeletedAt = db.Time{}
		d.belongs(d.Owner.V)
		if _, err := tx.Exec(ctx, "UPDATE volumes SET name = ?, search = ? WHERE id = ?", d.Name, d.Search, d.ID); err != nil {
			return j, err
		}
	}
	if err := s.save(ctx, tx, &d.Volume); err != nil {
		return j, err
	}
	j = newJob(kind, d.Tenant, TypeTrash, d.ID)
	if err := begin(ctx, tx, &j, a); err != nil {
		return j, err
	}
	return j, s.note(ctx, tx, audit.Entry{Action: kind, Target: d.ID, Tenant: d.Tenant, Message: d.Name})
}

// volumeName matches names of volumes, which are those of RFC 1123. The contract has the same rule for new ones.
var volumeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// freeName checks that a volume that comes back can have its name.
func (s *Store) freeName(ctx context.Context, tx *db.Tx, v *Volume) error {
	if v.Named {
		named := *v
		named.CreatedAt = db.At(s.now())
		return freeImageName(ctx, tx, &named)
	}
	if !volumeName.MatchString(v.Name) {
		return fault.InvalidField("name", "not a valid name of a volume: use lower-case letters, digits, hyphens and dots")
	}
	var taken int64
	err := tx.Get(ctx, &taken, `SELECT COUNT(*) FROM volumes WHERE tenant = ? AND name = ? AND deleted_at IS NULL
		AND NOT foreign_made AND NOT named`, v.Tenant, v.Name)
	if err == nil && taken > 0 {
		err = errNameTaken(v.Name)
	}
	return err
}

// EndTrash stores how a job about a volume in the trash ended: what the storage system says of the volume that came
// back, or why the job failed.
func (s *Store) EndTrash(
	ctx context.Context, a VolumeArgs, action state.Action, seen *driver.Volume, failed error,
) error {
	return s.update(ctx, func(tx *db.Tx) error {
		d, err := inTrash(ctx, tx, a.ID, lockOf(tx))
		if fault.Is(err, fault.NotFound) || err == nil && d.State.AtRest() {
			return nil // another run of the job has stored its end
		}
		if err != nil {
			return err
		}
		v := &d.Volume
		v.State, v.LastError = v.State.End(action, a.Before, failed == nil), ""
		if failed == nil {
			v.PurgeAt = db.Time{}
		} else {
			v.LastError, v.DeletedAt = fault.From(failed).Message, a.DeletedAt
		}
		if v.DeletedAt.IsZero() {
			v.DeletedBy = ""
		}
		if seen != nil {
			v.observe(seen, db.At(s.now()))
		}
		return s.save(ctx, tx, v)
	})
}
