package edge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// DeadLetterFilter selects dead letters; zero fields select all.
type DeadLetterFilter struct {
	SiteID, RouteID, Reason string
	After                   string // the cursor of the last dead letter of the previous page
	Limit                   int
}

// deadLetterCursor returns the list position of a dead letter. The order is newest first, then by
// descending ID.
func deadLetterCursor(d delivery.DeadLetter) string {
	return strconv.FormatInt(d.CreatedAt.UnixMicro(), 10) + " " + d.ID
}

// DeadLetters lists dead letters newest first.
func (s *Service) DeadLetters(ctx context.Context, f DeadLetterFilter) ([]delivery.DeadLetter, error) {
	where, args := callerFrom(ctx).scope().SQL()
	for column, value := range map[string]string{"site_id": f.SiteID, "route_id": f.RouteID, "reason": f.Reason} {
		if value != "" {
			where, args = where+" AND "+column+" = ?", append(args, value)
		}
	}
	if f.After != "" {
		micros, id, _ := strings.Cut(f.After, " ")
		at, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return nil, fault.InvalidField("cursor", "is not from this list")
		}
		where, args = where+" AND (created_at < ? OR created_at = ? AND id < ?)", append(args, at, at, id)
	}
	letters := []delivery.DeadLetter{}
	err := s.db.Select(
		ctx, &letters, "SELECT * FROM deadletters WHERE "+where+" ORDER BY created_at DESC, id DESC LIMIT ?",
		append(args, f.Limit)...)
	return letters, err
}

// DeadLetter returns one dead letter in scope.
func (s *Service) DeadLetter(ctx context.Context, id string) (delivery.DeadLetter, error) {
	return s.deadLetter(ctx, s.db, id, "")
}

func (s *Service) deadLetter(ctx context.Context, q db.Querier, id, lock string) (delivery.DeadLetter, error) {
	var d delivery.DeadLetter
	err := q.Get(ctx, &d, "SELECT * FROM deadletters WHERE id = ?"+lock, id)
	if err == nil && !callerFrom(ctx).sees(d.OrgID) {
		err = db.ErrNoRows
	}
	return d, db.NotFound(err, "no dead letter %s", id)
}

var errReplaying = fault.New(fault.Conflict, "the dead letter is being replayed already").WithCode("replaying")

// ReplayDeadLetter queues a dead letter for delivery again, with all retries. It stays in the list
// with status replaying until the target has accepted it.
func (s *Service) ReplayDeadLetter(ctx context.Context, id string) (delivery.DeadLetter, error) {
	var d delivery.DeadLetter
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if err := keepRoutes(ctx, tx); err != nil {
			return err
		}
		if d, err = s.deadLetter(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		if d.Status == delivery.Replaying {
			return errReplaying
		}
		if err := s.replayable(ctx, tx, d.RouteID); err != nil {
			return err
		}
		if err := s.replay(ctx, tx, []delivery.DeadLetter{d}); err != nil {
			return err
		}
		d.Status, d.ReplayCount = delivery.Replaying, d.ReplayCount+1
		return s.record(ctx, tx, entry{
			Action:  "deadletter.replay",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: "dead letter replayed",
		})
	})
	return d, err
}

// replayable returns an error if a route is disabled or was deleted.
func (s *Service) replayable(ctx context.Context, q db.Querier, routeID string) error {
	var enabled bool
	err := q.Get(ctx, &enabled, "SELECT enabled FROM routes WHERE id = ?", routeID)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return fault.New(fault.Conflict, "the route %s was deleted; there is nowhere to replay to", routeID).WithCode(
			"route_deleted",
		)
	case err != nil:
		return err
	case !enabled:
		return fault.New(fault.Conflict, "the route %s is disabled; enable it first", routeID).WithCode(
			"route_disabled",
		)
	}
	return nil
}

// replay adds deliveries for dead letters, which must all be of one route.
func (s *Service) replay(ctx context.Context, tx *db.Tx, letters []delivery.DeadLetter) error {
	now := db.At(s.now())
	pending := make([]delivery.Pending, len(letters))
	ids := make([]string, len(letters))
	for i, d := range letters {
		ids[i] = d.ID
		pending[i] = delivery.Pending{
			RouteID:      d.RouteID,
			EventSeq:     d.EventSeq,
			Shard:        delivery.ShardOf(d.RouteID, d.SiteID),
			SiteID:       d.SiteID,
			CreatedAt:    now,
			NextAt:       now,
			DeadLetterID: d.ID,
		}
	}
	query, args, err := db.In(
		"UPDATE deadletters SET status = 'replaying', replay_count = replay_count + 1 WHERE id IN (?)", ids,
	)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, query, args...); err != nil {
		return err
	}
	tx.OnCommit(func() { s.delivery.Replay(letters[0].RouteID) })
	return delivery.Add(ctx, tx, pending, func(string) string { return letters[0].OrgID })
}

