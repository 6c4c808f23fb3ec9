// Package backup makes backups of VMs, keeps them in a repository (package repository), restores
// them, and removes those that nobody wants any more.
//
//	backup.go     a Manager; requests
//	open.go       the repository: where it is, and its key
//	make.go       the job that makes a backup
//	quota.go      ends backups that exceed the quota of their tenant
//	restore.go    the job that restores one
//	disk.go       the disk in a backup, as others read it
//	schedule.go   when policies run, as pure functions
//	policy.go     runs policies, and thins what they have made
//	boot.go       boots a backup, to see that it can be relied on
//	keep.go       expiry, freeing of room, verification, taking in unknown backups
//
// # How a backup is made
//
//  1. A row and its job are stored. That is acknowledged.
//  2. The job has the daemon read the disk as of one moment, at a new checkpoint. It asks only for
//     what has changed since the checkpoint of the last backup, if the daemon still has that.
//  3. What was read goes to the repository. Its commit makes the backup visible there.
//  4. The checkpoint is finished at the daemon, which forgets the one before.
//  5. The row says that the backup is completed.
//
// If the service is killed before 3, the job runs again. After 3 it finds what it has committed, and
// only the checkpoint is lost: the next backup reads the whole disk. If other work on the VM ends the
// reading, the job begins again, a few times.
//
// # Invariants
//
//   - A backup that is shown as completed is in the repository.
//   - A checkpoint counts only once its backup is committed, so no change is ever missed.
//   - A backup lists all of its blocks: removing one never harms another.
//   - An in-place restore either replaces the disk or changes nothing.
//
// It imports caller, driver, job, life, nbd, netpolicy, record, and repository with its stores.
package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/life"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store      *record.Store
	Driver     *driver.Driver
	Jobs       *job.Runner
	Life       *life.Life
	Repository Location
	// BootInterval is how often one backup is booted; 0: never.
	BootInterval time.Duration
	Log          *slog.Logger
	Now          func() time.Time
}

// Manager makes backups and restores them.
type Manager struct {
	store        *record.Store
	driver       *driver.Driver
	jobs         *job.Runner
	life         *life.Life
	where        Location
	bootInterval time.Duration
	log          *slog.Logger
	now          func() time.Time
	inFlight     inFlight

	mu   sync.Mutex
	repo *repository.Repository // nil: not opened yet
}

// New returns a Manager and registers its kinds of jobs. It does not open the repository.
func New(c Config) (*Manager, error) {
	m := &Manager{
		store: c.Store, driver: c.Driver, jobs: c.Jobs, life: c.Life, where: c.Repository, log: c.Log, now: c.Now,
		bootInterval: c.BootInterval,
	}
	if err := m.where.check(); err != nil {
		return nil, err
	}
	job.Register(m.jobs, record.JobBackup, job.Kind[makeArgs]{Run: m.make, Cancelled: m.makeCancelled})
	job.Register(m.jobs, record.JobRestore, job.Kind[restoreArgs]{Run: m.restore, Cancelled: m.restoreCancelled})
	job.Register(m.jobs, record.JobVerify, job.Kind[struct{}]{Run: m.verify})
	job.Register(m.jobs, record.JobBoot, job.Kind[bootArgs]{Run: m.boot})
	return m, nil
}

// Location returns where the repository is, for admins.
func (m *Manager) Location() string { return m.where.URL }

// noTenant is whose backups those of VMs without a tenant are in the repository. It is not a valid name
// of a tenant.
const noTenant = "-"

// owner returns whose backups those of a tenant are in the repository.
func owner(tenant string) string { return cmp.Or(tenant, noTenant) }

// systemDisk is the name of a VM's disk in a backup.
const systemDisk = "system"

// settings are those of a VM in a backup, as JSON.
type settings struct {
	Backup        string            `json:"backup"` // the id of the backup in this service
	Policy        string            `json:"policy,omitempty"`
	RetentionDays int               `json:"retention_days,omitempty"`
	Description   string            `json:"backup_description,omitempty"`
	Name          string            `json:"name"`
	CPUs          int               `json:"cpus"`
	Memory        int               `json:"memory"`
	Disk          int               `json:"disk"`
	LeftOut       []string          `json:"left_out,omitempty"` // disks that are not in the backup
	Labels        map[string]string `json:"labels,omitempty"`
	Tags          []string          `json:"tags,omitempty"`
	About         string            `json:"description,omitempty"`
	Autostart     bool              `json:"autostart,omitempty"`
	Spec          record.Spec       `json:"spec"`
	// NetworkPolicy is the VM's own, so that a VM that is made of the backup is not open to everybody.
	NetworkPolicy *netpolicy.Policy `json:"network_policy,omitempty"`
}

