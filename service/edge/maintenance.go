package edge

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

// Limits of what is kept. The retention of events is configured, and the audit log is kept forever.
const (
	keepActivity     = 100_000 // lines
	keepDeadLetters  = 30 * 24 * time.Hour
	keepResolved     = 30 * 24 * time.Hour // resolved alerts
	keepMinutes      = 48 * time.Hour      // counts per minute; see History
	keepFinishedJobs = 7 * 24 * time.Hour
	retentionPage    = 2000 // rows deleted per transaction
)

// expire deletes data past its retention, in small transactions.
func (s *Service) expire(ctx context.Context) error {
	now := s.now()
	var errs []error
	errs = append(errs, s.buryStray(ctx), s.expireEvents(ctx), s.deleteExpiredTokens(ctx), s.expireDeadLetters(ctx))
	_, err := s.db.DeletePages(
		ctx, retentionPage,
		"DELETE FROM activity WHERE seq IN (SELECT seq FROM activity WHERE seq <= "+
			"(SELECT value - ? FROM counters WHERE name = 'activity') ORDER BY seq LIMIT ?)",
		keepActivity,
	)
	errs = append(errs, err, topicmap.Expire(ctx, s.db, retentionPage), s.alerts.Expire(ctx, now.Add(-keepResolved)))
	errs = append(errs, delivery.Minutes.DeleteBefore(ctx, s.db, now.Add(-keepMinutes)))
	errs = append(errs, delivery.OrgMinutes.DeleteBefore(ctx, s.db, now.Add(-keepMinutes)))
	_, err = jobs.DeleteFinished(ctx, s.db, now.Add(-keepFinishedJobs), retentionPage)
	return errors.Join(append(errs, err)...)
}

// expireEvents deletes events that are too old and, oldest first, those that exceed RetentionSize.
// It never deletes events that are still to be delivered. Each page is selected and deleted in one
// transaction.
func (s *Service) expireEvents(ctx context.Context) error {
	for {
		var deleted int64
		err := s.db.Update(ctx, func(tx *db.Tx) error {
			cut, err := s.retentionCut(ctx, tx)
			if err != nil {
				return err
			}
			if deleted, err = tx.Exec(
				ctx, "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq < ? ORDER BY seq LIMIT ?)",
				cut.event, retentionPage,
			); err != nil {
				return err
			}
			if deleted < retentionPage {
				_, err = tx.Exec(
					ctx, "DELETE FROM event_minutes WHERE minute < ? AND first_seq < ?", db.At(cut.minute), cut.event,
				)
			}
			return err
		})
		if err != nil || deleted < retentionPage {
			return err
		}
	}
}

// retention is what to keep: events from a sequence number on, and event minutes from a time on.
type retention struct {
	event  int64
	minute time.Time
}

// retentionCut returns what to keep. It reads the counter first. Events are numbered in commit
// order, so every event accepted after that has a higher number and is kept. Every event with a
// lower number is committed, together with its minutes and deliveries, and visible to the reads
// that follow.
func (s *Service) retentionCut(ctx context.Context, tx *db.Tx) (retention, error) {
	var cut retention
	if err := tx.Get(ctx, &cut.event, "SELECT value + 1 FROM counters WHERE name = 'event'"); err != nil {
		return cut, err
	}
	pause(ctx, "counter read")
	oldest, err := delivery.OldestPending(ctx, tx)
	if err != nil {
		return cut, err
	}
	cut.event = min(cut.event, oldest)
	pause(ctx, "deliveries read")
	var minutes []struct {
		Minute   db.Time `db:"minute"`
		FirstSeq int64   `db:"first_seq"`
		Bytes    int64   `db:"bytes"`
	}
	// A week has about ten thousand minutes.
	if err := tx.Select(
		ctx, &minutes,
		"SELECT minute, MIN(first_seq) AS first_seq, CAST(SUM(bytes) AS BIGINT) AS bytes FROM event_minutes GROUP BY minute ORDER BY minute DESC",
	); err != nil {
		return cut, err
	}
	pause(ctx, "minutes read")
	now := s.now()
	oldestKept, size, limit := now.Add(-s.cfg.RetentionAge), int64(0), int64(s.cfg.RetentionSize)
	cut.minute = now.Add(-keepMinutes)
	kept := cut.event
	for _, m := range minutes {
		if m.Minute.Add(time.Minute).Before(oldestKept) {
			break
		}
		if m.Minute.Before(cut.minute) {
			cut.minute = m.Minute.Time
		}
		// The clocks of replicas differ, so a later minute may start with an earlier number.
		first := min(kept, m.FirstSeq)
		if size += m.Bytes; size > limit {
			// If a minute does not fit as a whole, its newest events stay.
			kept = first + int64(float64(kept-first)*float64(size-limit)/float64(m.Bytes))
			break
		}
		kept = first
	}
	cut.event = kept
	return cut, nil
}

type pauseKey struct{}

// pause is a hook between the steps of maintenance, where tests run concurrent changes.
func pause(ctx context.Context, at string) {
	if f, ok := ctx.Value(pauseKey{}).(func(at string)); ok {
		f(at)
	}
}

func (s *Service) expireDeadLetters(ctx context.Context) error {
	for {
		var gone []string
		err := s.db.Update(ctx, func(tx *db.Tx) error {
			gone = nil
			// The status is checked twice: PostgreSQL evaluates the outer condition again after it
			// has waited for a replay that changed the dead letter.
			if err := tx.Select(
				ctx, &gone,
				"DELETE FROM deadletters WHERE id IN (SELECT id FROM deadletters WHERE status = 'dead' AND created_at < ? ORDER BY created_at LIMIT ?) AND status = 'dead' RETURNING org_id",
				db.At(s.now().Add(-keepDeadLetters)), retentionPage,
			); err != nil {
				return err
			}
			byOrg := map[string]int64{}
			for _, org := range gone {
				byOrg[org]++
			}
			for org, n := range byOrg {
				tally.Add(tx, org, tally.DeadLetter, "dead", -n)
			}
			return nil
		})
		if err != nil || len(gone) < retentionPage {
			return err
		}
	}
}
