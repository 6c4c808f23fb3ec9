package operation

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
)

// Life is how long an operation is kept after it has ended.
const Life = 24 * time.Hour

// expirePage is how many rows Expire deletes in one transaction.
const expirePage = 500

// queue is the only queue of operations.
const queue = "operations"

// progressScale is the stored progress of a complete operation.
const progressScale = 1000

// Config holds the dependencies and limits of a Runner.
type Config struct {
	DB       *db.DB
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
	Now      func() time.Time
	// Workers limits how many operations run at once, and WorkersOfTenant how many of one tenant,
	// so that long or hanging operations do not delay those of other tenants.
	Workers, WorkersOfTenant int
	// Ending is canceled when the service stops. Await then returns early.
	Ending context.Context
}

// Runner runs operations.
type Runner struct {
	db        *db.DB
	jobs      *jobs.Runner
	log       *slog.Logger
	now       func() time.Time
	ending    context.Context
	cancelled map[string]func(ctx context.Context, args string) error // by kind
	claimed   sync.Map                                                // of the hashes of keys
}

// New returns a Runner. Register all kinds before Run.
func New(c Config) *Runner {
	return &Runner{
		db: c.DB, log: c.Log, now: c.Now, ending: c.Ending,
		cancelled: map[string]func(context.Context, string) error{},
		jobs: jobs.New(jobs.Config{
			DB:       c.DB,
			Queues:   map[string]int{queue: c.Workers},
			PerGroup: map[string]int{queue: c.WorkersOfTenant},
			Lease:    10 * time.Second,
			Worker:   uuid.NewString(),
			Log:      c.Log,
			Registry: c.Registry,
			Now:      c.Now,
			Rand:     rand.Float64,
		})}
}

// Run runs operations until ctx ends.
func (r *Runner) Run(ctx context.Context) error { return r.jobs.Run(ctx) }

// Pause keeps all replicas from starting operations, or lets them start again. Those that run go on.
func (r *Runner) Pause(ctx context.Context, tx *db.Tx, paused bool) error {
	if paused {
		return r.jobs.Pause(ctx, tx, queue)
	}
	return r.jobs.Resume(ctx, tx, queue)
}

// Begin stores an operation and its job with args in the caller's transaction. The caller sets
// kind, tenant, actor and the service's own columns in row; Begin sets the rest. If another request
// has just used the same key (WithKey), it fails with a Conflict fault.
func (r *Runner) Begin(ctx context.Context, tx *db.Tx, row Row, args any) (err error) {
	o := row.operation()
	if key, ok := ctx.Value(keyKey{}).(Key); ok {
		o.KeyHash, o.RequestHash = key.hash, key.request
	}
	// Failed jobs are not retried; jobs that the end of the process interrupted are.
	if o.ID, err = r.jobs.Enqueue(ctx, tx, o.Kind, args, jobs.Options{MaxAttempts: 3, Group: o.Tenant}); err != nil {
		return err
	}
	o.CreatedAt = db.At(r.now())
	err = tx.Insert(ctx, "operations", row)
	if o.KeyHash != "" && db.IsUnique(err) {
		return errTwice
	}
	return errors.Join(err, ReadJob(ctx, tx, row))
}

// Kind holds the functions for operations of a kind.
type Kind[T any] struct {
	Run func(ctx context.Context, args T, progress func(float64)) error
	// Cancelled cleans up after an operation that was cancelled while pending. It may be called
	// more than once. Nil means that there is nothing to clean up.
	Cancelled func(ctx context.Context, args T) error
}

// Register sets the functions for operations of a kind.
func Register[T any](r *Runner, kind string, k Kind[T]) {
	if k.Cancelled != nil {
		r.cancelled[kind] = func(ctx context.Context, raw string) error {
			var args T
			if err := json.Unmarshal([]byte(raw), &args); err != nil {
				return err
			}
			return k.Cancelled(ctx, args)
		}
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
		return jobs.Permanent(&failure{text: publicText(err, job.ID), fault: fault.From(err)})
	})
}

// BrokenOff reports whether an operation is ending because this process stops or has lost its
// lease, so that it will run again.
func BrokenOff(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, jobs.ErrStopping) || errors.Is(cause, jobs.ErrLeaseLost)
}

// failure is why an operation failed, as its callers see it.
type failure struct {
	text  string
	fault *fault.Error
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() error { return f.fault }

// publicText returns the message of an error for the caller. For Internal errors it adds the
// operation's id, under which the log has the details.
func publicText(err error, operation string) string {
	f := fault.From(err)
	if f.Kind != fault.Internal {
		return f.Message
	}
	return f.Message + "; the service's log has the details under operation " + operation
}

// Await waits until an operation has ended, at most limit, and reads it again.
func (r *Runner) Await(ctx context.Context, row Row, limit time.Duration) error {
	o := row.operation()
	if limit == 0 || o.Job.State.Finished() {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(r.ending, cancel)
	defer stop()
	if _, err := r.jobs.Wait(waiting, o.ID); err != nil && waiting.Err() == nil {
		return err
	}
	return Get(ctx, r.db, o.ID, row)
}

// Cancel cancels an operation. ended is true if it was not running; the caller must then call
// CleanUp after the transaction. A running operation stops soon and cleans up after itself.
func (r *Runner) Cancel(ctx context.Context, tx *db.Tx, id string) (ended bool, err error) {
	if err := r.jobs.Cancel(ctx, tx, id); err != nil {
		return false, err
	}
	job, err := jobs.Get(ctx, tx, id)
	return job.State.Finished(), err
}

// CleanUp cleans up after an operation that was cancelled while pending. It may be called again.
func (r *Runner) CleanUp(ctx context.Context, o *Operation) error {
	if cleanUp := r.cancelled[o.Kind]; cleanUp != nil {
		return cleanUp(ctx, o.Job.Args)
	}
	return nil
}

// Expire deletes operations that ended more than Life ago.
//
// Rows of operations go first: without its row an operation is not found, while a row without its job
// could not be read.
func (r *Runner) Expire(ctx context.Context) error {
	before := r.now().Add(-Life)
	if _, err := r.db.DeletePages(
		ctx, expirePage,
		`DELETE FROM operations WHERE id IN (SELECT operations.id FROM jobs JOIN operations ON operations.id = jobs.id
			WHERE jobs.finished_at IS NOT NULL AND jobs.finished_at < ? LIMIT ?)`,
		db.At(before),
	); err != nil {
		return err
	}
	_, err := jobs.DeleteFinished(ctx, r.db, before, expirePage)
	return err
}
