package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Cancel cancels a pending job, and asks a running one to stop: immediately in this process, within
// a third of the lease in another. It does nothing if the job was already cancelled. Faults:
// NotFound, and Conflict if the job has succeeded or failed.
func (r *Runner) Cancel(ctx context.Context, tx *db.Tx, id string) error {
	var record Record
	if err := tx.Get(ctx, &record, "SELECT * FROM jobs WHERE id = ?"+tx.ForUpdate(), id); err != nil {
		return db.NotFound(err, "there is no job %s", id)
	}
	if record.CancelRequested {
		return nil
	}
	next, ok := record.status().on(cancelAsked)
	if !ok {
		return fault.New(fault.Conflict, "job %s has %s already", id, record.State)
	}
	var finishedAt db.Time
	if next.State.Finished() {
		finishedAt = db.At(r.cfg.Now())
		tx.OnCommit(func() { r.finished(record, next.State) })
	} else {
		tx.OnCommit(func() {
			for _, job := range r.held() {
				if job.ID == id && job.Attempt == record.Attempt {
					job.stop(ErrCancelled)
				}
			}
		})
	}
	_, err := tx.Exec(
		ctx, "UPDATE jobs SET state = ?, cancel_requested = ?, finished_at = ? WHERE id = ?", next.State,
		next.CancelRequested, finishedAt, id,
	)
	return err
}

// Pause keeps all replicas from claiming jobs of a queue. Running jobs continue.
func (r *Runner) Pause(ctx context.Context, tx *db.Tx, queue string) error {
	return setPaused(ctx, tx, queue, true)
}

// Resume reverses Pause.
func (r *Runner) Resume(ctx context.Context, tx *db.Tx, queue string) error {
	tx.OnCommit(r.wakeUp)
	return setPaused(ctx, tx, queue, false)
}

func setPaused(ctx context.Context, tx *db.Tx, queue string, paused bool) error {
	_, err := tx.Exec(
		ctx,
		"INSERT INTO job_queues (name, paused) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET paused = excluded.paused",
		queue, paused,
	)
	return err
}

// Wait returns the job once it is finished, or ctx's error. It notices within Config.Poll if a job
// finishes in another replica. Faults: NotFound.
func (r *Runner) Wait(ctx context.Context, id string) (Record, error) {
	poll := time.NewTicker(r.cfg.Poll)
	defer poll.Stop()
	signal := make(chan struct{})
	r.mu.Lock()
	r.waiting[id] = append(r.waiting[id], signal)
	r.mu.Unlock()
	defer r.forget(id, signal)
	for {
		record, err := Get(ctx, r.cfg.DB, id)
		if err != nil || record.State.Finished() {
			return record, err
		}
		select {
		case <-ctx.Done():
			return record, ctx.Err()
		case <-signal:
			signal = nil // closed; the next read sees the end
		case <-poll.C:
		}
	}
}

func (r *Runner) forget(id string, signal chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(r.waiting[id], func(c chan struct{}) bool { return c == signal })
	if len(left) == 0 {
		delete(r.waiting, id)
		return
	}
	r.waiting[id] = left
}
