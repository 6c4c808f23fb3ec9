// Package provision makes, expands, clones, snapshots and removes volumes, by jobs.
//
//	provision.go  Manager: requests, and how jobs reach the storage
//	volume.go     jobs of volumes
//	snapshot.go   jobs of snapshots
//	image.go      jobs of images: limits, flattening, moves and the like
//	group.go      groups of volumes, and jobs of their snapshots
//	trash.go      volumes that are kept after their deletion
//
// # How a volume comes to be
//
//  1. record.CreateVolume checks policy, cordon and quota, and stores the volume as creating, with its job and an
//     audit entry, in one transaction. That is acknowledged.
//  2. The job has the driver make the volume, under the native name that the row has. If the job is repeated after
//     a crash, the driver finds what is there.
//  3. The job then asks the storage system for the volume and compares (the state verifying).
//  4. record.EndVolume stores the state that this leads to.
//
// # Invariants
//
//   - What a job leads to is taken from the storage system, not from what was asked for.
//   - A job that fails or is cancelled leaves the volume in a state at rest, and says why.
//   - A job that is interrupted by the end of the process stores nothing, and runs again.
//   - A job that fails removes nothing: another replica may have taken it over and finished it. Drivers show
//     nothing under a native name before it is complete, and what is complete goes with its row.
//
// It imports backend, driver, job, record and state.
package provision

import (
	"context"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// callWithin bounds calls that do not copy data, and endWithin what is stored after a job.
const (
	callWithin = time.Minute
	endWithin  = time.Minute
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store    *record.Store
	Jobs     *job.Runner
	Backends *backend.Set
	Log      *slog.Logger
	Now      func() time.Time
}

// Manager makes and removes volumes and snapshots.
type Manager struct {
	store    *record.Store
	jobs     *job.Runner
	backends *backend.Set
	log      *slog.Logger
	now      func() time.Time
}

// New returns a Manager and registers its jobs.
func New(c Config) *Manager {
	m := &Manager{store: c.Store, jobs: c.Jobs, backends: c.Backends, log: c.Log, now: c.Now}
	job.Register(c.Jobs, record.JobCreateVolume, job.Kind[record.VolumeArgs]{Run: m.create, Cancelled: m.createCancelled})
	job.Register(c.Jobs, record.JobClone, job.Kind[record.VolumeArgs]{Run: m.clone, Cancelled: m.createCancelled})
	job.Register(c.Jobs, record.JobRestore, job.Kind[record.VolumeArgs]{Run: m.clone, Cancelled: m.createCancelled})
	job.Register(c.Jobs, record.JobExpandVolume, job.Kind[record.VolumeArgs]{Run: m.expand, Cancelled: m.expandCancelled})
	job.Register(c.Jobs, record.JobDeleteVolume, job.Kind[record.VolumeArgs]{Run: m.delete, Cancelled: m.deleteCancelled})
	job.Register(c.Jobs, record.JobSnapshot, job.Kind[record.SnapshotArgs]{
		Run: m.snapshot, Cancelled: m.snapshotCancelled,
	})
	job.Register(c.Jobs, record.JobDeleteSnapshot, job.Kind[record.SnapshotArgs]{
		Run: m.deleteSnapshot, Cancelled: m.deleteSnapshotCancelled,
	})
	m.registerImages()
	m.registerGroups()
	m.registerTrash()
	return m
}

// Create begins to make a volume.
func (m *Manager) Create(ctx context.Context, req record.VolumeRequest) (record.Volume, record.Job, error) {
	return m.store.CreateVolume(ctx, req, m.jobs.Begin)
}

// Expand begins to make a volume larger, by a job of a kind.
func (m *Manager) Expand(ctx context.Context, id, kind string, size int64) (record.Volume, record.Job, error) {
	return m.store.ExpandVolume(ctx, id, kind, size, m.jobs.Begin)
}

// Delete begins to remove a volume.
func (m *Manager) Delete(ctx context.Context, id string, d record.Deletion) (record.Volume, record.Job, error) {
	if d.Keep > 0 {
		if err := m.hasTrash(ctx, id); err != nil {
			return record.Volume{}, record.Job{}, err
		}
	}
	return m.store.DeleteVolume(ctx, id, d, m.jobs.Begin)
}

// Snapshot begins to take a snapshot of a volume.
func (m *Manager) Snapshot(ctx context.Context, req record.SnapshotRequest) (record.Snapshot, record.Job, error) {
	return m.store.CreateSnapshot(ctx, req, m.jobs.Begin)
}

// DeleteSnapshot begins to remove a snapshot, by a job of a kind.
func (m *Manager) DeleteSnapshot(
	ctx context.Context, id, kind string, force bool,
) (record.Snapshot, record.Job, error) {
	return m.store.DeleteSnapshot(ctx, id, kind, force, m.jobs.Begin)
}

// Clone begins to make a volume of a snapshot.
func (m *Manager) Clone(
	ctx context.Context, snapshot string, req record.CloneRequest,
) (record.Volume, record.Job, error) {
	return m.store.Clone(ctx, snapshot, req, m.jobs.Begin)
}

// reach returns where a volume is, and the part of the driver that a job needs.
func reach[D any](ctx context.Context, m *Manager, v *record.Volume) (d D, name driver.Name, err error) {
	place, err := m.store.PlaceOf(ctx, v)
	if err != nil {
		return d, name, err
	}
	opened, err := m.backends.Driver(ctx, place.Backend)
	if err != nil {
		return d, name, err
	}
	d, ok := opened.(D)
	if !ok {
		err = fault.New(fault.Invalid, "the backend %s cannot do this", place.Backend.Name).WithCode("unsupported")
	}
	return d, v.In(place.Pool.Name), err
}

// reason returns why a job has failed, in words for its volume.
func reason(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fault.New(fault.Conflict, "the job was cancelled")
	}
	return err
}

// ending returns a context for what is stored after a job, also after one that was cancelled.
func ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), endWithin)
}

var errCancelled = fault.New(fault.Conflict, "the job was cancelled before it began")
