package qmp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// progressEvery is the polling interval for a job's progress, for which QEMU sends no events.
const progressEvery = 200 * time.Millisecond

// JobError is the failure or cancellation of a job in QEMU.
type JobError struct {
	ID, Description string
}

func (e *JobError) Error() string { return "QEMU's job " + e.ID + ": " + e.Description }

// ErrNoJob is returned for a job that QEMU does not have.
var ErrNoJob = errors.New("there is no such job (was it created without auto-dismiss=false?)")

type job struct {
	ID      string  `json:"id"`
	Status  string  `json:"status"`
	Current int64   `json:"current-progress"`
	Total   int64   `json:"total-progress"`
	Error   *string `json:"error"`
}

// WaitJob waits until a job has concluded and dismisses it. If it failed or was cancelled, the
// error is a *JobError. Jobs that dismiss themselves by default, which are those on block devices,
// must be created with auto-dismiss=false, or their result is lost. WaitJob also waits for jobs
// that must be completed or finalized manually.
//
// If progress is not nil, it is called by this goroutine at the start, at the end and periodically
// in between, in units of the job, usually bytes; total may grow.
//
// When ctx ends, the job is left as it is.
func (c *Client) WaitJob(ctx context.Context, id string, progress func(current, total int64)) error {
	changes := c.Subscribe(EventJobStatusChange)
	defer changes.Close()
	for {
		j, err := c.job(ctx, id)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(j.Current, j.Total)
		}
		if j.Status == "concluded" {
			return c.conclude(ctx, j)
		}
		if err := nextChange(ctx, changes, id, progress != nil); err != nil {
			return fmt.Errorf("wait for QEMU's job %s: %w", id, err)
		}
	}
}

// EndJob cancels a job that nobody waits for, waits for its end and dismisses it. It is not an
// error if it does not exist or has ended.
func (c *Client) EndJob(ctx context.Context, id string) error {
	// QEMU refuses if the job has ended or does not exist.
	if err := c.Execute(ctx, "job-cancel", map[string]string{"id": id}, nil); err != nil &&
		!errors.As(err, new(*Error)) {
		return err
	}
	err := c.WaitJob(ctx, id, nil)
	if errors.Is(err, ErrNoJob) || errors.As(err, new(*JobError)) {
		return nil
	}
	return err
}

func (c *Client) job(ctx context.Context, id string) (job, error) {
	var all []job
	if err := c.Execute(ctx, "query-jobs", nil, &all); err != nil {
		return job{}, err
	}
	for _, j := range all {
		if j.ID == id {
			return j, nil
		}
	}
	return job{}, fmt.Errorf("QEMU's job %s: %w", id, ErrNoJob)
}

func (c *Client) conclude(ctx context.Context, j job) error {
	var failed error
	if j.Error != nil {
		failed = &JobError{ID: j.ID, Description: clip(*j.Error)}
	}
	dismissed := c.Execute(ctx, "job-dismiss", map[string]string{"id": j.ID}, nil)
	return errors.Join(failed, dismissed)
}

// nextChange waits until the job may have changed: its state, or its progress.
func nextChange(ctx context.Context, changes *Subscription, id string, progress bool) error {
	wait := ctx
	if progress {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, progressEvery)
		defer cancel()
	}
	for {
		e, err := changes.Next(wait)
		if err != nil && ctx.Err() == nil && wait.Err() != nil {
			return nil // time to look at the progress
		}
		if err != nil {
			return err
		}
		var change struct {
			ID string `json:"id"`
		}
		if err := e.Decode(&change); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if change.ID == id || e.Missed > 0 {
			return nil
		}
	}
}
