package bucket

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// makeWithin bounds what makes a bucket, which is several requests, and endWithin what is stored after a job.
const (
	makeWithin = time.Minute
	endWithin  = time.Minute
)

var errSlow = fault.New(fault.Unavailable, "the object gateway has not answered within %s", makeWithin)

// on does the work of a job on a bucket that is in a state, and stores why it failed if it did.
func (m *Manager) on(
	ctx context.Context, id string, during state.Bucket, work func(ctx context.Context, b *record.Bucket) error,
) error {
	b, err := m.cfg.Store.Bucket(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && b.State != during {
		return nil // an earlier run has stored its end
	}
	if err != nil {
		return err
	}
	if err = work(ctx, &b); err == nil || job.BrokenOff(ctx) {
		return err
	}
	if ctx.Err() != nil {
		err = errCancelled
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	return errors.Join(err, m.cfg.Store.FailBucket(after, id, during, err))
}

func (m *Manager) create(ctx context.Context, a record.BucketArgs, progress func(float64)) error {
	return m.on(ctx, a.ID, state.BucketPending, func(ctx context.Context, b *record.Bucket) error {
		bounded, cancel := context.WithTimeoutCause(ctx, makeWithin, errSlow)
		defer cancel()
		if b.Adopted() {
			s, err := m.single(b)
			if err != nil {
				return err
			}
			seen, err := s.Reach(bounded)
			if err != nil {
				return err
			}
			return m.cfg.Store.BindBucket(ctx, b.ID, &seen, "")
		}
		d, err := m.maker(bounded, b)
		if err != nil {
			return err
		}
		keys, err := d.CreateBucket(bounded, driver.BucketSpec{
			BucketName: b.NativeName(), MaxObjects: b.MaxObjects, MaxSize: b.MaxSize, Versioning: b.Versioning,
		})
		if err != nil {
			return err
		}
		progress(record.Verifying)
		seen, err := verify(bounded, d, b)
		if err != nil {
			return err
		}
		sealed, err := seal(m.cfg.Sealer, b.ID, keys)
		if err != nil {
			return err
		}
		return m.cfg.Store.BindBucket(ctx, b.ID, &seen, sealed)
	})
}

// verify asks the object gateway for a bucket that was made, and compares it with what was asked for.
func verify(ctx context.Context, d driver.Buckets, b *record.Bucket) (driver.Bucket, error) {
	seen, err := d.Bucket(ctx, b.NativeName())
	switch {
	case err != nil:
		return seen, err
	case seen.MaxObjects != b.MaxObjects || seen.MaxSize != b.MaxSize:
		return seen, fault.New(fault.Unavailable, "the object gateway limits the bucket to %d objects and %d bytes, not %d and %d",
			seen.MaxObjects, seen.MaxSize, b.MaxObjects, b.MaxSize)
	case b.Versioning != (seen.Versioning == driver.VersioningEnabled):
		return seen, fault.New(fault.Unavailable, "the object gateway says that versioning of the bucket is %s", seen.Versioning)
	}
	return seen, nil
}

func (m *Manager) delete(ctx context.Context, a record.BucketArgs, progress func(float64)) error {
	return m.on(ctx, a.ID, state.BucketDeleting, func(ctx context.Context, b *record.Bucket) error {
		if b.Adopted() {
			return m.cfg.Store.ForgetBucket(ctx, b.ID)
		}
		d, err := m.maker(ctx, b)
		if err != nil {
			return err
		}
		if err := d.DeleteBucket(ctx, b.NativeName(), func(done float64) { progress(done * record.Verifying) }); err != nil {
			return err
		}
		progress(record.Verifying)
		// One of this name that is somebody else's is a Conflict, and not this bucket.
		switch _, err := d.Bucket(ctx, b.NativeName()); {
		case err == nil:
			return fault.New(fault.Unavailable, "the object gateway still has the bucket")
		case !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict):
			return err
		}
		return m.cfg.Store.ForgetBucket(ctx, b.ID)
	})
}

var errCancelled = fault.New(fault.Conflict, "the job was cancelled")

// The jobs below were cancelled before they ran.

func (m *Manager) createCancelled(ctx context.Context, a record.BucketArgs) error {
	return m.cfg.Store.FailBucket(ctx, a.ID, state.BucketPending, errCancelled)
}

func (m *Manager) deleteCancelled(ctx context.Context, a record.BucketArgs) error {
	return m.cfg.Store.FailBucket(ctx, a.ID, state.BucketDeleting, errCancelled)
}

// Sweep ends what jobs that were lost, for example because they were interrupted too often, have left unfinished.
func (m *Manager) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	all, err := m.cfg.Store.LostBuckets(ctx)
	lost := fault.New(fault.Unavailable, "its job was interrupted too often")
	for i := 0; i < len(all) && err == nil; i++ {
		err = m.cfg.Store.FailBucket(ctx, all[i].ID, all[i].State, lost)
	}
	return err
}
