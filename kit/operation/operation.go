package operation

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations make the table operations, for db.DB.Migrate, after those of package jobs.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return sub
}

// Operation is what is known of every operation. A service that stores more embeds it.
type Operation struct {
	ID     string `db:"id"`
	Kind   string `db:"kind"`
	Tenant string `db:"tenant"` // whose it is; empty: nobody's in particular
	Actor  string `db:"actor"`  // who began it
	// KeyHash and RequestHash are those of the Key that it was begun with; empty: none.
	KeyHash     string  `db:"idempotency_key"`
	RequestHash string  `db:"request_sha256"`
	CreatedAt   db.Time `db:"created_at"`

	Job jobs.Record `db:"-"`
}

// Row is an Operation, or a service's row that embeds one.
type Row interface{ operation() *Operation }

func (o *Operation) operation() *Operation { return o }

// Progress is how much of the operation is done, from 0 to 1.
func (o *Operation) Progress() float64 {
	switch {
	case o.Job.State == jobs.Succeeded:
		return 1
	case o.Job.ProgressTotal <= 0:
		return 0
	}
	return float64(o.Job.ProgressDone) / float64(o.Job.ProgressTotal)
}

// States are the words of an API for the states of operations.
type States[S any] struct{ Queued, Running, Succeeded, Failed, Cancelled S }

// Of is the word for the state of an operation.
func (s States[S]) Of(o *Operation) S {
	switch o.Job.State {
	case jobs.Running:
		return s.Running
	case jobs.Succeeded:
		return s.Succeeded
	case jobs.Failed:
		return s.Failed
	case jobs.Cancelled:
		return s.Cancelled
	}
	return s.Queued
}

// ErrUnknown is that there is no operation. Services say the same of one that the caller may not see.
var ErrUnknown = fault.New(fault.NotFound, "there is no such operation, or no longer")

// Get reads an operation with its job into a row. It fails with ErrUnknown.
func Get(ctx context.Context, q db.Querier, id string, row Row) error {
	if err := q.Get(ctx, row, "SELECT * FROM operations WHERE id = ?", id); err != nil {
		if errors.Is(err, db.ErrNoRows) {
			return ErrUnknown
		}
		return err
	}
	return ReadJob(ctx, q, row)
}

// ReadJob completes a row of the table operations by its job.
func ReadJob(ctx context.Context, q db.Querier, row Row) (err error) {
	o := row.operation()
	o.Job, err = jobs.Get(ctx, q, o.ID)
	return err
}
