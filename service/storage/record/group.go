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

// Group is volumes of which snapshots are taken at the same moment. They are in pools for images of one cluster.
type Group struct {
	ID        string  `db:"id"`
	Tenant    string  `db:"tenant"`
	Name      string  `db:"name"`
	ClusterID string  `db:"cluster_id"`
	PoolID    string  `db:"pool_id"`
	CreatedAt db.Time `db:"created_at"`

	Volumes []string `db:"-"` // ids
}

// GroupSnapshot is a group as it was.
type GroupSnapshot struct {
	ID        string         `db:"id"`
	GroupID   string         `db:"group_id"`
	Tenant    string         `db:"tenant"`
	Name      string         `db:"name"`
	State     state.Snapshot `db:"state"`
	Members   int64          `db:"members"`
	LastError string         `db:"last_error"`
	CreatedAt db.Time        `db:"created_at"`

	ScheduleID string `db:"schedule_id"` // that had it made; empty: none
}

var (
	errNoGroup         = fault.New(fault.NotFound, "there is no such group")
	errNoGroupSnapshot = fault.New(fault.NotFound, "the group has no such snapshot")
)

// GroupFilter selects groups. Empty fields select all.
type GroupFilter struct {
	Tenant, Cluster string
	Before          string // only groups before this id
}

