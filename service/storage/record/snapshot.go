package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Snapshot is a volume as it was.
type Snapshot struct {
	ID          string             `db:"id"`
	VolumeID    string             `db:"volume_id"`
	Tenant      string             `db:"tenant"`
	Name        string             `db:"name"`
	Native      string             `db:"native"`
	State       state.Snapshot     `db:"state"`
	Size        int64              `db:"size_bytes"`
	Used        int64              `db:"used_bytes"`
	Consistency driver.Consistency `db:"consistency"`
	LastError   string             `db:"last_error"`
	CreatedAt   db.Time            `db:"created_at"`
	ReadyAt     db.Time            `db:"ready_at"`
	DeletedAt   db.Time            `db:"deleted_at"`
	ScheduleID  string             `db:"schedule_id"` // that had it made; empty: none

	Dependents int64 `db:"-"` // volumes that were made of it
}

// SnapshotFilter selects snapshots. Empty fields select all.
type SnapshotFilter struct {
	Tenant, Volume, State string
	Before                string // only snapshots before this id
}

var errNoSnapshot = fault.New(fault.NotFound, "there is no such snapshot")

// Snapshots lists snapshots in the caller's scope, newest first.
func (s *Store) Snapshots(ctx context.Context, f SnapshotFilter, limit int) (all []Snapshot, err error) {
	scope := caller.From(ctx).Scope().And("deleted_at IS NULL")
	for _, c := range []struct{ condition, value string }{
		{"tenant = ?", f.Tenant}, {"volume_id = ?", f.Volume}, {"state = ?", f.State}, {"id < ?", f.Before},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	err = s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, limit)...)
	for i := 0; i < len(all) && err == nil; i++ {
		err = countDependents(ctx, s.db, &all[i])
	}
	return all, err
}

func countDependents(ctx context.Context, q db.Querier, sn *Snapshot) error {
	return q.Get(ctx, &sn.Dependents, "SELECT COUNT(*) FROM volumes WHERE source_id = ? AND deleted_at IS NULL", sn.ID)
}

// Snapshot returns a snapshot in the caller's scope.
func (s *Store) Snapshot(ctx context.Context, id string) (Snapshot, error) {
	sn, err := snapshotIn(ctx, s.db, id, "")
	if err != nil {
		return sn, err
	}
	return sn, countDependents(ctx, s.db, &sn)
}

// AnySnapshot returns a snapshot in the caller's scope, also one that was deleted.
func (s *Store) AnySnapshot(ctx context.Context, id string) (sn Snapshot, err error) {
	err = db.NotFound(s.db.Get(ctx, &sn, "SELECT * FROM snapshots WHERE id = ?", id), "there is no such snapshot")
	if err == nil && !caller.From(ctx).Sees(sn.Tenant) {
		return Snapshot{}, errNoSnapshot
	}
	return sn, err
}

func snapshotIn(ctx context.Context, q db.Querier, id, lock string) (sn Snapshot, err error) {
	err = q.Get(ctx, &sn, "SELECT * FROM snapshots WHERE id = ? AND deleted_at IS NULL"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(sn.Tenant) {
		return Snapshot{}, errNoSnapshot
	}
	return sn, err
}

// In returns the name of a snapshot in its storage system. of is its volume.
func (sn *Snapshot) In(pool string, of *Volume) driver.Name {
	n := driver.Name{Pool: pool, Native: sn.Native}
	if of.Named {
		n.Chosen = sn.Name
	}
	return n
}

// Shown returns what users of the storage system know a snapshot by. of is its volume.
func (sn *Snapshot) Shown(of *Volume) string {
	if of.Named {
		return sn.Name
	}
	return sn.Native
}

// SourceOf returns the volume of a snapshot, also if it was deleted.
func (s *Store) SourceOf(ctx context.Context, sn *Snapshot) (Volume, error) {
	return sourceOf(ctx, s.db, sn)
}

func sourceOf(ctx context.Context, q db.Querier, sn *Snapshot) (v Volume, err error) {
	err = q.Get(ctx, &v, "SELECT * FROM volumes WHERE id = ?", sn.VolumeID)
	return v, err
}

// lost selects what is changed by a job that there is not any more.
const lost = `NOT EXISTS (SELECT 1 FROM operations o JOIN jobs j ON j.id = o.id WHERE o.resource_id = %s.id
	AND j.finished_at IS NULL)`

// LostSnapshots lists snapshots that wait for the end of a job that there is not any more.
func (s *Store) LostSnapshots(ctx context.Context) (all []Snapshot, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE deleted_at IS NULL AND state IN (?, ?) AND "+
		fmt.Sprintf(lost, "snapshots")+" ORDER BY id LIMIT 100", state.SnapshotCreating, state.SnapshotDeleting)
}

