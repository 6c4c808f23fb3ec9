package record

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Status of a backup.
//
//	pending ──► running ──► completed ◄──► damaged
//	   │           │
//	   └───────────┴──────► failed
const (
	BackupPending   = "pending"
	BackupRunning   = "running"
	BackupCompleted = "completed"
	BackupDamaged   = "damaged" // a verification has found that it cannot be restored as it was
	BackupFailed    = "failed"
)

// Kinds of backups: what was read.
const (
	BackupFull        = "full"
	BackupIncremental = "incremental"
)

// Backup is a backup of a VM. It outlives the VM.
type Backup struct {
	ID            string            `db:"id"`
	VM            string            `db:"vm_id"`
	VMName        string            `db:"vm_name"`
	Tenant        string            `db:"tenant"`
	Kind          string            `db:"kind"`
	Status        string            `db:"status"`
	Description   string            `db:"description"`
	Policy        string            `db:"policy_id"` // empty: none
	RepoID        string            `db:"repo_id"`   // its id in the repository; empty: not completed
	DriverID      string            `db:"driver_id"` // the VM's id at the daemon
	Checkpoint    string            `db:"checkpoint"`
	SizeBytes     int64             `db:"size_bytes"` // what it has added to the repository
	DiskBytes     int64             `db:"disk_bytes"`
	LeftOut       db.JSON[[]string] `db:"left_out"` // disks beside the system disk, which alone is in it
	ReadBytes     int64             `db:"read_bytes"`
	Consistency   string            `db:"consistency"`
	RetentionDays int               `db:"retention_days"` // 0: it does not expire
	Error         string            `db:"error"`
	CreatedAt     db.Time           `db:"created_at"`
	FinishedAt    db.Time           `db:"finished_at"`
	ExpiresAt     db.Time           `db:"expires_at"`
	ProtectedTill db.Time           `db:"protected_until"`
	VerifiedAt    db.Time           `db:"verified_at"`
	Boot          string            `db:"boot"`       // how its last trial boot ended; empty: there was none
	BootError     string            `db:"boot_error"` // why it did not pass
	BootedAt      db.Time           `db:"booted_at"`
}

// How trial boots of backups end.
const (
	BootPassed  = "passed"
	BootFailed  = "failed"
	BootUntried = "untried" // the hypervisor daemon could not run it
)

// Restorable reports whether the backup is in the repository.
func (b *Backup) Restorable() bool { return b.RepoID != "" }

// AddBackup stores a backup of a VM that is to be made, and begins its job.
func (s *Store) AddBackup(
	ctx context.Context, vm string, b Backup, begin func(tx *db.Tx, r *VM, b *Backup) error,
) (Backup, error) {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := locked(ctx, tx, vm)
		switch {
		case err != nil:
			return err
		case r.State == Missing:
			return fault.New(fault.Conflict, "the hypervisor daemon does not know the VM any more")
		case r.Job != nil && r.Job.Kind == JobRestore:
			return errBusy(r.Job)
		case !r.Provisioned():
			return fault.New(fault.Conflict, "the VM has no disk yet: the daemon has not made it")
		}
		if err := s.admit(ctx, tx, r.Tenant, Use{BackupBytes: 1}); err != nil {
			return err
		}
		b.VM, b.VMName, b.Tenant, b.DriverID, b.Status = r.ID, r.Name, r.Tenant, r.DriverID, BackupPending
		b.CreatedAt = db.At(s.now())
		for _, d := range r.Disks.V {
			b.LeftOut.V = append(b.LeftOut.V, d.Name)
		}
		if b.RetentionDays > 0 {
			b.ExpiresAt = db.At(s.now().AddDate(0, 0, b.RetentionDays))
		}
		if err := tx.Insert(ctx, "backups", b); db.IsUnique(err) {
			return fault.New(fault.Conflict, "a backup of the VM is being made already; wait for it, or cancel its job")
		} else if err != nil {
			return err
		}
		e := audit.Entry{Action: "backup.create", Target: b.ID, Tenant: r.Tenant, Message: r.Name}
		if err := s.note(ctx, tx, e); err != nil {
			return err
		}
		return begin(tx, &r, &b)
	})
	return b, err
}

// Backup returns a backup in the caller's scope.
func (s *Store) Backup(ctx context.Context, id string) (Backup, error) {
	return backupIn(ctx, s.db, id, "")
}

