package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

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
	if len(parts) == 0 {
		return nil
	}
	v, item, err := openItem(ctx, repo, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return item.WriteTo(ctx, &sink{read: new(atomic.Int64), with: c}, repository.RestoreOptions{
		WriteZeros: true, Only: parts,
		Progress: func(done, total int64) { progress(float64(done) / float64(total)) },
	})
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
	switch a.Method {
	case record.MethodStored:
		return check(nil)
	case record.MethodRestore:
		return m.restored(ctx, &b, check)
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

// scratch is the name space of the ids of volumes that test restores make.
var scratch = uuid.MustParse("5c7a7f2e-2b0e-4a53-9a6e-8a1f7f0f3d41")

// restored makes a volume of a backup where a restore would make it, passes its content to check, and removes it. What
// an earlier attempt has left is removed first. The volume is in no list, and counts for no quota.
func (m *Manager) restored(ctx context.Context, b *record.Backup, check func(driver.Content) error) (err error) {
	at, err := m.store.PlaceToRestore(ctx, b)
	if err != nil {
		return err
	}
	if err := at.Backend.Writable(); err != nil {
		return err
	}
	opened, err := m.cfg.Backends.Driver(ctx, at.Backend)
	if err != nil {
		return err
	}
	d, ok := opened.(trying)
	if !ok {
		return fault.New(fault.Invalid, "the backend %s cannot do this", at.Backend.Name).WithCode("unsupported")
	}
	id := uuid.NewSHA1(scratch, []byte(b.ID)).String()
	volume := driver.Name{Pool: at.Pool.Name, Native: driver.VolumeName(id)}
	snapshot := driver.Name{Pool: at.Pool.Name, Native: driver.SnapshotName(id)}
	clear := func(ctx context.Context) error {
		return errors.Join(d.DeleteSnapshot(ctx, snapshot), d.DeleteVolume(ctx, volume))
	}
	if err := clear(ctx); err != nil {
		return err
	}
	defer func() {
		after, cancel := ending(ctx)
		defer cancel()
		err = errors.Join(err, clear(after))
	}()
	if err := m.fill(ctx, d, volume, b.Size, b, func(float64) {}); err != nil {
		return reason(ctx, err)
	}
	if _, err := d.CreateSnapshot(ctx, volume, snapshot, func(float64) {}); err != nil {
		return reason(ctx, err)
	}
	return reason(ctx, d.ReadSnapshot(ctx, snapshot, check))
}

// trying is what a driver needs for test restores.
type trying interface {
	filling
	driver.Snapshots
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
	b.VerifiedWhat = fmt.Sprintf("%d bytes were read back", read.Load())
	switch {
	case err != nil:
		b.VerifiedWhat = fault.From(err).Message
	case method == record.MethodRestore:
		b.VerifiedWhat += ", and a volume that was made of them holds the same"
	case with != nil:
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
