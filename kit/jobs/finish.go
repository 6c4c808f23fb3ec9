package jobs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// maxError limits the stored text of an error, in bytes.
const maxError = 2 << 10

// finishTries is how often the end of a job is stored before its lease is left to expire.
const finishTries = 5

// finish stores the outcome of a job whose function returned err.
func (r *Runner) finish(ctx context.Context, job *Job, err error) {
	log := r.cfg.Log.With("job", job.ID, "kind", job.Kind, "attempt", job.Attempt)
	for try := 1; ; try++ {
		outcome, storeErr := r.storeEnd(ctx, job, err)
		switch {
		case storeErr == nil && outcome == lost:
			log.Warn("jobs: the lease was lost; another worker decides what becomes of the job", "error", err)
			return
		case storeErr == nil:
			if err != nil && outcome != Cancelled {
				log.Warn("jobs: failed", "state", outcome, "error", err)
			}
			return
		case try == finishTries:
			log.Error("jobs: cannot store the end of the job; it will run again", "error", storeErr)
			return
		}
		log.Warn("jobs: cannot store the end of the job yet", "error", storeErr)
		time.Sleep(r.cfg.Poll)
	}
}

// lost is the outcome of a job whose lease this worker no longer holds.
const lost State = ""

func (r *Runner) storeEnd(ctx context.Context, job *Job, err error) (outcome State, _ error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease/3)
	defer cancel()
	now := r.cfg.Now()
	e, runAt := succeeded, now
	switch {
	case err == nil:
	case errors.As(err, new(permanent)):
		e = failedForGood
	case errors.Is(context.Cause(job.ctx), ErrStopping):
		// Whatever the error says, the most likely cause is that the context was canceled.
		e = handedBack
	default:
		e, runAt = failed, now.Add(retries.Delay(int(job.Attempt)-1, r.cfg.Rand))
	}
	storeErr := r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		var record Record
		outcome = lost
		readErr := tx.Get(
			ctx, &record,
			"SELECT * FROM jobs WHERE id = ? AND state = 'running' AND worker = ? AND attempt = ?"+tx.ForUpdate(),
			job.ID, r.cfg.Worker, job.Attempt,
		)
		if errors.Is(readErr, db.ErrNoRows) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
		text, code := record.Error, record.ErrorCode
		switch e {
		case succeeded:
			text, code = "", ""
		case failed, failedForGood:
			if !record.CancelRequested || !errors.Is(err, context.Canceled) { // stopping as asked is not an error
				text, code = err.Error(), codeOf(err)
			}
		case handedBack:
			runAt = record.RunAt.Time // keeps its place in the queue
		}
		var settleErr error
		outcome, settleErr = r.settle(ctx, tx, record, e, text, code, runAt)
		return settleErr
	})
	return outcome, storeErr
}

// settle ends a holding of the lease: the job becomes available again at runAt, or is finished.
// record must be locked by tx.
func (r *Runner) settle(
	ctx context.Context, tx *db.Tx, record Record, e event, text, code string, runAt time.Time,
) (State, error) {
	next, _ := record.status().on(e) // callers select running jobs only
	var finishedAt db.Time
	if next.State.Finished() {
		finishedAt = db.At(r.cfg.Now())
		tx.OnCommit(func() { r.finished(record, next.State) })
	} else {
		tx.OnCommit(r.wakeUp)
	}
	_, err := tx.Exec(
		ctx,
		"UPDATE jobs SET state = ?, attempt = ?, run_at = ?, lease_until = ?, error = ?, error_code = ?, finished_at = ? WHERE id = ?",
		next.State, next.Attempt, db.At(runAt), db.Time{}, cut(text), code, finishedAt, record.ID,
	)
	return next.State, err
}

// codeOf returns the public code of the fault in an error's chain, or "" if there is none.
func codeOf(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.PublicCode()
	}
	return ""
}

// cut truncates text to maxError and removes what PostgreSQL cannot store.
func cut(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > maxError {
		text = text[:maxError]
	}
	return strings.ToValidUTF8(text, "")
}

// finished wakes the callers in this process that wait for the job.
func (r *Runner) finished(record Record, state State) {
	r.metrics.finished.WithLabelValues(record.Queue, record.Kind, string(state)).Inc()
	r.mu.Lock()
	waiting := r.waiting[record.ID]
	delete(r.waiting, record.ID)
	r.mu.Unlock()
	for _, w := range waiting {
		close(w)
	}
}
