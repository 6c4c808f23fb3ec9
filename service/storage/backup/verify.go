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
	var read atomic.Int64
	err = m.readBack(ctx, &b, a.Method, &read, func(done float64) { progress(done * record.Verifying) })
	if err != nil && (job.BrokenOff(ctx) || ctx.Err() != nil || fault.Is(err, fault.Unavailable)) {
		return reason(ctx, err) // that says nothing about the backup
	}
	b.VerifiedBy, b.VerifiedOK = a.Method, err == nil
	if b.VerifiedWhat = fmt.Sprintf("%d bytes were read back", read.Load()); err != nil {
		b.VerifiedWhat = fault.From(err).Message
	} else if a.Method == record.MethodSource {
		b.VerifiedWhat += ", and are those of the snapshot"
	}
	return errors.Join(err, m.store.SetVerified(ctx, &b))
}

// readBack reads a backup, and with the method source compares it with its snapshot.
func (m *Manager) readBack(
	ctx context.Context, b *record.Backup, method string, read *atomic.Int64, progress func(float64),
) (err error) {
	v, item, err := m.view(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	to := func(w io.WriterAt) error {
		return item.WriteTo(ctx, w, repository.RestoreOptions{
			WriteZeros: true, Progress: func(done, total int64) { progress(float64(done) / float64(total)) },
		})
	}
	if method != record.MethodSource {
		return to(&sink{read: read})
	}
	of, err := m.store.Volume(ctx, b.VolumeID)
	if err != nil {
		return err
	}
	d, at, err := reach[driver.Copier](ctx, m, &of)
	if err != nil {
		return err
	}
	name := driver.Name{Pool: at.Pool, Native: b.Base}
	return d.ReadSnapshot(ctx, name, func(c driver.Content) error { return to(&sink{read: read, with: c}) })
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
		return 0, err
	}
	if !bytes.Equal(want, p) {
		return 0, differs(offset, int64(len(p)))
	}
	return len(p), nil
}