// Groups lists groups in the caller's scope, newest first.
func (s *Store) Groups(ctx context.Context, f GroupFilter, limit int) (all []Group, err error) {
	scope := caller.From(ctx).Scope()
	for _, c := range []struct{ condition, value string }{
		{"tenant = ?", f.Tenant}, {"cluster_id = ?", f.Cluster}, {"id < ?", f.Before},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	err = s.db.Select(ctx, &all, "SELECT * FROM volume_groups WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, limit)...)
	for i := 0; i < len(all) && err == nil; i++ {
		err = readMembers(ctx, s.db, &all[i])
	}
	return all, err
}

func readMembers(ctx context.Context, q db.Querier, g *Group) error {
	return q.Select(ctx, &g.Volumes, "SELECT volume_id FROM volume_group_members WHERE group_id = ? ORDER BY position", g.ID)
}

// Group returns a group in the caller's scope.
func (s *Store) Group(ctx context.Context, id string) (Group, error) {
	return groupIn(ctx, s.db, id, "")
}

func groupIn(ctx context.Context, q db.Querier, id, lock string) (g Group, err error) {
	err = q.Get(ctx, &g, "SELECT * FROM volume_groups WHERE id = ?"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(g.Tenant) {
		return Group{}, errNoGroup
	}
	if err != nil {
		return g, err
	}
	return g, readMembers(ctx, q, &g)
}

// CreateGroup stores a group of volumes.
func (s *Store) CreateGroup(ctx context.Context, name string, volumes []string) (g Group, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		g = Group{ID: NewID(), Name: name, CreatedAt: db.At(s.now()), Volumes: volumes}
		for i, id := range volumes {
			v, err := volumeIn(ctx, tx, id, tx.ForUpdate())
			if fault.Is(err, fault.NotFound) {
				return fault.InvalidField("volume_ids", "there is no volume %s", id)
			}
			if err != nil {
				return err
			}
			if err := g.admit(ctx, tx, &v, i == 0); err != nil {
				return err
			}
		}
		if err := s.admit(ctx, tx, "volume_ids", g.Tenant, Use{}); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "volume_groups", &g); err != nil {
			return err
		}
		for i, id := range volumes {
			if _, err := tx.Exec(ctx, "INSERT INTO volume_group_members (group_id, volume_id, position) VALUES (?, ?, ?)",
				g.ID, id, i); err != nil {
				return err
			}
		}
		return s.note(ctx, tx, audit.Entry{
			Action: "group.create", Target: g.ID, Tenant: g.Tenant, Message: fmt.Sprintf("%s, %d volumes", name, len(volumes)),
		})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a group named %s already", name).WithField("name")
	}
	return g, err
}

// admit takes a volume into a group that is made. The first one decides the tenant and the cluster.
func (g *Group) admit(ctx context.Context, tx *db.Tx, v *Volume, first bool) error {
	place, err := placeOf(ctx, tx, v)
	if err != nil {
		return err
	}
	if first {
		g.Tenant, g.ClusterID, g.PoolID = v.Tenant, v.ClusterID, v.PoolID
	}
	switch {
	case v.Foreign:
		return errForeign
	case place.Pool.Kind != driver.PoolRBD || v.Kind != driver.Block:
		return fault.InvalidField("volume_ids", "the backend %s has no groups", place.Backend.Name).WithCode("unsupported")
	case place.Backend.Mode == ReadOnly:
		return place.Backend.Writable()
	case v.Tenant != g.Tenant:
		return fault.InvalidField("volume_ids", "the volumes belong to several tenants")
	case v.ClusterID != g.ClusterID:
		return fault.InvalidField("volume_ids", "the volumes are in several clusters")
	}
	var other string
	err = tx.Get(ctx, &other, `SELECT g.name FROM volume_groups g JOIN volume_group_members m ON m.group_id = g.id
		WHERE m.volume_id = ?`, v.ID)
	if err == nil {
		return fault.New(fault.Conflict, "the volume %s is in the group %s", v.Name, other).WithField("volume_ids")
	}
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	return err
}

// ungrouped refuses what must not be done to a volume that is in a group.
func ungrouped(ctx context.Context, tx *db.Tx, v *Volume) error {
	var name string
	err := tx.Get(ctx, &name, `SELECT g.name FROM volume_groups g JOIN volume_group_members m ON m.group_id = g.id
		WHERE m.volume_id = ?`, v.ID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = fault.New(fault.Conflict, "the volume is in the group %s; dissolve that first", name)
	}
	return err
}

// DeleteGroup removes a group that has no snapshots. dissolve has the storage system do so, before that is stored.
func (s *Store) DeleteGroup(ctx context.Context, id string, dissolve func(*Group) error) (g Group, err error) {
	if g, err = s.unused(ctx, s.db, id, ""); err != nil {
		return g, err
	}
	if err := dissolve(&g); err != nil {
		return g, err
	}
	return g, s.update(ctx, func(tx *db.Tx) error {
		if g, err = s.unused(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		for _, statement := range []string{
			"DELETE FROM schedules WHERE group_id = ?", "DELETE FROM volume_group_members WHERE group_id = ?",
			"DELETE FROM volume_groups WHERE id = ?",
		} {
			if _, err := tx.Exec(ctx, statement, id); err != nil {
				return err
			}
		}
		return s.note(ctx, tx, audit.Entry{Action: "group.delete", Target: id, Tenant: g.Tenant, Message: g.Name})
	})
}

// unused returns a group that has no snapshots.
func (s *Store) unused(ctx context.Context, q db.Querier, id, lock string) (Group, error) {
	g, err := groupIn(ctx, q, id, lock)
	if err != nil {
		return g, err
	}
	var n int64
	if err := q.Get(ctx, &n, "SELECT COUNT(*) FROM group_snapshots WHERE group_id = ?", id); err != nil {
		return g, err
	}
	if n > 0 {
		return g, fault.New(fault.Conflict, "the group has %d snapshots; delete them first", n)
	}
	return g, nil
}

// GroupSnapshots lists the snapshots of a group in the caller's scope, newest first, before an id.
func (s *Store) GroupSnapshots(
	ctx context.Context, group, before string, limit int,
) (all []GroupSnapshot, err error) {
	if _, err := s.Group(ctx, group); err != nil {
		return nil, err
	}
	return all, s.db.Select(ctx, &all, `SELECT * FROM group_snapshots WHERE group_id = ? AND (? = '' OR id < ?)
		ORDER BY id DESC LIMIT ?`, group, before, before, limit)
}

// GroupSnapshot returns a snapshot of a group in the caller's scope, by its id or its name.
func (s *Store) GroupSnapshot(ctx context.Context, group, named string) (GroupSnapshot, error) {
	return groupSnapshotIn(ctx, s.db, group, named, "")
}

func groupSnapshotIn(ctx context.Context, q db.Querier, group, named, lock string) (sn GroupSnapshot, err error) {
	err = q.Get(ctx, &sn, "SELECT * FROM group_snapshots WHERE group_id = ? AND (id = ? OR name = ?)"+lock, group, named, named)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(sn.Tenant) {
		return GroupSnapshot{}, errNoGroupSnapshot
	}
	return sn, err
}

// AnyGroupSnapshot returns a snapshot by its id, or one with only this id if it is gone.
func (s *Store) AnyGroupSnapshot(ctx context.Context, id string) (GroupSnapshot, error) {
	var all []GroupSnapshot
	err := s.db.Select(ctx, &all, "SELECT * FROM group_snapshots WHERE id = ?", id)
	if err != nil || len(all) == 0 {
		return GroupSnapshot{ID: id}, err
	}
	return all[0], nil
}

// GroupArgs are the arguments of a job about a snapshot of a group.
type GroupArgs struct {
	Group, Snapshot string         // ids
	Before          state.Snapshot `json:",omitempty"`
}

// SnapshotGroup stores a snapshot that is to be taken of a group, and begins the job. schedule is the id of the one
// that has it made; empty: none.
func (s *Store) SnapshotGroup(
	ctx context.Context, group, name, schedule string, begin Begin,
) (sn GroupSnapshot, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		g, err := groupIn(ctx, tx, group, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := untaken(ctx, tx, &g); err != nil {
			return err
		}
		for _, id := range g.Volumes {
			v, err := volumeIn(ctx, tx, id, "")
			if err == nil {
				err = v.State.Readable()
			}
			if err != nil {
				return err
			}
		}
		if err := s.admit(ctx, tx, "name", g.Tenant, Use{Snapshots: int64(len(g.Volumes))}); err != nil {
			return err
		}
		sn = GroupSnapshot{
			ID: NewID(), GroupID: g.ID, Tenant: g.Tenant, Name: name, State: state.SnapshotCreating,
			Members: int64(len(g.Volumes)), CreatedAt: db.At(s.now()), ScheduleID: schedule,
		}
		if err := tx.Insert(ctx, "group_snapshots", &sn); err != nil {
			return err
		}
		j = newJob(JobSnapshotGroup, g.Tenant, TypeGroupSnapshot, sn.ID)
		if err := begin(ctx, tx, &j, GroupArgs{Group: g.ID, Snapshot: sn.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobSnapshotGroup, Target: sn.ID, Tenant: g.Tenant, Message: name + " of " + g.Name,
		})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "the group has a snapshot named %s already", name).WithField("name")
	}
	return sn, j, err
}

// untaken returns a fault of kind Conflict if a snapshot of the group is being taken. Two at once would wait for each
// other without end: librbd takes the locks of all images, one after another, and lets nobody else have those it has.
func untaken(ctx context.Context, tx *db.Tx, g *Group) error {
	var others []GroupSnapshot
	err := tx.Select(ctx, &others, "SELECT * FROM group_snapshots WHERE group_id = ? AND state = ? LIMIT 1", g.ID,
		state.SnapshotCreating)
	if err == nil && len(others) > 0 {
		err = fault.New(fault.Conflict, "the snapshot %s of the group is being taken; wait for its end", others[0].Name)
	}
	return err
}

// EndGroupSnapshot stores how the taking of a snapshot ended.
func (s *Store) EndGroupSnapshot(ctx context.Context, a GroupArgs, failed error) error {
	next, message := state.SnapshotReady, ""
	if failed != nil {
		next, message = state.SnapshotFailed, fault.From(failed).Message
	}
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE group_snapshots SET state = ?, last_error = ? WHERE id = ? AND state = ?",
			next, message, a.Snapshot, state.SnapshotCreating)
		return err
	})
}

