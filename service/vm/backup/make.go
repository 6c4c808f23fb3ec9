package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// makeArgs are the arguments of the job that makes a backup.
type makeArgs struct {
	Backup string `json:"backup"`
	Actor  string `json:"actor"`
}

// attempts is how often a backup is begun if other work on the VM ends it, or the daemon restarts
// meanwhile, and pause how long a Manager waits before the second attempt. The waits double.
const (
	attempts = 5
	pause    = 2 * time.Second
)

// mayPass reports whether what has ended an attempt may have passed soon.
func mayPass(err error) bool {
	code := codeOf(err)
	return code == driver.CodeTransferOver || code == driver.CodeTransferFailed || fault.Is(err, fault.Unavailable)
}

// make is the job backup.create.
func (m *Manager) make(ctx context.Context, a makeArgs, progress func(float64)) error {
	ctx = caller.Acting(ctx, a.Actor)
	b, err := m.store.Backup(ctx, a.Backup)
	if err != nil {
		return err
	}
	switch b.Status {
	case record.BackupPending:
		b, err = m.store.ChangeBackup(ctx, b.ID, "", func(b *record.Backup) error {
			b.Status = record.BackupRunning
			return nil
		})
	case record.BackupRunning:
		done, adoptErr := m.adoptOwn(ctx, &b)
		if done || adoptErr != nil {
			return adoptErr
		}
	default:
		return nil // it was stored before the service ended
	}
	for n := 1; err == nil; n++ {
		err = m.attempt(ctx, &b, progress)
		if err == nil || n == attempts || !mayPass(err) {
			break
		}
		m.log.Info("a backup begins again", "vm", b.VM, "backup", b.ID, "error", err)
		if !backoff.Sleep(ctx, pause<<(n-1)) {
			err = context.Cause(ctx)
		} else {
			err = nil
		}
	}
	if err == nil {
		m.thinAfter(ctx, &b)
		return nil
	}
	if job.BrokenOff(ctx) {
		return err
	}
	return m.failed(ctx, b.ID, err)
}

