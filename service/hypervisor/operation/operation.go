// Package operation runs the daemon's operations (kit/operation) in the caller's scope and with
// audit entries. Each kind is registered by the package that does the work.
//
// It imports caller and record.
package operation

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	kit "github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// workers is the number of operations that run concurrently, workersOfTenant that of one tenant.
const (
	workers         = 4
	workersOfTenant = 2
)

// Config holds the dependencies of a Runner.
type Config struct {
	Store    *record.Store
	DB       *db.DB // of the jobs
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	// Ending is done when the daemon ends: then nobody waits for operations any longer.
	Ending context.Context
}

// Runner runs operations.
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

// Run runs operations until ctx ends.
func (r *Runner) Run(ctx context.Context) error { return r.kit.Run(ctx) }

// Expire deletes old finished operations.
func (r *Runner) Expire(ctx context.Context) error { return r.kit.Expire(ctx) }

// Kind defines how operations of a kind are run.
type Kind[T any] = kit.Kind[T]

// Register registers k for operations of a kind.
func Register[T any](r *Runner, kind string, k Kind[T]) { kit.Register(r.kit, kind, k) }

// BrokenOff reports whether an operation is interrupted because the daemon ends. It will be
// repeated on the next start.
func BrokenOff(ctx context.Context) bool { return kit.BrokenOff(ctx) }

// Begin stores an operation with the arguments of its job, which enqueues it.
func (r *Runner) Begin(
	ctx context.Context, op record.Operation, args any, entry audit.Entry,
) (record.Operation, error) {
	c := caller.From(ctx)
	if op.Actor = c.Name; op.Tenant == "" {
		op.Tenant = c.Tenant
	}
	err := r.store.AddOperation(ctx, entry, func(tx *db.Tx) error { return r.kit.Begin(ctx, tx, &op, args) })
	return op, err
}

// Once returns the operation that begin starts, or the one that the caller started earlier with the
// same request and the same idempotency key (word). Without a key, every request starts a new one.
func (r *Runner) Once(
	ctx context.Context, word string, request any, begin func(context.Context) (record.Operation, error),
) (record.Operation, error) {
	return kit.Once(ctx, r.kit, caller.From(ctx).Key(), word, request, r.store.Operation, begin)
}

// Await returns an operation as soon as it has finished, or when limit is reached.
func (r *Runner) Await(ctx context.Context, id string, limit time.Duration) (record.Operation, error) {
	op, err := r.store.Operation(ctx, id)
	if err == nil {
		err = r.kit.Await(ctx, &op, limit)
	}
	return op, err
}

// Cancel requests the cancellation of an operation.
func (r *Runner) Cancel(ctx context.Context, id string) (record.Operation, error) {
	op, err := r.store.Operation(ctx, id)
	if err != nil {
		return op, err
	}
	var ended bool
	err = r.store.CancelOperation(ctx, &op, func(tx *db.Tx) (err error) {
		ended, err = r.kit.Cancel(ctx, tx, id)
		return err
	})
	if err != nil {
		return op, err
	}
	if op, err = r.store.Operation(ctx, id); err != nil || !ended {
		return op, err
	}
	return op, r.kit.CleanUp(ctx, &op.Operation)
}

// Doom stores that a VM is being deleted and cancels its operations.
func (r *Runner) Doom(ctx context.Context, id string) (record.VM, error) {
	return r.store.Doom(ctx, id, func(tx *db.Tx, operation string) error {
		_, err := r.kit.Cancel(ctx, tx, operation) // what it would clean up is deleted with the VM
		return err
	})
}