// DeleteGroupSnapshot stores that a snapshot of a group is removed, and begins the job.
func (s *Store) DeleteGroupSnapshot(
	ctx context.Context, group, named string, begin Begin,
) (sn GroupSnapshot, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if sn, err = groupSnapshotIn(ctx, tx, group, named, tx.ForUpdate()); err != nil {
			return err
		}
		switch sn.State {
		case state.SnapshotDeleting:
			j, err = newest(ctx, tx, JobUnsnapshotGroup, sn.ID)
			return err
		case state.SnapshotCreating:
			return fault.New(fault.Conflict, "the snapshot is being taken; wait until its job has ended, or cancel that")
		}
		a := GroupArgs{Group: sn.GroupID, Snapshot: sn.ID, Before: sn.State}
		sn.State = state.SnapshotDeleting
		if _, err := tx.Exec(ctx, "UPDATE group_snapshots SET state = ?, last_error = '' WHERE id = ?", sn.State, sn.ID); err != nil {
			return err
		}
		j = newJob(JobUnsnapshotGroup, sn.Tenant, TypeGroupSnapshot, sn.ID)
		if err := begin(ctx, tx, &j, a); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: JobUnsnapshotGroup, Target: sn.ID, Tenant: sn.Tenant, Message: sn.Name})
	})
	return sn, j, err
}

