// Package bucket makes and removes buckets of object gateways by jobs, takes in buckets that exist, and looks into
// both.
//
//	bucket.go  Manager: requests, and what buckets hold
//	job.go     the jobs
//	keys.go    keys, sealed
//
// # How a bucket comes to be
//
//  1. record.CreateBucket stores the bucket as pending, with its name in the object gateway, its job and an audit
//     entry, in one transaction. That is acknowledged.
//  2. The job has the driver make a user and its bucket under these names. If the job is repeated after a crash, the
//     driver finds what is there.
//  3. The job then asks the object gateway for the bucket and compares (the state verifying).
//  4. record.BindBucket stores that it is bound, with the keys of its user, which are sealed.
//
// # Invariants
//
//   - Keys are in memory while a job runs, and sealed in the database. They are in no answer, log, fault or audit
//     entry.
//   - What a job leads to is taken from the object gateway, not from what was asked for.
//   - A bucket that was taken in is only read, and forgotten when it is deleted.
//   - A job that fails or is cancelled leaves the bucket in a state at rest, and says why. What is left of it in the
//     object gateway goes when it is deleted.
//   - What is asked about a bucket ends within 12 seconds.
//
// It imports backend, caller, driver, job, record and state.
package bucket

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// answerWithin bounds questions about a bucket.
const answerWithin = 12 * time.Second

var errSilent = fault.New(fault.Unavailable, "the object gateway has not answered within %s", answerWithin)

// Config holds the dependencies of a Manager.
type Config struct {
	Store    *record.Store
	Jobs     *job.Runner
	Backends *backend.Set
	Sealer   *auth.Sealer // seals keys
	// Singles are the buckets that the settings tell of, by the names of their entries.
	Singles map[string]driver.SingleBucket
}

// Manager makes, removes and reads buckets.
type Manager struct{ cfg Config }

// New returns a Manager and registers its jobs.
func New(c Config) *Manager {
	m := &Manager{c}
	job.Register(c.Jobs, record.JobCreateBucket, job.Kind[record.BucketArgs]{Run: m.create, Cancelled: m.createCancelled})
	job.Register(c.Jobs, record.JobDeleteBucket, job.Kind[record.BucketArgs]{Run: m.delete, Cancelled: m.deleteCancelled})
	return m
}

// Create begins to make a bucket, or to take one in.
func (m *Manager) Create(ctx context.Context, req record.BucketRequest) (record.Bucket, record.Job, error) {
	if ref := req.ConnectionRef; ref != "" && m.cfg.Singles[ref] == nil {
		return record.Bucket{}, record.Job{},
			fault.InvalidField("connection_ref", "the setting s3-buckets has no entry %s", ref)
	}
	return m.cfg.Store.CreateBucket(ctx, req, m.cfg.Jobs.Begin)
}

// Delete begins to remove a bucket. Unless it is forced, one that has backups stays.
func (m *Manager) Delete(ctx context.Context, id string, force bool) (record.Bucket, record.Job, error) {
	return m.cfg.Store.DeleteBucket(ctx, id, force, m.cfg.Jobs.Begin)
}

// Stats are what a bucket holds.
type Stats struct {
	driver.Bucket
	Reason string // why nothing is known; empty: the rest is
}

// Stats asks what a bucket in the caller's scope holds. If its object gateway cannot tell, the result says why.
func (m *Manager) Stats(ctx context.Context, id string) (out Stats, err error) {
	b, err := m.cfg.Store.Bucket(ctx, id)
	if err != nil {
		return out, err
	}
	seen, err := m.ask(ctx, &b)
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if err != nil {
		seen = driver.Bucket{BucketName: b.NativeName(), MaxObjects: b.MaxObjects, MaxSize: b.MaxSize}
		return Stats{Bucket: seen, Reason: fault.From(err).Message}, nil
	}
	return Stats{Bucket: seen}, nil
}

// ask returns a bucket as its object gateway has it.
func (m *Manager) ask(ctx context.Context, b *record.Bucket) (driver.Bucket, error) {
	if err := b.State.Usable(); err != nil {
		return driver.Bucket{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, errSilent)
	defer cancel()
	r, err := m.reader(ctx, b)
	if err != nil {
		return driver.Bucket{}, err
	}
	return r.Bucket(ctx, b.NativeName())
}

// Objects lists a folder of a bucket in the caller's scope.
func (m *Manager) Objects(ctx context.Context, id string, q driver.ObjectsQuery) (driver.ObjectsPage, error) {
	b, err := m.cfg.Store.Bucket(ctx, id)
	if err == nil {
		err = b.State.Usable()
	}
	if err != nil {
		return driver.ObjectsPage{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, errSilent)
	defer cancel()
	r, err := m.reader(ctx, &b)
	if err != nil {
		return driver.ObjectsPage{}, err
	}
	return r.Objects(ctx, b.NativeName(), q)
}

// reader returns what can look into a bucket.
func (m *Manager) reader(ctx context.Context, b *record.Bucket) (driver.BucketReader, error) {
	if b.Adopted() {
		return m.single(b)
	}
	return m.maker(ctx, b)
}

// single returns a bucket that was taken in.
func (m *Manager) single(b *record.Bucket) (driver.SingleBucket, error) {
	s := m.cfg.Singles[b.ConnectionRef]
	if s == nil {
		return nil, fault.New(fault.Unavailable, "the gateway's settings do not tell of this bucket any more")
	}
	return s, nil
}

// maker returns the part of the driver that makes a bucket.
func (m *Manager) maker(ctx context.Context, b *record.Bucket) (driver.Buckets, error) {
	place, err := m.cfg.Store.Backend(ctx, b.BackendID)
	if err != nil {
		return nil, err
	}
	opened, err := m.cfg.Backends.Driver(ctx, place)
	if err != nil {
		return nil, err
	}
	d, ok := opened.(driver.Buckets)
	if !ok {
		return nil, fault.New(fault.Unavailable, "the gateway's settings name no object gateway for the backend %s any more",
			place.Name)
	}
	return d, nil
}
