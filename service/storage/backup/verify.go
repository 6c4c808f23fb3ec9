package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// compareAtOnce is how much is compared at once, in bytes.
const compareAtOnce = 4 << 20

// view opens the data of a backup for reading. The caller closes the view.
func (m *Manager) view(ctx context.Context, b *record.Backup) (*repository.View, *repository.Reader, error) {
	repo, err := m.repository(ctx, record.BackupBucket{Bucket: b.BucketID, KeyRef: b.KeyRef}, false)
	if err != nil {
		return nil, nil, err
	}
	return openItem(ctx, repo, b)
}

func openItem(
	ctx context.Context, repo *repository.Repository, b *record.Backup,
) (*repository.View, *repository.Reader, error) {
	id, err := repository.ParseID(b.RepositoryID)
	if err != nil {
		return nil, nil, err
	}
	v, err := repo.View(ctx, owner(b.Tenant), id)
	if err != nil {
		return nil, nil, err
	}
	item, err := v.Item(itemName)
	if err == nil && item.Size() != b.Size {
		err = fault.New(fault.Conflict, "the backup in the bucket has %d bytes, not %d", item.Size(), b.Size)
	}
	if err != nil {
		return nil, nil, errors.Join(err, v.Close())
	}
	return v, item, nil
}

// compare compares parts of a backup with the snapshot that it is of.
func (m *Manager) compare(
	ctx context.Context, repo *repository.Repository, b *record.Backup, c driver.Content, parts []repository.Range,
	progress func(float64),
) (err error) {
	v, item, err := openItem(ctx, repo, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	var total, done int64
	for _, r := range parts {
		total += r.Length
	}
	want, got := make([]byte, compareAtOnce), make([]byte, compareAtOnce)
	for _, r := range parts {
		for at := r.Offset; at < r.Offset+r.Length; at += compareAtOnce {
			n := min(compareAtOnce, r.Offset+r.Length-at)
			if read, err := c.ReadAt(want[:n], at); int64(read) < n {
				return err
			}
			if _, err := item.ReadAtContext(ctx, got[:n], at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if !bytes.Equal(want[:n], got[:n]) {
				return differs(at, n)
			}
			done += n
			progress(float64(done) / float64(total))
		}
	}
	return nil
}

func differs(at, n int64) error {
	return fault.New(fault.Conflict, "the backup differs from its snapshot between the bytes %d and %d", at, at+n)
}

// verify is the job that checks a backup. What is wrong with the backup is stored, and fails the job.
func (m *Manager) verify(ctx context.Context, a record.BackupArgs, progress func(float64)) error {
	b, err := m.store.Backup(ctx, a.ID)
	if err != nil {
		return err
	}
	// Neither a key that is missing nor a snapshot that is gone says anything about the backup.
	repo, err := m.repository(ctx, record.BackupBucket{Bucket: b.BucketID, KeyRef: b.KeyRef}, false)
	if err != nil {
		return reason(ctx, err)
	}
	check := func(with driver.Content) error { return m.check(ctx, repo, &b, a.Method, with, progress) }
	if a.Method != record.MethodSource {
		return check(nil)
	}
	of, err := m.store.Volume(ctx, b.VolumeID)
	if err != nil {
		return err
	}
	d, at, err := reach[driver.Copier](ctx, m, &of)
	if err != nil {
		return err
	}
	return reason(ctx, d.ReadSnapshot(ctx, driver.Name{Pool: at.Pool, Native: b.Base}, check))
}

// check reads a backup back, compares it with a snapshot unless that is nil, and stores what it finds.
func (m *Manager) check(
	ctx context.Context, repo *repository.Repository, b *record.Backup, method string, with driver.Content,
	progress func(float64),
) error {
	var read atomic.Int64
	err := m.whole(ctx, repo, b)
	if err == nil {
		err = readBack(ctx, repo, b, &sink{read: &read, with: with}, func(done float64) { progress(done * record.Verifying) })
	}
	if err != nil && (job.BrokenOff(ctx) || ctx.Err() != nil || fault.Is(err, fault.Unavailable)) {
		return reason(ctx, err) // that says nothing about the backup either
	}
	b.VerifiedBy, b.VerifiedOK = method, err == nil
	if b.VerifiedWhat = fmt.Sprintf("%d bytes were read back", read.Load()); err != nil {
		b.VerifiedWhat = fault.From(err).Message
	} else if with != nil {
		b.VerifiedWhat += ", and are those of the snapshot"
	}
	return errors.Join(err, m.store.SetVerified(ctx, b))
}

// readBack writes all of a backup to a sink.
func readBack(
	ctx context.Context, repo *repository.Repository, b *record.Backup, to *sink, progress func(float64),
) (err error) {
	v, item, err := openItem(ctx, repo, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return item.WriteTo(ctx, to, repository.RestoreOptions{
		WriteZeros: true, Progress: func(done, total int64) { progress(float64(done) / float64(total)) },
	})
}

// sink takes what is read of a backup. It is used by several goroutines.
type sink struct {
	read *atomic.Int64
	with driver.Content // what it is compared with; nil: nothing
}

// WriteAt counts, and compares.
func (s *sink) WriteAt(p []byte, offset int64) (int, error) {
	s.read.Add(int64(len(p)))
	if s.with == nil {
		return len(p), nil
	}
	want := make([]byte, len(p))
	if n, err := s.with.ReadAt(want, offset); n < len(want) {
		return 0, fault.Wrap(fault.Unavailable, err, "the snapshot cannot be read: %s", fault.From(err).Message)
	}
	if !bytes.Equal(want, p) {
		return 0, differs(offset, int64(len(p)))
	}
	return len(p), nil
}