func backupIn(ctx context.Context, q db.Querier, id, lock string) (b Backup, err error) {
	err = q.Get(ctx, &b, "SELECT * FROM backups WHERE id = ?"+lock, id)
	if err == nil && !caller.From(ctx).Sees(b.Tenant) {
		return Backup{}, fault.New(fault.NotFound, "there is no such backup")
	}
	return b, db.NotFound(err, "there is no such backup")
}

// Backups lists backups in the caller's scope, newest first, starting before an id. With vm, only
// those of VMs that had this name.
func (s *Store) Backups(ctx context.Context, vm, before string, limit int) (all []Backup, err error) {
	scope := caller.From(ctx).Scope()
	if vm != "" {
		scope = scope.And("vm_name = ?", vm)
	}
	if before != "" {
		scope = scope.And("id < ?", before)
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM backups WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, limit)...)
}

// BackupsOf lists the finished backups of a policy, by VM, newest first.
func (s *Store) BackupsOf(ctx context.Context, policy string) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all,
		"SELECT * FROM backups WHERE policy_id = ? AND repo_id <> '' ORDER BY vm_id, id DESC", policy)
}

// LastCheckpoint returns the newest finished backup of a VM that left a checkpoint at the daemon, or
// nil.
func (s *Store) LastCheckpoint(ctx context.Context, r *VM) (*Backup, error) {
	var all []Backup
	err := s.db.Select(ctx, &all, `SELECT * FROM backups WHERE vm_id = ? AND driver_id = ? AND checkpoint <> ''
		AND status = 'completed' ORDER BY id DESC LIMIT 1`, r.ID, r.DriverID)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// ChangeBackup lets f change a backup, also one that the caller does not see. With message, the VM
// gets an event.
func (s *Store) ChangeBackup(ctx context.Context, id, message string, f func(b *Backup) error) (b Backup, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if b, err = backupIn(caller.ByItself(ctx), tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		was := b
		if err := f(&b); err != nil {
			return err
		}
		if err := saveBackup(ctx, tx, &b); err != nil {
			return err
		}
		h := Happening{Type: backupHappening(&was, &b), Backup: &b}
		if err := s.tellWorld(ctx, tx, h); err != nil || message == "" {
			return err
		}
		_, err := s.change(ctx, tx, b.VM, func(*VM) (kind, text string, err error) {
			return EventBackup, message, nil
		})
		if fault.Is(err, fault.NotFound) {
			return nil // the VM was deleted
		}
		return err
	})
	return b, err
}

func saveBackup(ctx context.Context, tx *db.Tx, b *Backup) error {
	_, err := tx.Exec(ctx, `UPDATE backups SET kind = ?, status = ?, repo_id = ?, driver_id = ?, checkpoint = ?,
		size_bytes = ?, disk_bytes = ?, read_bytes = ?, consistency = ?, error = ?, finished_at = ?, expires_at = ?,
		protected_until = ?, verified_at = ?, boot = ?, boot_error = ?, booted_at = ? WHERE id = ?`,
		b.Kind, b.Status, b.RepoID, b.DriverID, b.Checkpoint, b.SizeBytes, b.DiskBytes, b.ReadBytes, b.Consistency,
		b.Error, b.FinishedAt, b.ExpiresAt, b.ProtectedTill, b.VerifiedAt, b.Boot, b.BootError, b.BootedAt, b.ID)
	return err
}

// NoteBackup writes the audit entry of something that is done with a backup. detail is JSON, or empty.
func (s *Store) NoteBackup(ctx context.Context, action string, b *Backup, detail string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		return s.note(ctx, tx, audit.Entry{
			Action: action, Target: b.ID, Tenant: b.Tenant, Message: b.VMName, Detail: detail,
		})
	})
}

// RemoveBackup forgets a backup that the repository does not have any more.
func (s *Store) RemoveBackup(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		b, err := backupIn(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM backups WHERE id = ?", id); err != nil {
			return err
		}
		// Others may need what it has brought: the next prune finds out.
		if _, err := tx.Exec(ctx, `UPDATE tenants SET backup_needs = backup_needs + ? WHERE name = ?
			AND (backup_needs_at IS NULL OR backup_needs_at < ?)`, b.SizeBytes, b.Tenant, b.FinishedAt); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "backup.delete", Target: id, Tenant: b.Tenant, Message: b.VMName})
	})
}

// failedAge is how long a backup that failed is shown.
const failedAge = 7 * 24 * time.Hour