// EndGroupSnapshotDeletion stores how the removal of a snapshot ended.
func (s *Store) EndGroupSnapshotDeletion(ctx context.Context, a GroupArgs, failed error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if failed == nil {
			_, err := tx.Exec(ctx, "DELETE FROM group_snapshots WHERE id = ?", a.Snapshot)
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE group_snapshots SET state = ?, last_error = ? WHERE id = ? AND state = ?",
			a.Before, fault.From(failed).Message, a.Snapshot, state.SnapshotDeleting)
		return err
	})
}

// RevertGroup stores that all volumes of a group are put back to a snapshot, and begins the job.
func (s *Store) RevertGroup(
	ctx context.Context, group, named string, begin Begin,
) (sn GroupSnapshot, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		g, err := groupIn(ctx, tx, group, tx.ForUpdate())
		if err != nil {
			return err
		}
		if sn, err = groupSnapshotIn(ctx, tx, g.ID, named, tx.ForUpdate()); err != nil {
			return err
		}
		if err := sn.State.Usable(); err != nil {
			return err
		}
		for _, id := range g.Volumes {
			v, err := volumeIn(ctx, tx, id, tx.ForUpdate())
			if err != nil {
				return err
			}
			if v.State, err = v.State.Begin(state.Restore); err != nil {
				return fault.New(fault.Conflict, "%s: %s", v.Name, fault.From(err).Message)
			}
			v.LastError = ""
			if err := s.save(ctx, tx, &v); err != nil {
				return err
			}
		}
		j = newJob(JobRevertGroup, g.Tenant, TypeGroupSnapshot, sn.ID)
		if err := begin(ctx, tx, &j, GroupArgs{Group: g.ID, Snapshot: sn.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobRevertGroup, Target: sn.ID, Tenant: g.Tenant, Message: g.Name + " to the snapshot " + sn.Name,
		})
	})
	return sn, j, err
}

// LostGroupSnapshots lists snapshots of groups that wait for the end of a job that there is not any more.
func (s *Store) LostGroupSnapshots(ctx context.Context) (all []GroupSnapshot, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM group_snapshots WHERE state IN (?, ?) AND "+
		fmt.Sprintf(lost, "group_snapshots")+" ORDER BY id LIMIT 100", state.SnapshotCreating, state.SnapshotDeleting)
}
