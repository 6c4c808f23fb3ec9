package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/kit/repository/store/s3"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// prefix is what the keys of all objects of this service in a bucket begin with.
const prefix = "mainstay/"

// bucket opens a bucket for manifests.
func (m *Manager) bucket(ctx context.Context, id string) (store.Store, error) {
	m.mu.Lock()
	s := m.raw[id]
	m.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := m.connect(ctx, id, prefix)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raw[id] = s
	return s, nil
}

// connect opens the objects of a bucket whose keys begin with something.
func (m *Manager) connect(ctx context.Context, id, below string) (store.Store, error) {
	a, err := m.cfg.Buckets.Access(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := s3.Open(ctx, s3.Config{
		Endpoint: a.Endpoint, Region: a.Region, Bucket: a.Bucket, Prefix: below, AccessKey: a.BucketKeys.Access,
		SecretKey: a.Secret, CAFile: a.CAFile, PathStyle: true,
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return s, nil
}

// unavailable returns the fault for a bucket or a repository that cannot be opened.
func unavailable(err error) error {
	if fault.Is(err, fault.StorageFailed) || fault.Is(err, fault.Denied) ||
		fault.From(err).PublicCode() == "backup_damaged" {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the backups in the bucket cannot be reached: %s", fault.From(err).Message)
}

// notCreated reports whether repository has failed because the bucket has no repository, or none yet.
func notCreated(err error) bool {
	return fault.Is(err, fault.Unavailable) && fault.From(errors.Unwrap(err)).PublicCode() == "repository_not_found"
}

// repository opens the repository in a bucket that is encrypted with a key. With create, it makes a missing one.
func (m *Manager) repository(ctx context.Context, at record.BackupBucket, create bool) (*repository.Repository, error) {
	m.mu.Lock()
	r := m.open[at]
	m.mu.Unlock()
	if r != nil {
		return r, nil
	}
	key, known := m.cfg.Keys[at.KeyRef]
	if at.KeyRef != "" && !known {
		return nil, fault.New(fault.Conflict, "the setting backup-keys has no entry %s, which the backup is encrypted with",
			at.KeyRef)
	}
	s, err := m.connect(ctx, at.Bucket, prefix+key.folder())
	if err != nil {
		return nil, err
	}
	options := repository.Options{
		Cache: filepath.Join(m.cfg.Cache, at.Bucket, strings.TrimSuffix(key.folder(), "/")), Log: m.log, Now: m.cfg.Now,
	}
	if err := os.MkdirAll(options.Cache, 0o700); err != nil {
		return nil, err
	}
	r, err = repository.Open(ctx, s, key.opens(), options)
	if err != nil && create && fault.From(err).PublicCode() == "repository_not_found" {
		r, err = repository.Create(ctx, s, key.makes(), options)
		if err != nil && fault.From(err).PublicCode() == "repository_exists" { // another replica was faster
			r, err = repository.Open(ctx, s, key.opens(), options)
		}
	}
	if err != nil {
		return nil, unavailable(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[at] = r
	return r, nil
}

// whole checks that the bucket still has what opens the repository of a backup, which is kept open, and the manifest of
// the backup. What is wrong with them is a fault of another kind than Unavailable.
func (m *Manager) whole(ctx context.Context, repo *repository.Repository, b *record.Backup) error {
	key := m.cfg.Keys[b.KeyRef]
	if err := repo.Check(ctx, key.opens()); err != nil {
		m.forget(b.BucketID)
		return err
	}
	s, err := m.bucket(ctx, b.BucketID)
	if err != nil {
		return err
	}
	about, err := read(ctx, s, b.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return damaged("its manifest %s is not in the bucket", b.Key)
	case fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge):
		return damaged("its manifest %s is damaged: %s", b.Key, fault.From(err).Message)
	case err != nil:
		return unavailable(err)
	case about.RepositoryID != b.RepositoryID || about.Tenant != b.Tenant || about.Size != b.Size:
		return damaged("its manifest %s is that of something else", b.Key)
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fault.New(fault.Invalid, format, args...).WithCode("backup_damaged")
}

// mend writes again what opens a repository that is kept open, if the bucket has lost it: without that, nothing in it
// could be read after a restart.
func (m *Manager) mend(ctx context.Context, at record.BackupBucket, repo *repository.Repository) error {
	key := m.cfg.Keys[at.KeyRef]
	mended, err := repo.Mend(ctx, key.opens(), key.makes().Locks[0])
	if err != nil {
		m.forget(at.Bucket)
		return unavailable(err)
	}
	if mended {
		m.log.Warn("a bucket had lost what its backups are opened with, and has it again", "bucket", at.Bucket)
	}
	return nil
}

// forget has a bucket opened anew, for example because its keys have changed.
func (m *Manager) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.raw, id)
	for at := range m.open {
		if at.Bucket == id {
			delete(m.open, at)
		}
	}
}

// owner is what repositories know a tenant by. They know no empty names.
func owner(tenant string) string {
	if tenant == "" {
		return "-"
	}
	return tenant
}

// tenantOf is the inverse of owner.
func tenantOf(owner string) string {
	if owner == "-" {
		return ""
	}
	return owner
}
