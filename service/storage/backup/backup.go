package backup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/bucket"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// endWithin bounds what is stored after a job.
const endWithin = time.Minute

// Config holds the dependencies of a Manager.
type Config struct {
	Store    *record.Store
	Jobs     *job.Runner
	Backends *backend.Set
	Buckets  *bucket.Manager
	// Keys are what backups may be encrypted with, by the names of their entries in the settings.
	Keys map[string]Key
	// Cache is a folder for copies of what repositories hold about themselves.
	Cache string
	Log   *slog.Logger
	Now   func() time.Time
}

// Manager makes, checks, restores and removes backups.
type Manager struct {
	cfg   Config
	store *record.Store
	log   *slog.Logger

	mu   sync.Mutex
	open map[record.BackupBucket]*repository.Repository
	raw  map[string]store.Store // of buckets, by their ids
}

// New returns a Manager and registers its jobs.
func New(c Config) *Manager {
	m := &Manager{
		cfg: c, store: c.Store, log: c.Log, open: map[record.BackupBucket]*repository.Repository{},
		raw: map[string]store.Store{},
	}
	job.Register(c.Jobs, record.JobBackup, job.Kind[record.BackupArgs]{Run: m.make, Cancelled: m.makeCancelled})
	job.Register(c.Jobs, record.JobDeleteBackup, job.Kind[record.BackupArgs]{Run: m.remove, Cancelled: m.removeCancelled})
	job.Register(c.Jobs, record.JobVerifyBackup, job.Kind[record.BackupArgs]{Run: m.verify})
	job.Register(c.Jobs, record.JobRestoreBackup, job.Kind[record.RestoreArgs]{
		Run: m.restore, Cancelled: m.restoreCancelled,
	})
	job.Register(c.Jobs, record.JobImportBackups, job.Kind[record.ImportArgs]{Run: m.take})
	return m
}

// Create begins to make a backup.
func (m *Manager) Create(ctx context.Context, req record.BackupRequest) (record.Backup, record.Job, error) {
	if err := m.CheckKey(req.KeyRef); err != nil {
		return record.Backup{}, record.Job{}, err
	}
	if req.KeyRef != "" && req.Mode == record.ModeManifest {
		return record.Backup{}, record.Job{}, fault.InvalidField("key_ref", "is for backups of the mode %s", record.ModeData)
	}
	return m.store.CreateBackup(ctx, req, m.cfg.Jobs.Begin)
}

// CheckKey refuses a name that no entry of the setting backup-keys has. It takes an empty one.
func (m *Manager) CheckKey(name string) error {
	if _, known := m.cfg.Keys[name]; name != "" && !known {
		return fault.InvalidField("key_ref", "the setting backup-keys has no entry %s", name)
	}
	return nil
}

// Delete begins to remove a backup.
func (m *Manager) Delete(ctx context.Context, id string) (record.Backup, record.Job, error) {
	return m.store.DeleteBackup(ctx, id, m.cfg.Jobs.Begin)
}

// Verify begins to check a backup by a method.
func (m *Manager) Verify(ctx context.Context, id, method string) (record.Backup, record.Job, error) {
	return m.store.VerifyBackup(ctx, id, method, m.cfg.Jobs.Begin)
}

// Restore begins to make a volume of a backup.
func (m *Manager) Restore(
	ctx context.Context, id string, req record.RestoreRequest,
) (record.Volume, record.Job, error) {
	return m.store.RestoreBackup(ctx, id, req, m.cfg.Jobs.Begin)
}

// RestoreInPlace begins to put a volume back to a backup.
func (m *Manager) RestoreInPlace(ctx context.Context, id string) (record.Volume, record.Job, error) {
	return m.store.RestoreInPlace(ctx, id, m.cfg.Jobs.Begin)
}

// Import begins to take in the backups of a bucket that are not known.
func (m *Manager) Import(ctx context.Context, a record.ImportArgs) (record.Bucket, record.Job, error) {
	if err := m.CheckKey(a.KeyRef); err != nil {
		return record.Bucket{}, record.Job{}, err
	}
	return m.store.ImportBackups(ctx, a, m.cfg.Jobs.Begin)
}

// Sweep ends what jobs that were lost have left, begins the removal of backups that have expired, and removes snapshots
// that are not needed any more.
func (m *Manager) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	return errors.Join(m.endLost(ctx), m.store.ExpireBackups(ctx, m.cfg.Jobs.Begin), m.dropBases(ctx),
		m.dropGone(ctx))
}

func (m *Manager) endLost(ctx context.Context) error {
	cause := fault.New(fault.Unavailable, "its job was interrupted too often")
	all, err := m.store.LostBackups(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		if all[i].State == state.BackupDeleting {
			a := record.BackupArgs{ID: all[i].ID, Before: state.BackupCompleted}
			err = m.store.EndBackupDeletion(ctx, a, cause)
		} else {
			err = m.store.FailBackup(ctx, all[i].ID, cause)
		}
	}
	return err
}

// reason returns why a job has failed, in words for what it is about.
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

// reach returns the part of a volume's driver that a job needs, and where the volume is.
func reach[D any](ctx context.Context, m *Manager, v *record.Volume) (d D, name driver.Name, err error) {
	at, err := m.store.PlaceOf(ctx, v)
	if err != nil {
		return d, name, err
	}
	opened, err := m.cfg.Backends.Driver(ctx, at.Backend)
	if err != nil {
		return d, name, err
	}
	d, ok := opened.(D)
	if !ok {
		err = fault.New(fault.Invalid, "the backend %s cannot do this", at.Backend.Name).WithCode("unsupported")
	}
	return d, v.In(at.Pool.Name), err
}
