package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// sweep limits how many expired leases one claim settles.
const sweep = 100

// claim claims as many due jobs as there are idle workers, and starts them.
func (r *Runner) claim(ctx context.Context) error {
	queues, workers, kinds := r.free()
	if len(queues) == 0 || len(kinds) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease/3)
	defer cancel()

	// Reading first keeps an idle runner off SQLite's single writer. The transaction decides
	// whether another worker's lease has expired.
	now := r.cfg.Now()
	query, args, err := db.In(
		`SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND (worker <> ? OR lease_until <= ?))
		OR EXISTS (SELECT 1 FROM jobs WHERE state = 'available' AND queue IN (?) AND run_at <= ? AND kind IN (?)
			AND queue NOT IN (SELECT name FROM job_queues WHERE paused))`,
		r.cfg.Worker,
		db.At(now),
		queues,
		db.At(now),
		kinds,
	)
	if err != nil {
		return err
	}
	var one int
	if err := r.cfg.DB.Get(ctx, &one, query, args...); errors.Is(err, db.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}

	var taken []Record
	err = r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		taken = nil // the transaction may run again
		leased, err := r.cfg.LeaseClock(ctx, tx)
		if err != nil {
			return err
		}
		if err := r.settleExpired(ctx, tx, leased); err != nil {
			return err
		}
		for _, queue := range queues {
			records, err := r.take(ctx, tx, now, leased.Add(r.cfg.Lease), queue, kinds, workers[queue])
			if err != nil {
				return err
			}
			taken = append(taken, records...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, record := range taken {
		r.start(context.WithoutCancel(ctx), record, now)
	}
	return nil
}

// take claims up to limit due jobs of one queue.
func (r *Runner) take(
	ctx context.Context, tx *db.Tx, now, until time.Time, queue string, kinds []string, limit int,
) ([]Record, error) {
	perGroup := r.cfg.PerGroup[queue]
	if perGroup == 0 {
		return r.takeNext(ctx, tx, now, until, queue, kinds, limit, "", "")
	}
	// One at a time, since each claim changes its group's count.
	const runningOfGroup = "(SELECT COUNT(*) FROM jobs other WHERE other.state = 'running' AND other.queue = jobs.queue AND other.job_group = jobs.job_group)"
	var taken []Record
	for range limit {
		next, err := r.takeNext(
			ctx, tx, now, until, queue, kinds, 1, fmt.Sprintf(" AND %s < %d", runningOfGroup, perGroup),
			runningOfGroup+", ",
		)
		if err != nil || len(next) == 0 {
			return taken, err
		}
		taken = append(taken, next...)
	}
	return taken, nil
}

// takeNext claims up to limit due jobs of one queue that meet a further condition. order is
// prepended to the usual order.
func (r *Runner) takeNext(
	ctx context.Context, tx *db.Tx, now, until time.Time, queue string, kinds []string, limit int, and, order string,
) ([]Record, error) {
	query, args, err := db.In(
		`SELECT * FROM jobs WHERE state = 'available' AND queue = ? AND run_at <= ? AND kind IN (?)
		AND queue NOT IN (SELECT name FROM job_queues WHERE paused)`+and+` ORDER BY `+order+`run_at, id LIMIT ?`,
		queue,
		db.At(now),
		kinds,
		limit,
	)
	if err != nil {
		return nil, err
	}
	var records []Record
	if err := tx.Select(ctx, &records, query+tx.ForUpdateSkipLocked(), args...); err != nil {
		return nil, err
	}
	for i := range records {
		record := &records[i]
		next, _ := record.status().on(claimed) // the query selects available jobs only
		record.State, record.Attempt = next.State, next.Attempt
		if _, err := tx.Exec(
			ctx, "UPDATE jobs SET state = ?, attempt = ?, lease_until = ?, worker = ?, started_at = ? WHERE id = ?",
			next.State, next.Attempt, db.At(until), r.cfg.Worker, db.At(now), record.ID,
		); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// settleExpired releases the jobs of workers that are gone.
func (r *Runner) settleExpired(ctx context.Context, tx *db.Tx, now time.Time) error {
	var expired []Record
	if err := tx.Select(
		ctx, &expired,
		"SELECT * FROM jobs WHERE state = 'running' AND lease_until <= ? ORDER BY lease_until LIMIT ?"+tx.ForUpdateSkipLocked(),
		db.At(now), sweep,
	); err != nil {
		return err
	}
	for _, record := range expired {
		// No backoff: waiting for the lease to expire has already spaced the attempts.
		if _, err := r.settle(
			ctx, tx, record, leaseExpired, "the worker "+record.Worker+" disappeared", "", record.RunAt.Time,
		); err != nil {
			return err
		}
	}
	return nil
}

// start runs a claimed job whose lease begins now.
func (r *Runner) start(ctx context.Context, record Record, now time.Time) {
	jobCtx, stop := context.WithCancelCause(ctx)
	r.run(ctx, &Job{
		ID: record.ID, Queue: record.Queue, Kind: record.Kind, Attempt: record.Attempt, MaxAttempts: record.MaxAttempts,
		runner: r, ctx: jobCtx, stop: stop, renewedAt: now,
	}, record.Args)
}
