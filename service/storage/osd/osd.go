// Package osd takes OSDs out of clusters and in again, and changes how much of their share of the data they hold.
//
// # Invariants
//
//   - One job at a time changes an OSD.
//   - A job has succeeded when the storage system tells the OSD to be as it was asked to be. The data is still moved
//     then, which the health of the cluster tells.
//
// It imports backend, driver, job and record.
package osd

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// callWithin bounds a question to a storage system.
const callWithin = time.Minute

// Config holds the dependencies of a Manager.
type Config struct {
	Store    *record.Store
	Jobs     *job.Runner
	Backends *backend.Set
}

// Manager changes OSDs.
type Manager struct{ cfg Config }

// New returns a Manager and registers its jobs.
func New(c Config) *Manager {
	m := &Manager{c}
	for _, kind := range []string{record.JobOSDOut, record.JobOSDIn, record.JobReweightOSD} {
		job.Register(c.Jobs, kind, job.Kind[record.OSDArgs]{Run: m.change})
	}
	return m
}

// Change begins a job of a kind that changes an OSD. cluster is the id of its cluster; empty: there is only one with an
// OSD of that number.
func (m *Manager) Change(
	ctx context.Context, kind, cluster string, number int64, c driver.OSDChange,
) (record.OSD, record.Job, error) {
	return m.cfg.Store.ChangeOSD(ctx, kind, cluster, number, c, m.cfg.Jobs.Begin)
}

func (m *Manager) change(ctx context.Context, a record.OSDArgs, progress func(float64)) error {
	cluster, err := m.cfg.Store.Cluster(ctx, a.ClusterID)
	if err != nil {
		return err
	}
	b, err := m.cfg.Store.Backend(ctx, cluster.BackendID)
	if err != nil {
		return err
	}
	opened, err := m.cfg.Backends.Driver(ctx, b)
	if err != nil {
		return err
	}
	osds, ok := opened.(driver.OSDs)
	if !ok {
		return fault.New(fault.Invalid, "the OSDs of the backend %s cannot be changed", b.Name).WithCode("unsupported")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
	defer cancel()
	if err := osds.ChangeOSD(ctx, int(a.Number), a.Change); err != nil {
		return err
	}
	progress(record.Verifying)
	return verify(ctx, opened, a)
}

var errSlow = fault.New(fault.Unavailable, "the storage has not answered within %s", callWithin)

// verify asks the storage system whether an OSD is as it was asked to be.
func verify(ctx context.Context, d driver.Driver, a record.OSDArgs) error {
	seen, err := d.Inspect(ctx)
	if err != nil {
		return err
	}
	for _, o := range seen.OSDs {
		if int64(o.ID) != a.Number {
			continue
		}
		if in := a.Change.In; in != nil && o.In != *in {
			return fault.New(fault.Unavailable, "the storage has accepted the change, but osd.%d is as before", a.Number)
		}
		// Ceph keeps weights as fractions of 65,536.
		if w := a.Change.Weight; w != nil && (o.Weight == nil || max(*o.Weight-*w, *w-*o.Weight) > 1.0/65536) {
			return fault.New(fault.Unavailable, "the storage has accepted the weight, but osd.%d has another", a.Number)
		}
		return nil
	}
	return fault.New(fault.NotFound, "the storage has no osd.%d any more", a.Number)
}