// aloneRestored is the condition that no job puts a volume back together with its group.
const aloneRestored = `NOT EXISTS (SELECT 1 FROM volume_group_members m JOIN group_snapshots gs ON gs.group_id = m.group_id
	JOIN operations o ON o.resource_id = gs.id JOIN jobs j ON j.id = o.id
	WHERE m.volume_id = volumes.id AND j.finished_at IS NULL)`

// LostVolumes lists volumes that wait for the end of a job that there is not any more.
func (s *Store) LostVolumes(ctx context.Context) (all []Volume, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM volumes WHERE "+stored+" AND state IN (?, ?, ?, ?, ?) AND "+
		fmt.Sprintf(lost, "volumes")+" AND "+aloneRestored+" ORDER BY id LIMIT 100",
		state.Creating, state.Expanding, state.Deleting, state.Restoring, state.Maintenance)
}

// SnapshotArgs are the arguments of a job that changes a snapshot.
type SnapshotArgs struct {
	ID     string
	Before state.Snapshot `json:",omitempty"`
}

// SnapshotRequest describes a snapshot to take.
type SnapshotRequest struct {
	Volume   string // id
	Kind     string // of the job: JobSnapshot or JobSnapshotImage
	Name     string
	Schedule string // id of the one that has it made; empty: none
}

// CreateSnapshot stores a snapshot that is to be taken of a volume, and begins the job.
func (s *Store) CreateSnapshot(
	ctx context.Context, req SnapshotRequest, begin Begin,
) (sn Snapshot, j Job, err error) {
	if req.Name == "." || req.Name == ".." {
		return sn, j, errDots
	}
	err = s.update(ctx, func(tx *db.Tx) error {
		v, err := volumeIn(ctx, tx, req.Volume, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := v.State.Readable(); err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		switch {
		case err != nil:
			return err
		case v.Foreign:
			return place.Backend.foreign()
		case place.Backend.Mode == ReadOnly:
			return place.Backend.Writable()
		case !place.Backend.Capabilities.V.Snapshots:
			return fault.New(fault.Invalid, "the backend %s has no snapshots", place.Backend.Name).WithCode("unsupported")
		}
		if err := writable(ctx, tx, &v); err != nil {
			return err
		}
		if err := s.admit(ctx, tx, "tenant_id", v.Tenant, Use{Snapshots: 1}); err != nil {
			return err
		}
		id := NewID()
		sn = Snapshot{
			ID: id, VolumeID: v.ID, Tenant: v.Tenant, Name: req.Name, Native: driver.SnapshotName(id),
			State: state.SnapshotCreating, Size: v.Size, Used: -1, CreatedAt: db.At(s.now()), ScheduleID: req.Schedule,
		}
		if err := tx.Insert(ctx, "snapshots", &sn); err != nil {
			return err
		}
		j = newJob(req.Kind, sn.Tenant, TypeSnapshot, sn.ID)
		if err := begin(ctx, tx, &j, SnapshotArgs{ID: sn.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: req.Kind, Target: sn.ID, Tenant: sn.Tenant, Message: fmt.Sprintf("%s of %s", req.Name, v.Name),
		})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "the volume has a snapshot named %s already", req.Name).WithField("name")
	}
	return sn, j, err
}

// DeleteSnapshot stores that a snapshot is removed, and begins the job, of the kind JobDeleteSnapshot or
// JobUnsnapshotImage. Unless it is forced, a snapshot of which there are volumes stays.
func (s *Store) DeleteSnapshot(
	ctx context.Context, id, kind string, force bool, begin Begin,
) (sn Snapshot, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if sn, err = snapshotIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		switch sn.State {
		case state.SnapshotDeleting:
			if j, err = newest(ctx, tx, JobDeleteSnapshot, sn.ID); err == nil && j.ID == "" {
				j, err = newest(ctx, tx, JobUnsnapshotImage, sn.ID)
			}
			return err
		case state.SnapshotCreating:
			return fault.New(fault.Conflict, "the snapshot is being taken; wait until its job has ended, or cancel that")
		}
		v, err := sourceOf(ctx, tx, &sn)
		if err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		if err != nil {
			return err
		}
		if place.Backend.Mode == ReadOnly {
			return place.Backend.Writable()
		}
		var derived []string
		if err := tx.Select(ctx, &derived,
			"SELECT name FROM volumes WHERE source_id = ? AND deleted_at IS NULL ORDER BY id LIMIT 4", id); err != nil {
			return err
		}
		if len(derived) > 0 && !force {
			return fault.New(fault.Conflict, "volumes were made of the snapshot, for example %s; delete them first, or force it: "+
				"they keep their content", derived[0])
		}
		before := sn.State
		if _, err := tx.Exec(ctx, "UPDATE snapshots SET state = ?, last_error = '' WHERE id = ?", state.SnapshotDeleting, id); err != nil {
			return err
		}
		sn.State = state.SnapshotDeleting
		j = newJob(kind, sn.Tenant, TypeSnapshot, sn.ID)
		if err := begin(ctx, tx, &j, SnapshotArgs{ID: sn.ID, Before: before}); err != nil {
			return err
		}
		message := sn.Name
		if len(derived) > 0 {
			message += ", forced"
		}
		return s.note(ctx, tx, audit.Entry{Action: kind, Target: sn.ID, Tenant: sn.Tenant, Message: message})
	})
	return sn, j, err
}

