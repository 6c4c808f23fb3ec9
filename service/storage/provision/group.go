package provision

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// registerGroups registers the jobs of groups.
func (m *Manager) registerGroups() {
	job.Register(m.jobs, record.JobSnapshotGroup, job.Kind[record.GroupArgs]{
		Run: m.snapshotGroup, Cancelled: func(ctx context.Context, a record.GroupArgs) error {
			return m.store.EndGroupSnapshot(ctx, a, errCancelled)
		},
	})
	job.Register(m.jobs, record.JobUnsnapshotGroup, job.Kind[record.GroupArgs]{
		Run: m.unsnapshotGroup, Cancelled: func(ctx context.Context, a record.GroupArgs) error {
			return m.store.EndGroupSnapshotDeletion(ctx, a, errCancelled)
		},
	})
	job.Register(m.jobs, record.JobRevertGroup, job.Kind[record.GroupArgs]{
		Run: m.revertGroup, Cancelled: func(ctx context.Context, a record.GroupArgs) error {
			return m.endRevert(ctx, a, errCancelled)
		},
	})
}

// SnapshotGroup begins to take a snapshot of all volumes of a group at the same moment.
// schedule is the id of the one that has it taken; empty: none.
func (m *Manager) SnapshotGroup(
	ctx context.Context, group, name, schedule string,
) (record.GroupSnapshot, record.Job, error) {
	return m.store.SnapshotGroup(ctx, group, name, schedule, m.jobs.Begin)
}

// DeleteGroupSnapshot begins to remove a snapshot of a group.
func (m *Manager) DeleteGroupSnapshot(
	ctx context.Context, group, named string,
) (record.GroupSnapshot, record.Job, error) {
	return m.store.DeleteGroupSnapshot(ctx, group, named, m.jobs.Begin)
}

// RevertGroup begins to put all volumes of a group back to a snapshot.
func (m *Manager) RevertGroup(ctx context.Context, group, named string) (record.GroupSnapshot, record.Job, error) {
	return m.store.RevertGroup(ctx, group, named, m.jobs.Begin)
}

// DeleteGroup dissolves a group that has no snapshots.
func (m *Manager) DeleteGroup(ctx context.Context, id string) (record.Group, error) {
	return m.store.DeleteGroup(ctx, id, func(g *record.Group) error {
		d, name, _, err := m.reachGroup(caller.ByItself(ctx), g)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
		defer cancel()
		return d.RemoveGroup(bounded, name)
	})
}

// reachGroup returns the part of the driver that groups need, and the names that the storage system has for a group and
// its volumes.
func (m *Manager) reachGroup(
	ctx context.Context, g *record.Group,
) (d driver.Groups, name driver.Name, volumes []driver.Name, err error) {
	for _, id := range g.Volumes {
		v, err := m.store.Volume(ctx, id)
		if err != nil {
			return nil, name, nil, err
		}
		at, err := m.store.PlaceOf(ctx, &v)
		if err != nil {
			return nil, name, nil, err
		}
		volumes = append(volumes, v.In(at.Pool.Name))
	}
	of := record.Volume{ClusterID: g.ClusterID, PoolID: g.PoolID, Native: driver.GroupName(g.ID)}
	d, name, err = reach[driver.Groups](ctx, m, &of)
	return d, name, volumes, err
}

// onGroup does the work of a job on a group, with the native name of the snapshot. A job that is repeated after its end
// has nothing left to do.
func (m *Manager) onGroup(
	ctx context.Context, a record.GroupArgs, during state.Snapshot,
	do func(ctx context.Context, d driver.Groups, group driver.Name, volumes []driver.Name, snapshot string) error,
	end func(ctx context.Context, a record.GroupArgs, err error) error,
) error {
	sn, err := m.store.GroupSnapshot(ctx, a.Group, a.Snapshot)
	if fault.Is(err, fault.NotFound) || err == nil && sn.State != during {
		return nil
	}
	if err == nil {
		var g record.Group
		if g, err = m.store.Group(ctx, a.Group); err == nil {
			var d driver.Groups
			var name driver.Name
			var volumes []driver.Name
			if d, name, volumes, err = m.reachGroup(ctx, &g); err == nil {
				err = do(ctx, d, name, volumes, driver.SnapshotName(a.Snapshot))
			}
		}
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	err = reason(ctx, err)
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, end(after, a, err))
}

func (m *Manager) snapshotGroup(ctx context.Context, a record.GroupArgs, progress func(float64)) error {
	return m.onGroup(ctx, a, state.SnapshotCreating, func(
		ctx context.Context, d driver.Groups, group driver.Name, volumes []driver.Name, snapshot string,
	) error {
		if err := d.SnapshotGroup(ctx, group, volumes, snapshot); err != nil {
			return err
		}
		progress(record.Verifying)
		has, err := d.HasGroupSnapshot(ctx, group, snapshot)
		if err == nil && !has {
			err = fault.New(fault.Unavailable, "the storage has not kept the snapshot")
		}
		return err
	}, m.store.EndGroupSnapshot)
}

func (m *Manager) unsnapshotGroup(ctx context.Context, a record.GroupArgs, progress func(float64)) error {
	return m.onGroup(ctx, a, state.SnapshotDeleting, func(
		ctx context.Context, d driver.Groups, group driver.Name, _ []driver.Name, snapshot string,
	) error {
		if err := d.DeleteGroupSnapshot(ctx, group, snapshot); err != nil {
			return err
		}
		progress(record.Verifying)
		has, err := d.HasGroupSnapshot(ctx, group, snapshot)
		if err == nil && has {
			err = fault.New(fault.Unavailable, "the storage still has the snapshot")
		}
		return err
	}, m.store.EndGroupSnapshotDeletion)
}

func (m *Manager) revertGroup(ctx context.Context, a record.GroupArgs, progress func(float64)) error {
	return m.onGroup(ctx, a, state.SnapshotReady, func(
		ctx context.Context, d driver.Groups, group driver.Name, volumes []driver.Name, snapshot string,
	) error {
		return d.RevertGroup(ctx, group, volumes, snapshot, func(done float64) { progress(done * record.Verifying) })
	}, m.endRevert)
}

// endRevert stores how the volumes of a group are after they were put back, or why they are neither.
func (m *Manager) endRevert(ctx context.Context, a record.GroupArgs, failed error) error {
	g, err := m.store.Group(ctx, a.Group)
	if err != nil {
		return err
	}
	var problems []error
	for _, id := range g.Volumes {
		v, err := m.store.Volume(ctx, id)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		var seen *driver.Volume
		if now, err := m.see(ctx, &v); err == nil {
			seen = &now
		}
		args := record.VolumeArgs{ID: id, Before: state.Available}
		problems = append(problems, m.store.EndVolume(ctx, args, state.Restore, seen, failed))
	}
	return errors.Join(problems...)
}

// endLostGroups ends what lost jobs have left of snapshots of groups.
func (m *Manager) endLostGroups(ctx context.Context) error {
	cause := fault.New(fault.Unavailable, "its job was interrupted too often")
	all, err := m.store.LostGroupSnapshots(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		a := record.GroupArgs{Group: all[i].GroupID, Snapshot: all[i].ID, Before: state.SnapshotFailed}
		if all[i].State == state.SnapshotDeleting {
			err = m.store.EndGroupSnapshotDeletion(ctx, a, cause)
		} else {
			err = m.store.EndGroupSnapshot(ctx, a, cause)
		}
	}
	return err
}