// failed stores why a backup was not made, and returns the error.
func (m *Manager) failed(ctx context.Context, id string, cause error) error {
	reason := fault.From(cause).Message
	if ctx.Err() != nil {
		reason = "the job was cancelled"
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if _, err := m.store.ChangeBackup(after, id, "backup failed: "+reason, func(b *record.Backup) error {
		if b.Status == record.BackupPending || b.Status == record.BackupRunning {
			b.Status, b.Error, b.FinishedAt = record.BackupFailed, reason, db.At(m.now())
		}
		return nil
	}); err != nil {
		m.log.Error("the end of a backup was not stored", "backup", id, "error", err)
	}
	return cause
}

// makeCancelled ends a backup whose job was cancelled before it ran.
func (m *Manager) makeCancelled(ctx context.Context, a makeArgs) error {
	_, err := m.store.ChangeBackup(caller.ByItself(ctx), a.Backup, "", func(b *record.Backup) error {
		if b.Status == record.BackupPending || b.Status == record.BackupRunning {
			b.Status, b.Error, b.FinishedAt = record.BackupFailed, "the job was cancelled", db.At(m.now())
		}
		return nil
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// adoptOwn looks in the repository for what an earlier run of the job has committed.
func (m *Manager) adoptOwn(ctx context.Context, b *record.Backup) (done bool, err error) {
	repo, err := m.open(ctx, false)
	if err != nil {
		return false, err
	}
	all, _, err := repo.List(ctx, owner(b.Tenant))
	if err != nil {
		return false, err
	}
	for _, found := range all {
		var s settings
		if found.Of != b.VM || json.Unmarshal(found.Config, &s) != nil || s.Backup != b.ID {
			continue
		}
		return true, m.completed(ctx, b.ID, found, "")
	}
	return false, nil
}

// completed stores that a backup is in the repository.
func (m *Manager) completed(ctx context.Context, id string, done *repository.Backup, checkpoint string) error {
	was := rowOf(done)
	message := fmt.Sprintf("backed up (%s, %d bytes new)", was.Kind, was.SizeBytes)
	_, err := m.store.ChangeBackup(context.WithoutCancel(ctx), id, message, func(b *record.Backup) error {
		b.Status, b.RepoID, b.Kind, b.Checkpoint = record.BackupCompleted, was.RepoID, was.Kind, checkpoint
		b.SizeBytes, b.DiskBytes, b.ReadBytes, b.Consistency = was.SizeBytes, was.DiskBytes, was.ReadBytes, was.Consistency
		b.FinishedAt = was.FinishedAt
		return nil
	})
	return err
}

// rowOf returns what a backup in the repository says.
func rowOf(done *repository.Backup) record.Backup {
	b := record.Backup{
		VM: done.Of, VMName: done.Name, Tenant: done.Tenant, Kind: done.Type, Status: record.BackupCompleted,
		RepoID: done.ID.String(), Consistency: done.Consistency, CreatedAt: db.At(done.Taken),
		FinishedAt: db.At(done.Finished),
	}
	if b.Tenant == noTenant {
		b.Tenant = ""
	}
	for i := range done.Items {
		it := &done.Items[i]
		b.SizeBytes += it.Stored
		b.ReadBytes += it.Read
		if it.Name == systemDisk {
			b.DiskBytes = it.Size
		}
	}
	if !done.ProtectedUntil.IsZero() {
		b.ProtectedTill = db.At(done.ProtectedUntil)
	}
	return b
}

// attempt makes a backup once.
func (m *Manager) attempt(ctx context.Context, b *record.Backup, progress func(float64)) error {
	repo, err := m.open(ctx, true)
	if err != nil {
		return err
	}
	r, err := m.store.VM(ctx, b.VM)
	if err != nil {
		return err
	}
	since, parent := "", (*repository.ID)(nil)
	if b.Kind == record.BackupIncremental {
		if since, parent, err = m.parentOf(ctx, repo, &r); err != nil {
			return err
		}
	}
	// The reading ends with the job, whatever becomes of it.
	reading, end := context.WithCancel(ctx)
	defer end()
	disk, err := m.driver.ReadDisk(reading, driver.PlaceOf(&r), consumer(repo), since)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			disk.Abort()
		}
	}()
	kind := record.BackupIncremental
	if !disk.Changed {
		kind, parent = record.BackupFull, nil
	}
	own, err := m.store.VMPolicy(ctx, r.ID)
	if err != nil {
		return err
	}
	config, err := settingsOf(&r, &own, b)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	meter := &meter{m: m, ctx: ctx, tenant: r.Tenant, end: cancel}
	defer meter.done()
	w, err := repo.Begin(ctx, repository.Info{
		Tenant: owner(r.Tenant), Of: r.ID, Name: r.Name, Type: kind, Consistency: disk.Consistency, Taken: m.now(),
		Config: config,
	}, parent, func(p repository.Progress) {
		meter.wrote(p.Stored)
		if p.Total > 0 {
			progress(min(1, float64(p.Done)/float64(p.Total)))
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = w.Abort() }() // after Commit it does nothing
	defer func() {
		if !finished {
			m.leave(ctx, r.Tenant, w.Sent())
		}
	}()
	ranges := make([]repository.Range, len(disk.Ranges))
	for i, r := range disk.Ranges {
		ranges[i] = repository.Range(r)
	}
	if err := w.Disk(repository.Disk{Name: systemDisk, Size: disk.Size, Reader: disk, Changed: ranges}); err != nil {
		return denied(ctx, err)
	}
	if err := meter.last(); err != nil {
		return err
	}
	done, err := w.Commit()
	if err != nil {
		return denied(ctx, err)
	}
	// From here on there is a backup. Without a checkpoint, only the next one reads more.
	checkpoint := disk.Checkpoint
	finished = true
	if err := disk.Finish(); err != nil {
		m.log.Warn("the next backup of a VM reads its whole disk", "vm", r.ID, "error", err)
		checkpoint = ""
	}
	return m.completed(ctx, b.ID, done, checkpoint)
}

// leave counts what a backup that was not finished has left in the repository.
func (m *Manager) leave(ctx context.Context, tenant string, bytes int64) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := m.store.LeaveBackup(after, tenant, bytes); err != nil {
		m.log.Error("what an unfinished backup has left does not count for the quota", "tenant", tenant, "bytes", bytes,
			"error", err)
	}
}

// denied returns why a backup was ended for its quota, or else the error.
func denied(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && fault.Is(cause, fault.Denied) {
		return cause
	}
	return err
}

// parentOf returns the checkpoint of a VM's last backup, and its id in the repository.
func (m *Manager) parentOf(
	ctx context.Context, repo *repository.Repository, r *record.VM,
) (since string, parent *repository.ID, err error) {
	last, err := m.store.LastCheckpoint(ctx, r)
	if last == nil || err != nil {
		return "", nil, err
	}
	id, err := repository.ParseID(last.RepoID)
	if err != nil {
		return "", nil, err
	}
	if _, err := repo.Get(ctx, owner(r.Tenant), id); err != nil {
		if fault.Is(err, fault.NotFound) {
			return "", nil, nil // removed behind this service's back: all is read
		}
		return "", nil, err
	}
	return last.Checkpoint, &id, nil
}

// consumer is the name under which the daemon keeps the checkpoints of a repository.
func consumer(repo *repository.Repository) string {
	id := []byte(repo.ID())
	for i, c := range id {
		if c >= 'A' && c <= 'Z' {
			id[i] = c - 'A' + 'a'
		}
	}
	return "vm-" + string(id[:min(len(id), 16)])
}