// EndSnapshot stores how the making of a snapshot ended: what the storage system says of it, or why it failed.
func (s *Store) EndSnapshot(ctx context.Context, a SnapshotArgs, seen *driver.Snapshot, failed error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		sn, err := snapshotIn(ctx, tx, a.ID, tx.ForUpdate())
		if err != nil || sn.State != state.SnapshotCreating {
			return err
		}
		if failed != nil {
			_, err = tx.Exec(ctx, "UPDATE snapshots SET state = ?, last_error = ? WHERE id = ?",
				state.SnapshotFailed, fault.From(failed).Message, a.ID)
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE snapshots SET state = ?, last_error = '', size_bytes = ?, used_bytes = ?, consistency = ?,
			ready_at = ? WHERE id = ?`, state.SnapshotReady, seen.Size, seen.Used, seen.Consistency, db.At(s.now()), a.ID)
		return err
	})
}

// EndSnapshotDeletion stores how the removal of a snapshot ended.
func (s *Store) EndSnapshotDeletion(ctx context.Context, a SnapshotArgs, failed error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if failed == nil {
			_, err := tx.Exec(ctx, "UPDATE snapshots SET deleted_at = ? WHERE id = ?", db.At(s.now()), a.ID)
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE snapshots SET state = ?, last_error = ? WHERE id = ? AND state = ?",
			a.Before, fault.From(failed).Message, a.ID, state.SnapshotDeleting)
		return err
	})
}

// CloneRequest describes a volume to make of a snapshot. What is empty is that of the snapshot's volume.
type CloneRequest struct {
	Name     string
	NameFrom string // if Name is empty: the name, with %s for that of the snapshot's volume
	Size     int64  // bytes; 0: that of the snapshot
	Kind     string // of the job: JobClone, JobRestore or JobCloneImage
	Named    bool   // Name is what the storage system shows
}

// Clone stores a volume that is to be made of a snapshot, and begins the job.
func (s *Store) Clone(
	ctx context.Context, snapshot string, req CloneRequest, begin Begin,
) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		sn, err := snapshotIn(ctx, tx, snapshot, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := sn.State.Usable(); err != nil {
			return err
		}
		of, err := sourceOf(ctx, tx, &sn)
		if err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &of)
		if err != nil {
			return err
		}
		if err := place.Backend.Writable(); err != nil {
			return err
		}
		if !place.Backend.Capabilities.V.Clone {
			return fault.New(fault.Invalid, "the backend %s cannot clone", place.Backend.Name).WithCode("unsupported")
		}
		size := max(req.Size, sn.Size)
		if req.Size != 0 && req.Size < sn.Size {
			return fault.InvalidField("size_bytes", "must be at least that of the snapshot, %d bytes", sn.Size)
		}
		if err := s.admit(ctx, tx, "tenant_id", of.Tenant, Use{Volumes: 1, Bytes: size}); err != nil {
			return err
		}
		name := req.Name
		if name == "" {
			name = fmt.Sprintf(req.NameFrom, of.Name)
		}
		id, now := NewID(), db.At(s.now())
		v = Volume{
			ID: id, Tenant: of.Tenant, Name: name, ClusterID: of.ClusterID, PoolID: of.PoolID, Native: driver.VolumeName(id),
			Kind: of.Kind, Policy: of.Policy, State: state.Creating, Health: driver.Unknown, Asked: size, Size: size, Used: -1,
			SourceID: sn.ID, Named: req.Named, CreatedAt: now, UpdatedAt: now,
		}
		v.belongs(of.Owner.V)
		if err := freeImageName(ctx, tx, &v); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "volumes", &v); err != nil {
			return err
		}
		j = newJob(req.Kind, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, VolumeArgs{ID: v.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: req.Kind, Target: v.ID, Tenant: v.Tenant, Message: fmt.Sprintf("%s of the snapshot %s", v.Name, sn.Name),
		})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a volume of this name already").WithField("name")
	}
	return v, j, err
}