func settingsOf(r *record.VM, own *record.VMPolicy, b *record.Backup) (json.RawMessage, error) {
	var policy *netpolicy.Policy
	if !own.UpdatedAt.IsZero() {
		policy = &own.Document.V
	}
	return json.Marshal(settings{
		Backup: b.ID, Policy: b.Policy, RetentionDays: b.RetentionDays, Description: b.Description,
		Name: r.Name, CPUs: r.CPUs, Memory: r.Memory, Disk: r.Disk, LeftOut: b.LeftOut.V, Labels: r.Labels.V, Tags: r.Tags.V,
		About: r.Description, Autostart: r.Autostart, Spec: r.Spec.V, NetworkPolicy: policy,
	})
}

// Request is what a backup is to be.
type Request struct {
	Kind          string // full or incremental
	Description   string
	Policy        string // empty: none
	RetentionDays int    // 0: it does not expire
}

// Create stores a backup of a VM, and begins the job that makes it.
func (m *Manager) Create(ctx context.Context, vm string, q Request) (b record.Backup, jobID string, err error) {
	if _, err := m.open(ctx, true); err != nil {
		return b, "", err
	}
	b, err = m.store.AddBackup(ctx, vm, record.Backup{
		ID: record.NewID(), Kind: q.Kind, Description: q.Description, Policy: q.Policy, RetentionDays: q.RetentionDays,
	}, func(tx *db.Tx, r *record.VM, b *record.Backup) error {
		j := record.NewJob(record.JobBackup, r)
		j.Backup = b.ID
		err := m.jobs.Begin(ctx, tx, &j, makeArgs{Backup: b.ID, Actor: caller.From(ctx).Person()})
		jobID = j.ID
		return err
	})
	return b, jobID, err
}

// Delete removes a backup.
func (m *Manager) Delete(ctx context.Context, id string) error {
	b, err := m.store.Backup(ctx, id)
	if err != nil {
		return err
	}
	if b.Status == record.BackupPending || b.Status == record.BackupRunning {
		return fault.New(fault.Conflict, "the backup is being made; cancel its job instead")
	}
	if b.ProtectedTill.After(m.now()) {
		return fault.New(fault.Conflict, "the backup is protected until %s", b.ProtectedTill.UTC().Format(time.RFC3339))
	}
	if err := m.removeFromRepository(ctx, &b); err != nil {
		return err
	}
	return m.store.RemoveBackup(ctx, id)
}

func (m *Manager) removeFromRepository(ctx context.Context, b *record.Backup) error {
	if !b.Restorable() {
		return nil
	}
	repo, err := m.open(ctx, false)
	if err != nil {
		return err
	}
	rid, err := repository.ParseID(b.RepoID)
	if err != nil {
		return err
	}
	err = repo.Delete(ctx, owner(b.Tenant), rid)
	if fault.Is(err, fault.NotFound) {
		return nil // an earlier attempt has removed it
	}
	return err
}

// maxProtection is how far ahead a backup can be protected.
const maxProtection = 10 * 366 * 24 * time.Hour

// Protect keeps a backup from being removed until a time.
func (m *Manager) Protect(ctx context.Context, id string, until time.Time) (record.Backup, error) {
	b, err := m.store.Backup(ctx, id)
	switch {
	case err != nil:
		return b, err
	case !b.Restorable():
		return b, fault.New(fault.Conflict, "the backup is %s; one that is completed can be protected", b.Status)
	case !until.After(m.now()) || !until.After(b.ProtectedTill.Time):
		return b, fault.InvalidField("until", "must be in the future, and later than the present protection")
	case until.Sub(m.now()) > maxProtection:
		return b, fault.InvalidField("until", "must be at most ten years ahead")
	}
	repo, err := m.open(ctx, false)
	if err != nil {
		return b, err
	}
	rid, err := repository.ParseID(b.RepoID)
	if err != nil {
		return b, err
	}
	if err := repo.Protect(ctx, owner(b.Tenant), rid, until); err != nil {
		return b, err
	}
	if err := m.store.NoteBackup(ctx, "backup.protect", &b, ""); err != nil {
		return b, err
	}
	return m.store.ChangeBackup(context.WithoutCancel(ctx), id, "", func(b *record.Backup) error {
		b.ProtectedTill = db.At(until)
		return nil
	})
}
