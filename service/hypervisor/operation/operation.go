// Package operation runs what takes long: durable jobs (kit/jobs), which callers follow as
// operations. Each kind is registered by the room that does the work.
//
// # Invariants
//
//   - What fails fails for good. What the daemon's end broke off is done again from its beginning.
//   - What a caller reads of a failure names no inner detail; the log has that, with the
//     operation's id.
//   - An operation that is cancelled before it began is cleaned up by its kind; one that runs
//     cleans up after itself.
//
// It imports caller and record.
package operation

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
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

// Config is what a Runner stands on.
type Config struct {
	Store    *record.Store
	DB       *db.DB // of the jobs
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	// Ending ends when the daemon does: nobody waits for an operation any longer.
	Ending context.Context
}

// Runner runs operations.
type Runner struct {
	store     *record.Store
	jobs      *jobs.Runner
	log       *slog.Logger
	ending    context.Context
	cancelled map[string]func(ctx context.Context, op *record.Operation) error // by kind
}

// New makes a Runner. Kinds are registered before it runs.
func New(c Config) *Runner {
	return &Runner{store: c.Store, log: c.Log, ending: c.Ending,
		cancelled: map[string]func(context.Context, *record.Operation) error{},
		jobs: jobs.New(jobs.Config{
			DB:       c.DB,
			Queues:   map[string]int{queue: workers},
			PerGroup: map[string]int{queue: workersOfTenant},
			Lease:    10 * time.Second,
			Worker:   record.NewID(),
			Log:      c.Log,
			Registry: c.Registry,
			Now:      c.Now,
			Rand:     rand.Float64,
		})}
}

// Run runs operations until ctx ends.
func (r *Runner) Run(ctx context.Context) error { return r.jobs.Run(ctx) }

// Begin stores an operation with the arguments of its job.
func (r *Runner) Begin(
	ctx context.Context, op record.Operation, args any, entry audit.Entry,
) (record.Operation, error) {
	if op.Tenant == "" {
		op.Tenant = caller.From(ctx).Tenant
	}
	return r.store.AddOperation(ctx, op, entry, func(tx *db.Tx) (string, error) {
		return r.jobs.Enqueue(ctx, tx, op.Kind, args, jobs.Options{MaxAttempts: 3, Group: op.Tenant})
	})
}

// Kind is how operations of a kind are done.
type Kind[T any] struct {
	Run func(ctx context.Context, args T, progress func(float64)) error
	// Cancelled cleans up after one that was cancelled before it began; nil: there is nothing.
	Cancelled func(ctx context.Context, op *record.Operation) error
}

// Register has the operations of a kind done as k says.
func Register[T any](r *Runner, kind string, k Kind[T]) {
	if k.Cancelled != nil {
		r.cancelled[kind] = k.Cancelled
	}
	jobs.Register(r.jobs, queue, kind, func(ctx context.Context, job *jobs.Job, args T) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := k.Run(ctx, args, func(done float64) {
			err := job.Progress(ctx, int64(min(max(done, 0), 1)*progressScale), progressScale)
			if errors.Is(err, context.Canceled) {
				cancel(err)
			}
		})
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		r.log.Warn("an operation failed", "kind", kind, "operation", job.ID, "error", err)
		return jobs.Permanent(errors.New(publicText(err, job.ID)))
	})
}

// BrokenOff says whether an operation ends because the daemon does, and will be taken up
// again.
func BrokenOff(ctx context.Context) bool {
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

// Await reads an operation as soon as it has ended, or the time is over.
func (r *Runner) Await(ctx context.Context, id string, limit time.Duration) (record.Operation, error) {
	op, err := r.store.Operation(ctx, id)
	if err != nil || limit == 0 || op.Job.State.Finished() {
		return op, err
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(r.ending, cancel)
	defer stop()
	if _, err := r.jobs.Wait(waiting, id); err != nil && waiting.Err() == nil {
		return op, err
	}
	return r.store.Operation(ctx, id)
}

// Cancel asks an operation to end.
func (r *Runner) Cancel(ctx context.Context, id string) (record.Operation, error) {
	op, err := r.store.Operation(ctx, id)
	if err != nil {
		return op, err
	}
	cancel := func(tx *db.Tx) error { return r.jobs.Cancel(ctx, tx, id) }
	if err := r.store.CancelOperation(ctx, &op, cancel); err != nil {
		return op, err
	}
	if op, err = r.store.Operation(ctx, id); err != nil || !op.Job.State.Finished() {
		return op, err // one that runs cleans up after itself
	}
	if cleanUp := r.cancelled[op.Kind]; cleanUp != nil {
		err = cleanUp(ctx, &op)
	}
	return op, err
}

// Doom stores that a VM is to be deleted, and cancels its operations.
func (r *Runner) Doom(ctx context.Context, id string) (record.VM, error) {
	return r.store.Doom(ctx, id, func(tx *db.Tx, operation string) error { return r.jobs.Cancel(ctx, tx, operation) })
}
