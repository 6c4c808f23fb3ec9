package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// MaxArgs limits the JSON of a job's args, in bytes.
const MaxArgs = 256 << 10

// Options refine Enqueue; the zero value is a job that runs as soon as possible.
type Options struct {
	// UniqueKey, if not empty, makes Enqueue return the unfinished job of the same kind and key
	// instead of adding another. If that job is running, it may already have read its input.
	UniqueKey string
	// RunAt is the earliest start; zero means now.
	RunAt time.Time
	// MaxAttempts includes the first run; 0 means 10.
	MaxAttempts int
	// Group is the group that the job belongs to, such as a tenant. See Config.PerGroup.
	Group string
}

// Enqueue adds a job in the caller's transaction and returns its id. args are
// stored as JSON, at most MaxArgs (else a TooLarge fault). The kind must be
// registered with this Runner.
func (r *Runner) Enqueue(ctx context.Context, tx *db.Tx, kind string, args any, o Options) (string, error) {
	k, ok := r.kinds[kind]
	if !ok {
		return "", fmt.Errorf("jobs: kind %s is not registered", kind)
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		return "", fmt.Errorf("jobs: encode args of %s: %w", kind, err)
	}
	if len(encoded) > MaxArgs {
		return "", fault.New(
			fault.TooLarge, "the args of a %s job take %d bytes, more than %d", kind, len(encoded), MaxArgs,
		)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("jobs: make id: %w", err)
	}
	now := r.cfg.Now()
	if o.RunAt.IsZero() {
		o.RunAt = now
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 10
	}
	// A retry is needed if the conflicting job has finished in between.
	for range 3 {
		n, err := tx.Exec(
			ctx,
			`INSERT INTO jobs (id, queue, kind, args, state, attempt, max_attempts, run_at, worker,
				progress_done, progress_total, error, unique_key, cancel_requested, created_at, job_group)
			VALUES (?, ?, ?, ?, ?, 0, ?, ?, '', 0, 0, '', ?, FALSE, ?, ?) ON CONFLICT DO NOTHING`,
			id.String(),
			k.queue,
			kind,
			string(encoded),
			Available,
			o.MaxAttempts,
			db.At(o.RunAt),
			o.UniqueKey,
			db.At(now),
			o.Group,
		)
		if err != nil {
			return "", fmt.Errorf("jobs: enqueue %s: %w", kind, err)
		}
		if n == 1 {
			tx.OnCommit(r.wakeUp)
			return id.String(), nil
		}
		var existing string
		err = tx.Get(
			ctx, &existing,
			"SELECT id FROM jobs WHERE kind = ? AND unique_key = ? AND unique_key <> '' AND state IN ('available', 'running')",
			kind, o.UniqueKey,
		)
		if !errors.Is(err, db.ErrNoRows) {
			return existing, err
		}
	}
	return "", fault.New(fault.Unavailable, "the %s job %q changes too quickly; try again", kind, o.UniqueKey)
}
