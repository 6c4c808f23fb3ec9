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

// reachSnapshot returns a snapshot and the driver that makes it. The snapshot may be gone: then ok is false.
func (m *Manager) reachSnapshot(
	ctx context.Context, id string,
) (sn record.Snapshot, v record.Volume, d driver.Snapshots, of driver.Name, err error) {
	if sn, err = m.store.Snapshot(ctx, id); err != nil {
		return sn, v, d, of, err
	}
	if v, err = m.store.SourceOf(ctx, &sn); err != nil {
		return sn, v, d, of, err
	}
	d, of, err = reach[driver.Snapshots](ctx, m, &v)
	return sn, v, d, of, err
}

func (m *Manager) snapshot(ctx context.Context, a record.SnapshotArgs, progress func(float64)) error {
	sn, v, d, of, err := m.reachSnapshot(ctx, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && sn.State != state.SnapshotCreating {
		return nil // an earlier run has stored its end
	}
	name := sn.In(of.Pool, &v)
	var seen driver.Snapshot
	if err == nil {
		_, err = d.CreateSnapshot(ctx, of, name, func(done float64) { progress(done * record.Verifying) })
		if err == nil {
			progress(record.Verifying)
			seen, err = d.Snapshot(ctx, name)
		}
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	after, cancel := ending(ctx)
	defer cancel()
	err = reason(ctx, err)
	return errors.Join(err, m.store.EndSnapshot(after, a, &seen, err))
}

func (m *Manager) deleteSnapshot(ctx context.Context, a record.SnapshotArgs, progress func(float64)) error {
	sn, v, d, of, err := m.reachSnapshot(ctx, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && sn.State != state.SnapshotDeleting {
		return nil
	}
	name := sn.In(of.Pool, &v)
	if err == nil {
		err = d.DeleteSnapshot(ctx, name)
	}
	if err == nil {
		progress(record.Verifying)
		if _, again := d.Snapshot(ctx, name); again == nil {
			err = fault.New(fault.Unavailable, "the storage still has the snapshot")
		} else if !fault.Is(again, fault.NotFound) {
			err = again
		}
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	err = reason(ctx, err)
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, m.store.EndSnapshotDeletion(after, a, err))
}

func (m *Manager) snapshotCancelled(ctx context.Context, a record.SnapshotArgs) error {
	return m.store.EndSnapshot(ctx, a, nil, errCancelled)
}

func (m *Manager) deleteSnapshotCancelled(ctx context.Context, a record.SnapshotArgs) error {
	return m.store.EndSnapshotDeletion(ctx, a, errCancelled)
}

// Sweep ends what jobs that were lost, for example because they were interrupted too often, have left unfinished.
func (m *Manager) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	lost := fault.New(fault.Unavailable, "its job was interrupted too often")
	volumes, err := m.store.LostVolumes(ctx)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if !v.PurgeAt.IsZero() {
			if err := m.endLostTrash(ctx, &v, lost); err != nil {
				return err
			}
			continue
		}
		action := map[state.Volume]state.Action{
			state.Creating: state.Create, state.Expanding: state.Expand, state.Deleting: state.Delete,
			state.Restoring: state.Restore, state.Maintenance: state.Change,
		}[v.State]
		a := record.VolumeArgs{ID: v.ID, Before: state.Available}
		if err := m.store.EndVolume(ctx, a, action, nil, lost); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	snapshots, err := m.store.LostSnapshots(ctx)
	for i := 0; i < len(snapshots) && err == nil; i++ {
		a := record.SnapshotArgs{ID: snapshots[i].ID, Before: state.SnapshotFailed}
		if snapshots[i].State == state.SnapshotDeleting {
			err = m.store.EndSnapshotDeletion(ctx, a, lost)
		} else {
			err = m.store.EndSnapshot(ctx, a, nil, lost)
		}
	}
	return errors.Join(err, m.endLostGroups(ctx))
}
