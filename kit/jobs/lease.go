package jobs

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// keepLeases renews the leases of all running jobs together, after a third of their length, and
// stops jobs whose lease is about to expire. Sixths leave room for two tries against a database
// that hangs.
func (r *Runner) keepLeases(ctx context.Context) {
	sixth := r.cfg.Lease / 6
	tick := time.NewTicker(max(min(r.cfg.Poll, sixth), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := r.cfg.Now()
		jobs, due := r.held(), false
		for _, job := range jobs {
			due = due || now.Sub(job.lastRenewal()) >= r.cfg.Lease/3
		}
		if due {
			r.leases.Report(r.renew(ctx, jobs, now))
		}
		now = r.cfg.Now()
		for _, job := range jobs {
			if now.Sub(job.lastRenewal()) >= r.cfg.Lease-sixth {
				job.stop(ErrLeaseLost)
			}
		}
	}
}

func (r *Runner) renew(ctx context.Context, jobs []*Job, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease/6)
	defer cancel()
	ids := make([]string, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	type row struct {
		ID              string `db:"id"`
		Attempt         int64  `db:"attempt"`
		CancelRequested bool   `db:"cancel_requested"`
	}
	var rows []row
	if err := r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		rows = nil // the transaction may run again
		leased, err := r.cfg.LeaseClock(ctx, tx)
		if err != nil {
			return err
		}
		query, args, err := db.In(`UPDATE jobs SET lease_until = ? WHERE state = 'running' AND worker = ? AND id IN (?)
			RETURNING id, attempt, cancel_requested`, db.At(leased.Add(r.cfg.Lease)), r.cfg.Worker, ids)
		if err != nil {
			return err
		}
		return tx.Select(ctx, &rows, query, args...)
	}); err != nil {
		return err
	}
	ours := make(map[string]row, len(rows))
	for _, w := range rows {
		ours[w.ID] = w
	}
	for _, job := range jobs {
		switch w, ok := ours[job.ID]; {
		case !ok || w.Attempt != job.Attempt:
			job.stop(ErrLeaseLost) // harmless if it has just finished
		case w.CancelRequested:
			job.stop(ErrCancelled)
			fallthrough
		default:
			job.renewed(now)
		}
	}
	return nil
}
