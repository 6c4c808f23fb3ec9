package provision

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// registerImages registers the jobs of images.
func (m *Manager) registerImages() {
	create := job.Kind[record.VolumeArgs]{Run: m.create, Cancelled: m.createCancelled}
	clone := job.Kind[record.VolumeArgs]{Run: m.clone, Cancelled: m.createCancelled}
	for kind, k := range map[string]job.Kind[record.VolumeArgs]{
		record.JobCreateImage:  create,
		record.JobCloneImage:   clone,
		record.JobDeleteImage:  {Run: m.delete, Cancelled: m.deleteCancelled},
		record.JobResizeImage:  {Run: m.expand, Cancelled: m.expandCancelled},
		record.JobShrinkImage:  m.changes(state.Change, m.shrink),
		record.JobFlattenImage: m.changes(state.Change, m.flatten),
		record.JobLimitImage:   m.changes(state.Change, m.limit),
		record.JobMoveImage:    m.changes(state.Move, m.move),
		record.JobRevertImage:  m.changes(state.Restore, m.revert),
		record.JobRevert:       m.changes(state.Restore, m.revert),
	} {
		job.Register(m.jobs, kind, k)
	}
	job.Register(m.jobs, record.JobSnapshotImage, job.Kind[record.SnapshotArgs]{
		Run: m.snapshot, Cancelled: m.snapshotCancelled,
	})
	job.Register(m.jobs, record.JobUnsnapshotImage, job.Kind[record.SnapshotArgs]{
		Run: m.deleteSnapshot, Cancelled: m.deleteSnapshotCancelled,
	})
	job.Register(m.jobs, record.JobCountUsage, job.Kind[record.UsageArgs]{Run: m.countUsage})
}

// CreateImage begins to make an image under a name that its user has chosen.
func (m *Manager) CreateImage(ctx context.Context, req record.ImageRequest) (record.Volume, record.Job, error) {
	return m.store.CreateImage(ctx, req, m.jobs.Begin)
}

// ChangeImage begins to change a volume in a pool for images.
func (m *Manager) ChangeImage(
	ctx context.Context, id string, c record.ImageChange,
) (record.Volume, record.Job, error) {
	return m.store.ChangeImage(ctx, id, c, m.jobs.Begin)
}

// CountUsage begins to count what the images of a cluster use. Empty: of all clusters that have images.
func (m *Manager) CountUsage(ctx context.Context, cluster string) ([]string, record.Job, error) {
	return m.store.CountUsage(ctx, cluster, m.jobs.Begin)
}

// Snapshots asks the storage system for the snapshots of a volume in a pool for images.
func (m *Manager) Snapshots(ctx context.Context, v *record.Volume) ([]driver.ImageSnapshot, error) {
	d, name, err := reach[driver.Images](ctx, m, v)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
	defer cancel()
	return d.ImageSnapshots(ctx, name)
}

// change does the work of a job with a volume, and checks with the storage system that it is done. The volume that it
// returns is what the storage system says; nil: it is asked.
type change func(
	ctx context.Context, v *record.Volume, name driver.Name, a record.VolumeArgs, progress func(float64),
) (*driver.Volume, error)

// changes are jobs that change a volume by an action.
func (m *Manager) changes(action state.Action, do change) job.Kind[record.VolumeArgs] {
	return job.Kind[record.VolumeArgs]{
		Run: func(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
			return m.on(ctx, a, action, func(ctx context.Context, v *record.Volume) (*driver.Volume, error) {
				d, name, err := reach[driver.Volumes](ctx, m, v)
				if err != nil {
					return nil, err
				}
				seen, err := do(ctx, v, name, a, func(done float64) { progress(done * record.Verifying) })
				if seen != nil {
					return seen, err
				}
				if err == nil {
					progress(record.Verifying)
				}
				// Also after a failure, what it is now is what counts.
				after, cancel := ending(ctx)
				defer cancel()
				now, again := d.Volume(after, name)
				if again != nil {
					return nil, errors.Join(err, again)
				}
				return &now, err
			})
		},
		Cancelled: func(ctx context.Context, a record.VolumeArgs) error {
			return m.store.EndVolume(ctx, a, action, nil, errCancelled)
		},
	}
}

func (m *Manager) flatten(
	ctx context.Context, v *record.Volume, name driver.Name, _ record.VolumeArgs, progress func(float64),
) (*driver.Volume, error) {
	d, _, err := reach[driver.Images](ctx, m, v)
	if err != nil {
		return nil, err
	}
	if err := d.Flatten(ctx, name, progress); err != nil {
		return nil, err
	}
	seen, err := m.see(ctx, v)
	if err == nil && seen.Parent != "" {
		err = fault.New(fault.Unavailable, "the storage still has the image depend on %s", seen.Parent)
	}
	return &seen, err
}