// DeleteDeadLetter deletes a dead letter, unless it is being replayed.
func (s *Service) DeleteDeadLetter(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		d, err := s.deadLetter(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if d.Status == delivery.Replaying {
			return errReplaying
		}
		if _, err := tx.Exec(ctx, "DELETE FROM deadletters WHERE id = ?", id); err != nil {
			return err
		}
		tally.Add(tx, d.OrgID, tally.DeadLetter, "dead", -1)
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "deadletter.delete",
			Target:  id,
			SiteID:  d.SiteID,
			OrgID:   d.OrgID,
			Message: "dead letter deleted",
		})
	})
}

// bulkReplay holds the arguments of the job that replays many dead letters: those created in [From,
// To).
type bulkReplay struct {
	RouteID string `json:"route_id"`
	FromUS  int64  `json:"from_us"` // microseconds since 1970
	ToUS    int64  `json:"to_us"`
}

const bulkReplayKind = "deadletter.replay"

// ReplayDeadLetters enqueues a job that replays the dead letters of a route that were created in
// [from, to). A zero from is unbounded, and a zero to means now. It returns the job's ID and how
// many dead letters match.
func (s *Service) ReplayDeadLetters(
	ctx context.Context, routeID string, from, to time.Time,
) (jobID string, matched int64, err error) {
	r, err := s.Route(ctx, routeID)
	if err != nil {
		return "", 0, err
	}
	if to.IsZero() {
		to = s.now() // letters that fail again during the replay are not replayed once more
	}
	if to.Before(from) {
		return "", 0, fault.InvalidField("to", "is before from")
	}
	args := bulkReplay{RouteID: routeID, ToUS: to.UnixMicro()}
	if !from.IsZero() {
		args.FromUS = from.UnixMicro()
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if err := s.replayable(ctx, tx, routeID); err != nil {
			return err
		}
		if err := tx.Get(
			ctx, &matched,
			"SELECT count(*) FROM deadletters WHERE route_id = ? AND status = 'dead' AND created_at >= ? AND created_at < ?",
			routeID, args.FromUS, args.ToUS,
		); err != nil {
			return err
		}
		if jobID, err = s.jobs.Enqueue(ctx, tx, bulkReplayKind, args, jobs.Options{}); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{Action: "deadletter.replay", Target: routeID, SiteID: r.SiteID, OrgID: r.OrgID,
			Message: fmt.Sprintf("replay of %d dead letters of route %s", matched, r.Name)})
	})
	return jobID, matched, err
}

// runBulkReplay replays page by page. Replayed dead letters no longer match the selection, so after
// a crash a new run continues where the last one stopped.
func (s *Service) runBulkReplay(ctx context.Context, job *jobs.Job, args bulkReplay) error {
	const page = 500
	var done int64
	for after := int64(0); ; {
		var letters []delivery.DeadLetter
		err := s.db.Update(ctx, func(tx *db.Tx) error {
			letters = nil
			if err := keepRoutes(ctx, tx); err != nil {
				return err
			}
			if err := s.replayable(ctx, tx, args.RouteID); err != nil {
				return jobs.Permanent(err)
			}
			if err := tx.Select(
				ctx, &letters,
				"SELECT * FROM deadletters WHERE route_id = ? AND status = 'dead' AND created_at >= ? AND created_at < ? AND event_seq > ? ORDER BY event_seq LIMIT ?"+tx.ForUpdate(),
				args.RouteID, args.FromUS, args.ToUS, after, page,
			); err != nil ||
				len(letters) == 0 {
				return err
			}
			return s.replay(ctx, tx, letters)
		})
		if err != nil || len(letters) == 0 {
			return err
		}
		after = letters[len(letters)-1].EventSeq
		done += int64(len(letters))
		if err := job.Progress(ctx, done, 0); err != nil {
			return err
		}
	}
}
