package hypervisor

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Operation is what takes long: a durable job, and what it is about.
type Operation struct {
	ID        string  `db:"id"`
	Kind      string  `db:"kind"`
	Tenant    string  `db:"tenant"`
	VM        string  `db:"vm_id"`
	Backup    string  `db:"backup_id"`
	Image     string  `db:"image"`
	CreatedAt db.Time `db:"created_at"`

	Job jobs.Record `db:"-"`
}

// queue is the one queue of operations.
const queue = "operations"

// workers is how many operations run at once, and workersOfTenant how many of one tenant, so that
// operations that take long, or hang, do not hold up those of other tenants.
const (
	workers         = 4
	workersOfTenant = 2
)

// operationLife is how long an operation that has ended can be asked for.
const operationLife = 24 * time.Hour

// progressScale is what a whole operation counts.
const progressScale = 1000

// enqueue begins an operation, together with what else the caller changes.
func (s *Service) enqueue(ctx context.Context, op Operation, args any, entry audit.Entry, also ...func(tx *db.Tx) error) (Operation, error) {
	if op.Tenant == "" {
		op.Tenant = caller.From(ctx).Tenant
	}
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if op.ID, err = s.jobs.Enqueue(ctx, tx, op.Kind, args, jobs.Options{MaxAttempts: 3, Group: op.Tenant}); err != nil {
			return err
		}
		op.CreatedAt = db.At(s.now())
		for _, f := range also {
			if err := f(tx); err != nil {
				return err
			}
		}
		if err := tx.Insert(ctx, "operations", struct {
			ID        string  `db:"id"`
			Kind      string  `db:"kind"`
			Tenant    string  `db:"tenant"`
			VM        string  `db:"vm_id"`
			Backup    string  `db:"backup_id"`
			Image     string  `db:"image"`
			CreatedAt db.Time `db:"created_at"`
		}{op.ID, op.Kind, op.Tenant, op.VM, op.Backup, op.Image, op.CreatedAt}); err != nil {
			return err
		}
		return s.note(ctx, tx, entry)
	})
	if err != nil {
		return op, err
	}
	op.Job, err = jobs.Get(ctx, s.db, op.ID)
	return op, err
}

// operations registers what runs behind operations.
func (s *Service) operations() {
	register(s, kindImage, func(ctx context.Context, a Addition, progress func(float64)) error {
		return s.runAddition(shell.As(ctx, a.Actor), a, progress)
	})
	register(s, kindBackup, func(ctx context.Context, a backupArgs, progress func(float64)) error {
		return s.runBackup(shell.As(ctx, a.Actor), a, progress)
	})
	for kind, run := range map[string]func(context.Context, copyArgs, func(float64)) error{kindClone: s.runClone, kindRestore: s.runRestore} {
		register(s, kind, func(ctx context.Context, a copyArgs, progress func(float64)) error {
			ctx = shell.As(ctx, a.Actor)
			err := run(ctx, a, progress)
			if err == nil || brokenOff(ctx) {
				return err
			}
			return errors.Join(err, s.unmake(ctx, a.VM, fault.From(err).Message))
		})
	}
}

// register has the jobs of a kind done by run. What fails fails for good; only what was
// broken off by the daemon's end is tried again.
func register[T any](s *Service, kind string, run func(ctx context.Context, args T, progress func(float64)) error) {
	jobs.Register(s.jobs, queue, kind, func(ctx context.Context, job *jobs.Job, args T) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := run(ctx, args, func(done float64) {
			if err := job.Progress(ctx, int64(min(max(done, 0), 1)*progressScale), progressScale); errors.Is(err, context.Canceled) {
				cancel(err)
			}
		})
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		s.log.Warn("an operation failed", "kind", kind, "operation", job.ID, "error", err)
		return jobs.Permanent(errors.New(publicText(err, job.ID)))
	})
}

// brokenOff says whether an operation ends because the daemon does, and will be taken up
// again.
func brokenOff(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, jobs.ErrStopping) || errors.Is(cause, jobs.ErrLeaseLost)
}

// publicText is an error of an operation as the caller may read it. The log has the details
// of the daemon's own failure under the operation's id.
func publicText(err error, operation string) string {
	f := fault.From(err)
	if f.Kind != fault.Internal {
		return f.Message
	}
	return f.Message + "; the daemon's log has the details under operation " + operation
}

// Operations lists operations in the caller's scope, newest first, before an id.
func (s *Service) Operations(ctx context.Context, before string, limit int) ([]Operation, error) {
	query, args := "SELECT * FROM operations WHERE 1 = 1", []any{}
	if c := caller.From(ctx); c.Tenant != "" {
		query, args = query+" AND tenant = ?", append(args, c.Tenant)
	}
	if before != "" {
		query, args = query+" AND id < ?", append(args, before)
	}
	var ops []Operation
	if err := s.db.Select(ctx, &ops, query+" ORDER BY id DESC LIMIT ?", append(args, limit)...); err != nil {
		return nil, err
	}
	for i := range ops {
		job, err := jobs.Get(ctx, s.db, ops[i].ID)
		if err != nil {
			return nil, err
		}
		ops[i].Job = job
	}
	return ops, nil
}

// Operation reads one.
func (s *Service) Operation(ctx context.Context, id string) (Operation, error) {
	var op Operation
	err := s.db.Get(ctx, &op, "SELECT * FROM operations WHERE id = ?", id)
	if err == nil && !caller.From(ctx).Sees(op.Tenant) {
		err = db.ErrNoRows
	}
	if err != nil {
		return op, db.NotFound(err, "there is no such operation, or no longer")
	}
	op.Job, err = jobs.Get(ctx, s.db, id)
	return op, err
}

// AwaitOperation is Operation as soon as it has ended, or the time is over.
func (s *Service) AwaitOperation(ctx context.Context, id string, limit time.Duration) (Operation, error) {
	op, err := s.Operation(ctx, id)
	if err != nil || limit == 0 || op.Job.State.Finished() {
		return op, err
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(s.ending, cancel)
	defer stop()
	if _, err := s.jobs.Wait(waiting, id); err != nil && waiting.Err() == nil {
		return op, err
	}
	return s.Operation(ctx, id)
}

// CancelOperation asks an operation to end.
func (s *Service) CancelOperation(ctx context.Context, id string) (Operation, error) {
	op, err := s.Operation(ctx, id)
	if err != nil {
		return op, err
	}
	if err := s.db.Update(ctx, func(tx *db.Tx) error {
		if err := s.jobs.Cancel(ctx, tx, id); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "operation.cancel", Target: id, Tenant: op.Tenant})
	}); err != nil {
		return op, err
	}
	if op, err = s.Operation(ctx, id); err != nil || !op.Job.State.Finished() {
		return op, err // one that runs cleans up after itself
	}
	switch op.Kind {
	case kindClone, kindRestore:
		err = s.unmake(ctx, op.VM, "the operation was cancelled")
	case kindImage:
		err = s.contents.Drop(incomingOf(op.Job.Args))
	}
	return op, err
}

// expireOperations forgets operations that ended a day ago.
func (s *Service) expireOperations(ctx context.Context) error {
	if _, err := jobs.DeleteFinished(ctx, s.db, s.now().Add(-operationLife), 500); err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM operations WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = operations.id)")
		return err
	})
}
