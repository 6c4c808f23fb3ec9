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
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// queue is the one queue of operations.
const queue = "operations"

// workers is how many operations run at once, and workersOfTenant how many of one tenant, so that
// operations that take long, or hang, do not hold up those of other tenants.
const (
	workers         = 4
	workersOfTenant = 2
)

// progressScale is what a whole operation counts.
const progressScale = 1000

// enqueue begins an operation.
func (s *Service) enqueue(ctx context.Context, op record.Operation, args any, entry audit.Entry) (record.Operation, error) {
	if op.Tenant == "" {
		op.Tenant = caller.From(ctx).Tenant
	}
	return s.store.AddOperation(ctx, op, entry, func(tx *db.Tx) (string, error) {
		return s.jobs.Enqueue(ctx, tx, op.Kind, args, jobs.Options{MaxAttempts: 3, Group: op.Tenant})
	})
}

// operations registers what runs behind operations.
func (s *Service) operations() {
	register(s, record.OperationImage, func(ctx context.Context, a Addition, progress func(float64)) error {
		return s.runAddition(shell.As(ctx, a.Actor), a, progress)
	})
	register(s, record.OperationBackup, func(ctx context.Context, a backupArgs, progress func(float64)) error {
		return s.runBackup(shell.As(ctx, a.Actor), a, progress)
	})
	for kind, run := range map[string]func(context.Context, copyArgs, func(float64)) error{record.OperationClone: s.runClone, record.OperationRestore: s.runRestore} {
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

// AwaitOperation is an operation as soon as it has ended, or the time is over.
func (s *Service) AwaitOperation(ctx context.Context, id string, limit time.Duration) (record.Operation, error) {
	op, err := s.store.Operation(ctx, id)
	if err != nil || limit == 0 || op.Job.State.Finished() {
		return op, err
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(s.machines.Ending(), cancel)
	defer stop()
	if _, err := s.jobs.Wait(waiting, id); err != nil && waiting.Err() == nil {
		return op, err
	}
	return s.store.Operation(ctx, id)
}

// CancelOperation asks an operation to end.
func (s *Service) CancelOperation(ctx context.Context, id string) (record.Operation, error) {
	op, err := s.store.Operation(ctx, id)
	if err != nil {
		return op, err
	}
	if err := s.store.CancelOperation(ctx, &op, func(tx *db.Tx) error { return s.jobs.Cancel(ctx, tx, id) }); err != nil {
		return op, err
	}
	if op, err = s.store.Operation(ctx, id); err != nil || !op.Job.State.Finished() {
		return op, err // one that runs cleans up after itself
	}
	switch op.Kind {
	case record.OperationClone, record.OperationRestore:
		err = s.unmake(ctx, op.VM, "the operation was cancelled")
	case record.OperationImage:
		err = s.contents.Drop(incomingOf(op.Job.Args))
	}
	return op, err
}