// ExpiredBackups lists backups that are to be removed, oldest first.
func (s *Store) ExpiredBackups(ctx context.Context, limit int) (all []Backup, err error) {
	now := s.now()
	return all, s.db.Select(ctx, &all, `SELECT * FROM backups WHERE status IN ('completed', 'damaged')
		AND expires_at < ? AND (protected_until IS NULL OR protected_until < ?)
		OR status = 'failed' AND created_at < ? ORDER BY id LIMIT ?`,
		db.At(now), db.At(now), db.At(now.Add(-failedAge)), limit)
}

// AdoptBackup stores a backup that was found in the repository, unless it is known. It reports
// whether it was not.
func (s *Store) AdoptBackup(ctx context.Context, b Backup) (added bool, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		var known int
		err := tx.Get(ctx, &known, "SELECT COUNT(*) FROM backups WHERE repo_id = ?", b.RepoID)
		if err != nil || known > 0 {
			return err
		}
		if err := tx.Get(ctx, &known, "SELECT COUNT(*) FROM backups WHERE id = ?", b.ID); err != nil {
			return err
		}
		if known > 0 {
			b.ID = NewID()
		}
		added = true
		return tx.Insert(ctx, "backups", b)
	})
	return added, err
}

// RepositoryBackups lists all backups that must be in the repository.
func (s *Store) RepositoryBackups(ctx context.Context) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backups WHERE repo_id <> '' ORDER BY id")
}

// BackupStats are numbers about the finished backups in the caller's scope.
type BackupStats struct {
	Total          int64
	Bytes          int64
	ByKind, ByVM   map[string]int
	Oldest, Newest db.Time
}

// maxByVM is the number of VMs that BackupStats counts on their own.
const maxByVM = 1000

// CountBackups returns numbers about the finished backups in the caller's scope.
func (s *Store) CountBackups(ctx context.Context) (BackupStats, error) {
	condition, args := caller.From(ctx).Scope().And("repo_id <> ''").SQL()
	out := BackupStats{ByKind: map[string]int{}, ByVM: map[string]int{}}
	var sums struct {
		Total  int64   `db:"total"`
		Bytes  int64   `db:"bytes"`
		Oldest db.Time `db:"oldest"`
		Newest db.Time `db:"newest"`
	}
	if err := s.db.Get(ctx, &sums, `SELECT COUNT(*) AS total, COALESCE(SUM(size_bytes), 0) AS bytes,
		MIN(created_at) AS oldest, MAX(created_at) AS newest FROM backups WHERE `+condition, args...); err != nil {
		return out, err
	}
	out.Total, out.Bytes, out.Oldest, out.Newest = sums.Total, sums.Bytes, sums.Oldest, sums.Newest
	for column, counts := range map[string]map[string]int{"kind": out.ByKind, "vm_name": out.ByVM} {
		var rows []struct {
			Name string `db:"name"`
			N    int    `db:"n"`
		}
		if err := s.db.Select(ctx, &rows, "SELECT "+column+" AS name, COUNT(*) AS n FROM backups WHERE "+condition+
			" GROUP BY "+column+" ORDER BY n DESC, name LIMIT ?", append(append([]any{}, args...), maxByVM)...); err != nil {
			return out, err
		}
		for _, r := range rows {
			counts[r.Name] = r.N
		}
	}
	return out, nil
}

// BeginRestore begins the job that restores a backup in place.
func (s *Store) BeginRestore(ctx context.Context, b *Backup, disks bool, begin func(tx *db.Tx, r *VM) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := s.ready(ctx, tx, b.VM)
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.NotFound, "the VM %s of the backup is gone; name a new one with target_vm_name", b.VMName)
		}
		switch {
		case err != nil:
			return err
		case r.State == Missing:
			return fault.New(fault.Conflict, "the hypervisor daemon does not know the VM any more; "+
				"restore to a new one with target_vm_name")
		case disks && r.State != Stopped && r.State != Failed:
			return fault.New(fault.Conflict, "the VM is %s; stop it before its disk is replaced", r.State)
		}
		var n int
		if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM snapshots WHERE vm_id = ?", r.ID); err != nil {
			return err
		}
		if disks && n > 0 {
			return fault.New(fault.Conflict, "the VM has %d snapshots, which are in the disk; delete them first, "+
				"or restore to a new VM with target_vm_name", n)
		}
		if disks {
			more := Use{Disk: (b.DiskBytes+1<<30-1)>>30 - int64(r.Disk)}
			if err := s.admit(ctx, tx, r.Tenant, more); err != nil {
				return err
			}
		}
		if err := s.note(ctx, tx, audit.Entry{
			Action: "backup.restore", Target: b.ID, Tenant: r.Tenant, Message: r.Name,
		}); err != nil {
			return err
		}
		return begin(tx, &r)
	})
}