// see asks the storage system for a volume.
func (m *Manager) see(ctx context.Context, v *record.Volume) (driver.Volume, error) {
	d, name, err := reach[driver.Volumes](ctx, m, v)
	if err != nil {
		return driver.Volume{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
	defer cancel()
	return d.Volume(ctx, name)
}

func (m *Manager) limit(
	ctx context.Context, v *record.Volume, name driver.Name, a record.VolumeArgs, _ func(float64),
) (*driver.Volume, error) {
	d, _, err := reach[driver.Images](ctx, m, v)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
	defer cancel()
	if err := d.Limit(bounded, name, a.IOPS, a.BPS); err != nil {
		return nil, err
	}
	seen, err := m.see(ctx, v)
	if err == nil && (a.IOPS != nil && seen.Limits.IOPS != *a.IOPS || a.BPS != nil && seen.Limits.BPS != *a.BPS) {
		err = fault.New(fault.Unavailable, "the storage has accepted the limits, but the image has others")
	}
	return &seen, err
}

func (m *Manager) shrink(
	ctx context.Context, v *record.Volume, name driver.Name, a record.VolumeArgs, progress func(float64),
) (*driver.Volume, error) {
	d, _, err := reach[driver.Images](ctx, m, v)
	if err != nil {
		return nil, err
	}
	if _, err := d.Shrink(ctx, name, a.Size, progress); err != nil {
		return nil, err
	}
	seen, err := m.see(ctx, v)
	if err == nil && seen.Size != a.Size {
		err = fault.New(fault.Unavailable, "the storage has made the image %d bytes large, not %d", seen.Size, a.Size)
	}
	return &seen, err
}

func (m *Manager) revert(
	ctx context.Context, v *record.Volume, name driver.Name, a record.VolumeArgs, _ func(float64),
) (*driver.Volume, error) {
	sn, err := m.store.Snapshot(ctx, a.Snapshot)
	if err != nil {
		return nil, err
	}
	d, _, err := reach[driver.Reverter](ctx, m, v)
	if err != nil {
		return nil, err
	}
	return nil, d.Revert(ctx, name, sn.In(name.Pool, v))
}

// move moves a volume to another pool, and asks the storage system for it there.
func (m *Manager) move(
	ctx context.Context, v *record.Volume, name driver.Name, a record.VolumeArgs, _ func(float64),
) (*driver.Volume, error) {
	d, _, err := reach[driver.Images](ctx, m, v)
	if err != nil {
		return nil, err
	}
	moved := *v
	moved.PoolID = a.Pool
	there, err := m.store.PlaceOf(ctx, &moved)
	if err != nil {
		return nil, err
	}
	snapshots, err := m.store.SnapshotsToMove(ctx, v)
	if err != nil {
		return nil, err
	}
	if err := d.Move(ctx, name, snapshots, there.Pool.Name); err != nil {
		return nil, err
	}
	seen, err := m.see(ctx, &moved)
	return &seen, err
}

// countUsage counts what the images of clusters use. One that fails does not keep the others from being counted.
func (m *Manager) countUsage(ctx context.Context, a record.UsageArgs, progress func(float64)) error {
	var problems []error
	for i, id := range a.Clusters {
		if err := m.countCluster(ctx, id); err != nil && ctx.Err() != nil {
			return err
		} else if err != nil {
			problems = append(problems, err)
		}
		progress(float64(i+1) / float64(len(a.Clusters)) * record.Verifying)
	}
	if len(problems) > 0 {
		return problems[0] // a job shows one reason
	}
	return nil
}

func (m *Manager) countCluster(ctx context.Context, id string) error {
	cluster, err := m.store.Cluster(ctx, id)
	if err != nil {
		return err
	}
	b, err := m.store.Backend(ctx, cluster.BackendID)
	if err != nil {
		return err
	}
	opened, err := m.backends.Driver(ctx, b)
	if err != nil {
		return err
	}
	d, ok := opened.(driver.Images)
	if !ok {
		return fault.New(fault.Invalid, "the backend %s cannot do this", b.Name).WithCode("unsupported")
	}
	pools, err := m.store.ImagePools(ctx, id)
	for i := 0; i < len(pools) && err == nil; i++ {
		err = d.EachUsed(ctx, pools[i].Name, func(native string, used int64) error {
			return m.store.SetUsed(ctx, pools[i].ID, native, used)
		})
	}
	return err
}
