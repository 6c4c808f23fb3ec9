package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Job is work that takes long, and what it is about.
type Job struct {
	operation.Operation
	VM     string `db:"vm_id"`
	VMName string `db:"vm_name"` // when the job began
	Backup string `db:"backup_id"`
}

// Kinds of jobs. Those that begin with "vm." change a VM, and there is at most one of them for each.
const (
	JobProvision = "vm.provision"
	JobStart     = "vm.start"
	JobRestore   = "vm.restore"
	JobBackup    = "backup.create"
	JobVerify    = "backup.verify"
	JobBoot      = "backup.boot"
)

// JobRef names an unfinished job that changes a VM.
type JobRef struct {
	ID   string `db:"id"`
	Kind string `db:"kind"`
}

// errBusy is the fault for a request that needs the VM while a job changes it.
func errBusy(j *JobRef) error {
	return fault.New(fault.Conflict, "job %s (%s) is changing the VM; wait for it, or cancel it", j.ID, j.Kind)
}

// NewJob returns a job of a kind for a VM that has not begun.
func NewJob(kind string, r *VM) Job {
	return Job{Operation: operation.Operation{Kind: kind, Tenant: r.Tenant}, VM: r.ID, VMName: r.Name}
}

// Jobs lists jobs in the caller's scope, newest first, starting before an id. With vm, only those of
// the VM with this id.
func (s *Store) Jobs(ctx context.Context, vm, before string, limit int) ([]Job, error) {
	scope := caller.From(ctx).Scope()
	if vm != "" {
		scope = scope.And("vm_id = ?", vm)
	}
	return s.jobs(ctx, scope, before, limit)
}

// BackupJobs is Jobs for those that make backups or restore them.
func (s *Store) BackupJobs(ctx context.Context, before string, limit int) ([]Job, error) {
	return s.jobs(ctx, caller.From(ctx).Scope().And("kind IN (?, ?)", JobBackup, JobRestore), before, limit)
}

func (s *Store) jobs(ctx context.Context, scope db.Scope, before string, limit int) ([]Job, error) {
	if before != "" {
		scope = scope.And("id < ?", before)
	}
	condition, args := scope.SQL()
	var jobs []Job
	if err := s.db.Select(ctx, &jobs,
		"SELECT * FROM operations WHERE "+condition+" ORDER BY id DESC LIMIT ?", append(args, limit)...); err != nil {
		return nil, err
	}
	for i := range jobs {
		if err := operation.ReadJob(ctx, s.db, &jobs[i]); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// Job returns a job in the caller's scope.
func (s *Store) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	if err := operation.Get(ctx, s.db, id, &j); err != nil {
		return j, err
	}
	if !caller.From(ctx).Sees(j.Tenant) {
		return Job{}, operation.ErrUnknown
	}
	return j, nil
}

// CancelJob calls cancel, which cancels the job, and writes an audit entry, in one transaction.
func (s *Store) CancelJob(ctx context.Context, j *Job, cancel func(tx *db.Tx) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if err := cancel(tx); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "job.cancel", Target: j.ID, Tenant: j.Tenant, Message: j.Kind})
	})
}

// Busy returns a fault that names the job that changes the VM, or nil if none does.
func (r *VM) Busy() error {
	if r.Job == nil {
		return nil
	}
	return errBusy(r.Job)
}

// Start stores that a VM is to start, and begins the job. With follow, a job that makes the VM goes on
// with the start.
func (s *Store) Start(
	ctx context.Context, id string, follow bool, entry audit.Entry, begin func(tx *db.Tx, r *VM) error,
) (VM, error) {
	var r VM
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		r, err = s.change(ctx, tx, id, func(r *VM) (kind, message string, err error) {
			switch {
			case r.State == Running || r.State == Starting || r.State == Stopping || r.State == Paused:
				return "", "", fault.New(fault.Conflict, "the VM is %s already", r.State)
			case r.State == Missing:
				return "", "", fault.New(fault.Conflict,
					"the hypervisor daemon does not know the VM any more; restore it from a backup, or delete it")
			case r.Job != nil && (!follow || r.Job.Kind != JobProvision):
				return "", "", errBusy(r.Job)
			}
			r.State, r.LastError = Starting, ""
			return EventState, string(Starting), nil
		})
		if err != nil {
			return err
		}
		if r.Job == nil || r.Provisioned() { // a job that has made the VM does not look for a start any more
			if err := begin(tx, &r); err != nil {
				return err
			}
		}
		entry.Target, entry.Tenant = r.ID, r.Tenant
		return s.note(ctx, tx, entry)
	})
	if err != nil {
		return r, err
	}
	return s.VM(ctx, id)
}
