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
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// DeadLetterFilter selects dead letters; zero fields select all.
type DeadLetterFilter struct {
	SiteID, RouteID, Reason string
	Topic                   string // a pattern
	Text                    string // must be contained in the topic, event id or last error; see list.Search
	After                   string // the cursor of the last dead letter of the previous page
	Limit                   int
}

// maxSearchedLetters is how many dead letters a page of a search looks at.
const maxSearchedLetters = 10_000

// deadLetterCursor returns the list position of a dead letter. The order is newest first, then by
// descending ID.
func deadLetterCursor(d delivery.DeadLetter) string { return letterCursor(d.CreatedAt, d.ID) }

func letterCursor(at db.Time, id string) string {
	return strconv.FormatInt(at.UnixMicro(), 10) + " " + id
}

// DeadLetters lists dead letters newest first. A search looks at a bounded number of them: examined
// is the cursor of the last one, empty if it has looked at all.
func (s *Service) DeadLetters(
	ctx context.Context, f DeadLetterFilter,
) (letters []delivery.DeadLetter, examined string, err error) {
	return s.deadLetters(ctx, s.db, f)
}

func (s *Service) deadLetters(
	ctx context.Context, q db.Querier, f DeadLetterFilter,
) (letters []delivery.DeadLetter, examined string, err error) {
	scope := callerFrom(ctx).scope()
	for field, given := range map[string]string{
		"site_id": f.SiteID, "route_id": f.RouteID, "topic": f.Topic, "q": f.Text,
	} {
		if err := text.Check(field, given); err != nil {
			return nil, "", err
		}
	}
	before := db.All()
	if f.After != "" {
		micros, id, _ := strings.Cut(f.After, " ")
		at, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return nil, "", fault.InvalidField("cursor", "is not from this list")
		}
		before = db.Where("(created_at, id) < (?, ?)", at, id)
	}
	switch {
	case f.Reason != "" || f.Topic != "" || f.Text != "",
		f.SiteID != "" && (f.RouteID != "" || !callerFrom(ctx).Global()):
		return findLetters(ctx, q, before, f)
	case f.RouteID != "":
		// All dead letters of a route are of its org.
		var org string
		err := q.Get(
			ctx, &org, "SELECT org_id FROM deadletters WHERE route_id = ? ORDER BY created_at DESC, id DESC LIMIT 1",
			f.RouteID,
		)
		if errors.Is(err, db.ErrNoRows) || err == nil && !callerFrom(ctx).sees(org) {
			return []delivery.DeadLetter{}, "", nil
		}
		if err != nil {
			return nil, "", err
		}
		scope = db.Where("route_id = ?", f.RouteID)
	case f.SiteID != "":
		scope = db.Where("site_id = ?", f.SiteID)
	}
	where, args := scope.SQL()
	after, more := before.SQL()
	letters = []delivery.DeadLetter{}
	err = q.Select(
		ctx, &letters,
		"SELECT * FROM deadletters WHERE "+where+" AND "+after+" ORDER BY created_at DESC, id DESC LIMIT ?",
		append(append(args, more...), f.Limit)...)
	return letters, "", err
}

// findLetters searches the index of all dead letters in scope, which holds all that is searched. The
// payloads, which may be large, are read only of what was found.
func findLetters(
	ctx context.Context, q db.Querier, before db.Scope, f DeadLetterFilter,
) (letters []delivery.DeadLetter, examined string, err error) {
	where, args := callerFrom(ctx).scope().SQL()
	after, more := before.SQL()
	where, args = where+" AND "+after, append(args, more...)
	var last struct {
		CreatedAt db.Time `db:"created_at"`
		ID        string  `db:"id"`
	}
	err = q.Get(
		ctx, &last,
		"SELECT created_at, id FROM deadletters WHERE "+where+" ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?",
		append(args[:len(args):len(args)], maxSearchedLetters-1)...)
	switch {
	case err == nil:
		examined = letterCursor(last.CreatedAt, last.ID)
		where, args = where+" AND (created_at, id) >= (?, ?)", append(args, last.CreatedAt, last.ID)
	case !errors.Is(err, db.ErrNoRows):
		return nil, "", err
	}
	for _, equal := range []struct{ column, value string }{
		{"site_id", f.SiteID}, {"route_id", f.RouteID}, {"reason", f.Reason},
	} {
		if equal.value != "" {
			// An expression has no index, so the database does not choose another one.
			where, args = where+" AND "+equal.column+" || '' = ?", append(args, equal.value)
		}
	}
	topics, values := topicCondition(f.Topic).SQL()
	contains, texts := list.Search(f.Text, "topic", "event_id", "last_error")
	where, args = where+" AND "+topics+" AND "+contains, append(append(args, values...), texts...)
	letters = []delivery.DeadLetter{}
	err = q.Select(
		ctx, &letters, "SELECT whole.* FROM (SELECT id AS found FROM deadletters WHERE "+where+
			" ORDER BY created_at DESC, id DESC LIMIT ?) page CROSS JOIN deadletters whole WHERE whole.id = page.found "+
			"ORDER BY whole.created_at DESC, whole.id DESC",
		append(args, f.Limit)...)
	return letters, examined, err
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
