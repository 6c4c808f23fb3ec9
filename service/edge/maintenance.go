package edge

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// What is kept, and for how long, besides events, whose retention is configured.
// The audit log is kept for ever.
const (
	keepActivity     = 100_000 // lines
	keepDeadLetters  = 30 * 24 * time.Hour
	keepResolved     = 30 * 24 * time.Hour // resolved alerts
	keepRouteMinutes = 48 * time.Hour
	keepFinishedJobs = 7 * 24 * time.Hour
	retentionPage    = 2000 // rows a transaction deletes
)

// expire deletes what is older than it is kept, in small transactions.
func (s *Service) expire(ctx context.Context) error {
	now := s.now()
	var errs []error
	errs = append(errs, s.expireEvents(ctx), s.deleteExpiredTokens(ctx), s.expireDeadLetters(ctx))
	for _, d := range []struct {
		query string
		args  []any
	}{
		{"DELETE FROM activity WHERE seq IN (SELECT seq FROM activity WHERE seq <= (SELECT value - ? FROM counters WHERE name = 'activity') ORDER BY seq LIMIT ?)", []any{keepActivity, retentionPage}},
		{"DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE status = 'resolved' AND resolved_at < ? LIMIT ?)", []any{db.At(now.Add(-keepResolved)), retentionPage}},
		{"DELETE FROM route_minutes WHERE minute < ?", []any{db.At(now.Add(-keepRouteMinutes))}},
	} {
		errs = append(errs, s.deletePages(ctx, d.query, d.args...))
	}
	_, err := jobs.DeleteFinished(ctx, s.db, now.Add(-keepFinishedJobs), retentionPage)
	return errors.Join(append(errs, err)...)
}

// deletePages runs a DELETE until it finds less than a page.
func (s *Service) deletePages(ctx context.Context, query string, args ...any) error {
	for {
		var n int64
		err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
			n, err = tx.Exec(ctx, query, args...)
			return err
		})
		if err != nil || n < retentionPage {
			return err
		}
	}
}

// expireEvents deletes events that are too old or, oldest first, too many, but
// none that is still to be delivered.
func (s *Service) expireEvents(ctx context.Context) error {
	cut, err := s.retentionCut(ctx)
	if err != nil {
		return err
	}
	var oldestPending *int64
	if err := s.db.Get(ctx, &oldestPending, "SELECT MIN(event_seq) FROM deliveries"); err != nil {
		return err
	}
	if oldestPending != nil {
		cut = min(cut, *oldestPending)
	}
	if err := s.deletePages(ctx, "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq < ? ORDER BY seq LIMIT ?)", cut, retentionPage); err != nil {
		return err
	}
	// Rates look back an hour; the marks of older minutes go with their events.
	return s.deletePages(ctx, "DELETE FROM event_minutes WHERE minute < ? AND first_seq < ?", db.At(s.now().Add(-2*time.Hour)), cut)
}

// retentionCut is the number of the first event that is kept.
func (s *Service) retentionCut(ctx context.Context) (int64, error) {
	var minutes []struct {
		Minute   db.Time `db:"minute"`
		FirstSeq int64   `db:"first_seq"`
		Bytes    int64   `db:"bytes"`
	}
	// A week has ten thousand minutes.
	if err := s.db.Select(ctx, &minutes, "SELECT minute, MIN(first_seq) AS first_seq, CAST(SUM(bytes) AS BIGINT) AS bytes FROM event_minutes GROUP BY minute ORDER BY minute DESC"); err != nil {
		return 0, err
	}
	var cut int64
	if err := s.db.Get(ctx, &cut, "SELECT value + 1 FROM counters WHERE name = 'event'"); err != nil {
		return 0, err
	}
	oldest, size := s.now().Add(-s.cfg.RetentionAge), int64(0)
	for _, m := range minutes {
		if size += m.Bytes; m.Minute.Add(time.Minute).Before(oldest) || size > int64(s.cfg.RetentionSize) {
			break
		}
		cut = m.FirstSeq
	}
	return cut, nil
}

func (s *Service) expireDeadLetters(ctx context.Context) error {
	for {
		var gone []string
		err := s.db.Update(ctx, func(tx *db.Tx) error {
			gone = nil
			if err := tx.Select(ctx, &gone, "DELETE FROM deadletters WHERE id IN (SELECT id FROM deadletters WHERE status = 'dead' AND created_at < ? ORDER BY created_at LIMIT ?) RETURNING org_id",
				db.At(s.now().Add(-keepDeadLetters)), retentionPage); err != nil {
				return err
			}
			byOrg := map[string]int64{}
			for _, org := range gone {
				byOrg[org]++
			}
			for org, n := range byOrg {
				if err := tally.Add(ctx, tx, org, tally.DeadLetter, "dead", -n); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(gone) < retentionPage {
			return err
		}
	}
}
