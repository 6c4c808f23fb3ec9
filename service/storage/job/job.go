// Package job runs the gateway's jobs (kit/operation) in the caller's scope and with audit entries. Each kind
// is registered by the package that does the work. With PostgreSQL, every replica takes part.
//
// It imports caller and record.
package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	kit "github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// workers is the number of jobs that a replica runs at once, workersOfTenant that of one tenant.
const (
	workers         = 16
	workersOfTenant = 8
)

// Config holds the dependencies of a Runner.
type Config struct {
	Store    *record.Store
	DB       *db.DB
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
	Now      func() time.Time
	Ending   context.Context // done when the service ends: then nobody waits for jobs any longer
}

// Runner runs jobs.
type Runner struct {
	store *record.Store
	kit   *kit.Runner
}

// New returns a Runner. All kinds must be registered before Run.
func New(c Config) *Runner {
	return &Runner{store: c.Store, kit: kit.New(kit.Config{
		DB: c.DB, Log: c.Log, Registry: c.Registry, Now: c.Now, Ending: c.Ending,
		Workers: workers, WorkersOfTenant: workersOfTenant,
	})}
}

// Run runs jobs until ctx ends.
func (r *Runner) Run(ctx context.Context) error { return r.kit.Run(ctx) }

// SetPaused keeps all replicas from starting jobs, or lets them start again.
func (r *Runner) SetPaused(ctx context.Context, paused bool) error {
	return r.store.SetMaintenance(ctx, paused, func(tx *db.Tx) error { return r.kit.Pause(ctx, tx, paused) })
}

// Expire deletes jobs that ended more than a day ago.
func (r *Runner) Expire(ctx context.Context) error { return r.kit.Expire(ctx) }

// Kind defines how jobs of a kind are run.
type Kind[T any] = kit.Kind[T]

// Register registers k for jobs of a kind. They run as the gateway itself.
func Register[T any](r *Runner, kind string, k Kind[T]) {
	run, cancelled := k.Run, k.Cancelled
	k.Run = func(ctx context.Context, args T, progress func(float64)) error {
		return run(caller.ByItself(ctx), args, progress)
	}
	if cancelled != nil {
		k.Cancelled = func(ctx context.Context, args T) error { return cancelled(caller.ByItself(ctx), args) }
	}
	kit.Register(r.kit, kind, k)
}

// BrokenOff reports whether a job is interrupted because the service ends. It will be repeated.
func BrokenOff(ctx context.Context) bool { return kit.BrokenOff(ctx) }

// Begin stores a job with its arguments in the transaction of the change that it belongs to.
func (r *Runner) Begin(ctx context.Context, tx *db.Tx, j *record.Job, args any) error {
	j.Actor = caller.From(ctx).Name
	return r.kit.Begin(ctx, tx, j, args)
}

// Once returns the job that begin starts, or the one that the caller started earlier with the same request and the
// same idempotency key (word). Without a key, every request starts a new one.
func (r *Runner) Once(
	ctx context.Context, who, word string, request any, begin func(context.Context) (record.Job, error),
) (record.Job, error) {
	return kit.Once(ctx, r.kit, who, word, request, r.store.Job, begin)
}

// Await returns a job as soon as it has ended, or when limit is reached.
func (r *Runner) Await(ctx context.Context, id string, limit time.Duration) (record.Job, error) {
	j, err := r.store.Job(ctx, id)
	if err == nil {
		err = r.kit.Await(ctx, &j, limit)
	}
	return j, err
}

// Cancel asks for the end of a job.
func (r *Runner) Cancel(ctx context.Context, id string) (record.Job, error) {
	j, err := r.store.Job(ctx, id)
	if err != nil {
		return j, err
	}
	var ended bool
	err = r.store.CancelJob(ctx, &j, func(tx *db.Tx) (err error) {
		ended, err = r.kit.Cancel(ctx, tx, id)
		return err
	})
	if err != nil {
		return j, err
	}
	if j, err = r.store.Job(ctx, id); err != nil || !ended {
		return j, err
	}
	return j, r.kit.CleanUp(ctx, &j.Operation)
}
