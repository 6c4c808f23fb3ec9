package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// JobScan is the kind of jobs that check a VM. They do not change it.
const JobScan = "compliance.scan"

// The states of a scan.
const (
	ScanRunning   = "running"
	ScanCompleted = "completed"
	ScanFailed    = "failed"
)

// Finding is what a check has found.
type Finding struct {
	Check    string `json:"check"`
	Status   string `json:"status"` // passed, failed or skipped
	Evidence string `json:"evidence"`
}

// Scan is a check of a VM against a profile.
type Scan struct {
	ID          string             `db:"id"`
	VM          string             `db:"vm_id"`
	VMName      string             `db:"vm_name"`
	Tenant      string             `db:"tenant"`
	Profile     string             `db:"profile_id"`
	Job         string             `db:"job_id"`
	Status      string             `db:"status"`
	Passed      int                `db:"passed"`
	Failed      int                `db:"failed"`
	Skipped     int                `db:"skipped"`
	Findings    db.JSON[[]Finding] `db:"findings"`
	Error       string             `db:"error"`
	StartedAt   db.Time            `db:"started_at"`
	CompletedAt db.Time            `db:"completed_at"`
}

// maxScans is the number of scans that are kept per VM.
const maxScans = 50

// AddScan stores a scan of a running VM. begin begins its job, and returns the job's id.
func (s *Store) AddScan(
	ctx context.Context, vm string, scan Scan, begin func(tx *db.Tx, r *VM) (job string, err error),
) (Scan, error) {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := locked(ctx, tx, vm)
		switch {
		case err != nil:
			return err
		case r.State != Running:
			return fault.New(fault.Conflict, "the VM is %s; a scan takes a running VM", r.State)
		}
		// A job may have used up its attempts without storing an end.
		if _, err := tx.Exec(ctx, `UPDATE compliance_scans SET status = ?, error = ?, completed_at = ? WHERE vm_id = ?
			AND status = ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = job_id AND jobs.finished_at IS NULL)`,
			ScanFailed, "the scan was broken off", db.At(s.now()), vm, ScanRunning); err != nil {
			return err
		}
		if scan.Job, err = begin(tx, &r); err != nil {
			return err
		}
		scan.VM, scan.VMName, scan.Tenant, scan.Status = r.ID, r.Name, r.Tenant, ScanRunning
		scan.StartedAt = db.At(s.now())
		if err := tx.Insert(ctx, "compliance_scans", scan); db.IsUnique(err) {
			return fault.New(fault.Conflict, "the VM is being scanned already; wait for the end of that")
		} else if err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: "compliance.scan", Target: r.ID, Tenant: r.Tenant, Message: r.Name + ": " + scan.Profile,
		})
	})
	return scan, err
}

// Scan returns a scan in the caller's scope.
func (s *Store) Scan(ctx context.Context, id string) (scan Scan, err error) {
	condition, args := caller.From(ctx).Scope().And("id = ?", id).SQL()
	err = s.db.Get(ctx, &scan, "SELECT * FROM compliance_scans WHERE "+condition, args...)
	return scan, db.NotFound(err, "there is no such scan")
}

// Scans lists scans in the caller's scope, newest first, starting before an id. With vm, only those of
// VMs that had this name; with tenant, only those of its VMs.
func (s *Store) Scans(
	ctx context.Context, vm string, tenant *string, before string, limit int,
) (all []Scan, err error) {
	scope := caller.From(ctx).Scope()
	if vm != "" {
		scope = scope.And("vm_name = ?", vm)
	}
	if tenant != nil {
		scope = scope.And("tenant = ?", *tenant)
	}
	if before != "" {
		scope = scope.And("id < ?", before)
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM compliance_scans WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, limit)...)
}

// EndScan stores the end of a scan, unless it has ended or its VM was deleted, and forgets the VM's
// oldest ones.
func (s *Store) EndScan(ctx context.Context, scan Scan) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE compliance_scans SET status = ?, passed = ?, failed = ?, skipped = ?, findings = ?,
			error = ?, completed_at = ? WHERE id = ? AND status = ?`,
			scan.Status, scan.Passed, scan.Failed, scan.Skipped, scan.Findings, scan.Error, db.At(s.now()), scan.ID,
			ScanRunning); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM compliance_scans WHERE vm_id = ? AND status <> ? AND id NOT IN
			(SELECT id FROM compliance_scans WHERE vm_id = ? ORDER BY id DESC LIMIT ?)`,
			scan.VM, ScanRunning, scan.VM, maxScans)
		return err
	})
}

// NewestBackups lists the newest finished backups of a VM, newest first.
func (s *Store) NewestBackups(ctx context.Context, vm string, limit int) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all,
		"SELECT * FROM backups WHERE vm_id = ? AND repo_id <> '' ORDER BY id DESC LIMIT ?", vm, limit)
}
