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

// Migrations returns the migrations of the table operations, for db.DB.Migrate. Apply them after
// those of package jobs.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// Operation holds the columns that all operations have. A service that stores more embeds it.
type Operation struct {
	ID     string `db:"id"`
	Kind   string `db:"kind"`
	Tenant string `db:"tenant"` // the owner; empty: none
	Actor  string `db:"actor"`  // the caller who started it
	// KeyHash and RequestHash are those of the operation's Key. They are empty if it has none.
	KeyHash     string  `db:"idempotency_key"`
	RequestHash string  `db:"request_sha256"`
	CreatedAt   db.Time `db:"created_at"`

	Job jobs.Record `db:"-"`
}

// Row is an *Operation, or a service's row that embeds one.
type Row interface{ operation() *Operation }

func (o *Operation) operation() *Operation { return o }

// Progress returns the completed part of the operation, from 0 to 1.
func (o *Operation) Progress() float64 {
	switch {
	case o.Job.State == jobs.Succeeded:
		return 1
	case o.Job.ProgressTotal <= 0:
		return 0
	}
	return float64(o.Job.ProgressDone) / float64(o.Job.ProgressTotal)
}

// Revision stands for what callers see of an operation: it differs when its state, its progress or its attempt does,
// and is the same on every replica.
func (o *Operation) Revision() int64 {
	const (
		perAttempt  = 4096
		first, wait = 1, perAttempt - 2
		last        = perAttempt - 1
	)
	step := int64(wait)
	switch {
	case o.Job.State.Finished():
		step = last
	case o.Job.State == jobs.Running:
		step = first + int64(o.Progress()*progressScale)
	}
	return o.Job.Attempt*perAttempt + step
}

// States holds an API's words for the states of operations.
type States[S any] struct{ Queued, Running, Succeeded, Failed, Cancelled S }

// Of returns the word for an operation's state.
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

// ErrUnknown means that the operation does not exist. Services also return it for an operation that
// the caller may not see.
var ErrUnknown = fault.New(fault.NotFound, "there is no such operation, or no longer")

// Get reads an operation with its job into a row. It returns ErrUnknown if there is none.
func Get(ctx context.Context, q db.Querier, id string, row Row) error {
	if err := q.Get(ctx, row, "SELECT * FROM operations WHERE id = ?", id); err != nil {
		if errors.Is(err, db.ErrNoRows) {
			return ErrUnknown
		}
		return err
	}
	return ReadJob(ctx, q, row)
}

// ReadJob reads the job of a row of the table operations.
func ReadJob(ctx context.Context, q db.Querier, row Row) (err error) {
	o := row.operation()
	o.Job, err = jobs.Get(ctx, q, o.ID)
	return err
}