// Restored stores that a VM was restored.
func (s *Store) Restored(ctx context.Context, vm, message string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := s.change(caller.ByItself(ctx), tx, vm, func(r *VM) (kind, text string, err error) {
			r.LastError = ""
			return EventBackup, message, nil
		})
		return err
	})
}

// UnfinishedBackups returns the ids of backups that are being made.
func (s *Store) UnfinishedBackups(ctx context.Context) (map[string]bool, error) {
	var all []string
	err := s.db.Select(ctx, &all, "SELECT id FROM backups WHERE status IN ('pending', 'running')")
	out := make(map[string]bool, len(all))
	for _, id := range all {
		out[id] = true
	}
	return out, err
}

// NoteRepository writes the audit entry of something that is done with the whole repository.
func (s *Store) NoteRepository(ctx context.Context, action string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error { return s.note(ctx, tx, audit.Entry{Action: action}) })
}

// BeginBoot begins the job that boots a backup in the caller's scope. There is at most one.
func (s *Store) BeginBoot(ctx context.Context, id string, begin func(tx *db.Tx, b *Backup) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		b, err := backupIn(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := placeToBoot(ctx, tx, b.Tenant); err != nil {
			return err
		}
		if err := s.note(ctx, tx, audit.Entry{
			Action: "backup.boot", Target: b.ID, Tenant: b.Tenant, Message: b.VMName,
		}); err != nil {
			return err
		}
		return begin(tx, &b)
	})
}

// maxBoots is how many backups are booted at once, each of another tenant.
const maxBoots = 4

// placeToBoot returns a fault unless a backup of a tenant may be booted now.
func placeToBoot(ctx context.Context, tx *db.Tx, tenant string) error {
	var now struct {
		All int `db:"total"`
		Own int `db:"own"`
	}
	err := tx.Get(ctx, &now, `SELECT COUNT(*) AS total, COALESCE(SUM(CASE WHEN o.tenant = ? THEN 1 ELSE 0 END), 0) AS own
		FROM operations o JOIN jobs j ON j.id = o.id WHERE o.kind = ? AND j.finished_at IS NULL`, tenant, JobBoot)
	switch {
	case err != nil:
		return err
	case now.Own > 0:
		return fault.New(fault.Conflict, "a backup is being booted already; wait for it, or cancel its job")
	case now.All >= maxBoots:
		return fault.New(fault.TooMany, "too many backups are being booted; try again in some minutes").
			WithRetryAfter(time.Minute)
	}
	return nil
}

// NextBoot returns the backup that is to be booted next: the newest one of the VM of which none was
// booted for the longest time, among those whose guests have an agent. It returns nil if one was booted
// since a time, or there is none.
func (s *Store) NextBoot(ctx context.Context, since time.Time) (*Backup, error) {
	var last db.Time
	if err := s.db.Get(ctx, &last, "SELECT MAX(booted_at) FROM backups"); err != nil || last.After(since) {
		return nil, err
	}
	var next []Backup
	err := s.db.Select(ctx, &next, `SELECT b.* FROM backups b JOIN (
			SELECT vm_id, MAX(id) AS id, COALESCE(MAX(booted_at), 0) AS last FROM backups
			WHERE repo_id <> '' AND status = ? AND consistency = ? GROUP BY vm_id
		) newest ON b.id = newest.id ORDER BY newest.last, b.id LIMIT 1`, BackupCompleted, ConsistencyFilesystem)
	if err != nil || len(next) == 0 {
		return nil, err
	}
	return &next[0], nil
}

// ConsistencyFilesystem is the consistency of a backup for which the guest's agent froze its file
// systems.
const ConsistencyFilesystem = "filesystem"

// BeginVerify begins the job that verifies the repository. There is at most one.
func (s *Store) BeginVerify(ctx context.Context, begin func(tx *db.Tx) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if err := alone(ctx, tx, JobVerify, "the backups are being verified already"); err != nil {
			return err
		}
		if err := s.note(ctx, tx, audit.Entry{Action: "backup.verify"}); err != nil {
			return err
		}
		return begin(tx)
	})
}

// alone returns a conflict with a message if there is an unfinished job of a kind.
func alone(ctx context.Context, tx *db.Tx, kind, message string) error {
	var n int
	err := tx.Get(ctx, &n, `SELECT COUNT(*) FROM operations o JOIN jobs j ON j.id = o.id
		WHERE o.kind = ? AND j.finished_at IS NULL`, kind)
	if err == nil && n > 0 {
		return fault.New(fault.Conflict, "%s", message)
	}
	return err
}
