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

// Life is how long an operation is kept after its end.
const Life = 24 * time.Hour

// queue is the one queue of operations.
const queue = "operations"

// progressScale is what a whole operation counts.
const progressScale = 1000

// Config is what a Runner stands on.
type Config struct {
	DB       *db.DB
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
	Now      func() time.Time
	// Workers is how many operations run at once, and WorkersOfTenant how many of one tenant, so
	// that operations that take long, or hang, do not hold up those of other tenants.
	Workers, WorkersOfTenant int
	// Ending ends when the service does: nobody waits for an operation any longer.
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

// New makes a Runner. Kinds are registered before it runs.
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

// Begin stores an operation in the caller's transaction, with the arguments of its job. The row has
// its kind, tenant and actor, and what the service stores beside; Begin sets the rest. With a key
// (WithKey) that another request has just used, it fails with a Conflict fault.
func (r *Runner) Begin(ctx context.Context, tx *db.Tx, row Row, args any) (err error) {
	o := row.operation()
	if key, ok := ctx.Value(keyKey{}).(Key); ok {
		o.KeyHash, o.RequestHash = key.hash, key.request
	}
	// What failed is not tried again; what the process's end broke off is.
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

// Kind is how operations of a kind are done.
type Kind[T any] struct {
	Run func(ctx context.Context, args T, progress func(float64)) error
	// Cancelled cleans up after one that was cancelled while it did not run; nil: there is nothing. It
	// may be called again.
	Cancelled func(ctx context.Context, args T) error
}

// Register has the operations of a kind done as k says.
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
		return jobs.Permanent(errors.New(publicText(err, job.ID)))
	})
}

// BrokenOff says whether an operation ends because the process does, and will be taken up again.
func BrokenOff(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, jobs.ErrStopping) || errors.Is(cause, jobs.ErrLeaseLost)
}

// publicText is an error of an operation as the caller may read it. The log has the details of the
// service's own failure under the operation's id.
func publicText(err error, operation string) string {
	f := fault.From(err)
	if f.Kind != fault.Internal {
		return f.Message
	}
	return f.Message + "; the daemon's log has the details under operation " + operation
}

// Await reads an operation again as soon as it has ended, or the time is over.
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

// Cancel asks an operation to end. It has ended if it did not run: call CleanUp then, after the
// transaction. One that runs ends soon, and cleans up after itself.
func (r *Runner) Cancel(ctx context.Context, tx *db.Tx, id string) (ended bool, err error) {
	if err := r.jobs.Cancel(ctx, tx, id); err != nil {
		return false, err
	}
	job, err := jobs.Get(ctx, tx, id)
	return job.State.Finished(), err
}

// CleanUp cleans up after an operation that was cancelled while it did not run. It can be repeated.
func (r *Runner) CleanUp(ctx context.Context, o *Operation) error {
	if cleanUp := r.cancelled[o.Kind]; cleanUp != nil {
		return cleanUp(ctx, o.Job.Args)
	}
	return nil
}

// Expire forgets operations that have ended, Life after that.
func (r *Runner) Expire(ctx context.Context) error {
	if _, err := jobs.DeleteFinished(ctx, r.db, r.now().Add(-Life), 500); err != nil {
		return err
	}
	return r.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx,
			"DELETE FROM operations WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = operations.id)")
		return err
	})
}
