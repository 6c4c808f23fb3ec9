package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// The reasons for which a job's context ends, as returned by context.Cause and Job.Progress.
// errors.Is matches all of them with context.Canceled.
var (
	ErrCancelled = fmt.Errorf("jobs: cancel was requested: %w", context.Canceled)
	ErrLeaseLost = fmt.Errorf("jobs: the lease was lost: %w", context.Canceled)
	ErrStopping  = fmt.Errorf("jobs: the process shuts down: %w", context.Canceled)
)

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent wraps an error that a retry would not fix. The job fails immediately. Permanent(nil) is
// nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// Job is a running job, as passed to its function.
type Job struct {
	ID          string
	Queue       string
	Kind        string
	Attempt     int64 // from 1
	MaxAttempts int64

	runner *Runner
	ctx    context.Context
	stop   context.CancelCauseFunc

	mu          sync.Mutex
	renewedAt   time.Time // the lease began here
	progressAt  time.Time // when progress was last stored
	progressing bool      // progressAt is set
}

// key identifies one holding of a lease.
func (j *Job) key() string { return fmt.Sprintf("%s/%d", j.ID, j.Attempt) }

func (j *Job) renewed(at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.renewedAt = at
}

func (j *Job) lastRenewal() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.renewedAt
}

// progressInterval is the minimum time between writes of Progress.
const progressInterval = time.Second

// Progress stores how much is done and renews the lease. Call it as often as convenient: it writes
// at most once a second, and always when done reaches a positive total. total is 0 if it is not
// known.
//
// If the job should stop, Progress returns the reason (ErrCancelled, ErrLeaseLost or ErrStopping),
// which the job's function should return too. Any other error comes from the database; the job may
// continue.
func (j *Job) Progress(ctx context.Context, done, total int64) error {
	if j.ctx.Err() != nil {
		return context.Cause(j.ctx)
	}
	now := j.runner.cfg.Now()
	j.mu.Lock()
	due := !j.progressing || now.Sub(j.progressAt) >= progressInterval || total > 0 && done >= total
	if due {
		j.progressAt, j.progressing = now, true
	}
	j.mu.Unlock()
	if !due {
		return nil
	}
	var cancelled bool
	err := j.runner.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		leased, err := j.runner.cfg.LeaseClock(ctx, tx)
		if err != nil {
			return err
		}
		return tx.Get(ctx, &cancelled, `UPDATE jobs SET progress_done = ?, progress_total = ?, lease_until = ?
			WHERE id = ? AND state = 'running' AND worker = ? AND attempt = ? RETURNING cancel_requested`,
			done, total, db.At(leased.Add(j.runner.cfg.Lease)), j.ID, j.runner.cfg.Worker, j.Attempt)
	})
	switch {
	case errors.Is(err, db.ErrNoRows):
		j.stop(ErrLeaseLost)
	case err != nil:
		return err
	case cancelled:
		j.stop(ErrCancelled)
	default:
		j.renewed(now)
	}
	return context.Cause(j.ctx) // nil while it is not stopped
}

// call runs the job's function and converts a panic to an error.
func (r *Runner) call(job *Job, args string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.cfg.Log.Error("jobs: panic", "job", job.ID, "kind", job.Kind, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return r.kinds[job.Kind].run(job.ctx, job, args)
}
