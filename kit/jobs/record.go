package jobs

import (
	"context"
	"embed"
	"io/fs"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// Record is a stored job.
type Record struct {
	ID              string  `db:"id"` // a UUIDv7: ids order by creation
	Queue           string  `db:"queue"`
	Kind            string  `db:"kind"`
	Args            string  `db:"args"` // JSON
	State           State   `db:"state"`
	Attempt         int64   `db:"attempt"` // how often it was claimed, not counting shutdowns
	MaxAttempts     int64   `db:"max_attempts"`
	RunAt           db.Time `db:"run_at"`      // not claimed before this time
	LeaseUntil      db.Time `db:"lease_until"` // zero unless running
	Worker          string  `db:"worker"`      // the worker that runs it, or ran it last
	ProgressDone    int64   `db:"progress_done"`
	ProgressTotal   int64   `db:"progress_total"` // 0 when unknown
	Error           string  `db:"error"`          // of the latest failed attempt; for operators
	ErrorCode       string  `db:"error_code"`     // of Error: the public code of its fault; empty: it has none
	UniqueKey       string  `db:"unique_key"`
	CancelRequested bool    `db:"cancel_requested"`
	CreatedAt       db.Time `db:"created_at"`
	StartedAt       db.Time `db:"started_at"` // of the latest attempt
	FinishedAt      db.Time `db:"finished_at"`
	Group           string  `db:"job_group"` // Options.Group; empty: none
}

func (r *Record) status() status {
	return status{State: r.State, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, CancelRequested: r.CancelRequested}
}

// Get returns one job, or a NotFound fault.
func Get(ctx context.Context, q db.Querier, id string) (Record, error) {
	var r Record
	err := q.Get(ctx, &r, "SELECT * FROM jobs WHERE id = ?", id)
	return r, db.NotFound(err, "there is no job %s", id)
}

// Filter selects jobs; zero fields select all.
type Filter struct {
	Queue string
	Kind  string
	State State
	After string // the id of the last job of the page before
	Limit int    // 0 means 100; at most 1000
}

// List returns jobs, the newest first.
func List(ctx context.Context, q db.Querier, f Filter) ([]Record, error) {
	where, args := []string{"1 = 1"}, []any{}
	add := func(cond, arg string) {
		if arg != "" {
			where, args = append(where, cond), append(args, arg)
		}
	}
	add("queue = ?", f.Queue)
	add("kind = ?", f.Kind)
	add("state = ?", string(f.State))
	add("id < ?", f.After)
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	records := []Record{}
	err := q.Select(
		ctx, &records, "SELECT * FROM jobs WHERE "+strings.Join(where, " AND ")+" ORDER BY id DESC LIMIT ?",
		append(args, min(limit, 1000))...)
	return records, err
}

// PausedQueues returns the names of the paused queues in order.
func PausedQueues(ctx context.Context, q db.Querier) ([]string, error) {
	names := []string{}
	err := q.Select(ctx, &names, "SELECT name FROM job_queues WHERE paused ORDER BY name")
	return names, err
}

// DeleteFinished deletes the jobs that finished before the given time, in transactions of at most
// limit rows so that other writers do not wait long, until none are left or ctx ends. It returns
// how many it deleted, also with an error.
func DeleteFinished(ctx context.Context, d *db.DB, before time.Time, limit int) (int64, error) {
	return d.DeletePages(
		ctx, int64(limit),
		"DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE finished_at IS NOT NULL AND finished_at < ? LIMIT ?)",
		db.At(before),
	)
}
