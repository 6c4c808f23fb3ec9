package delivery

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// maxErrorText is how many bytes of an error's text, which may hold the target's response, are kept
// with a dead letter.
const maxErrorText = 500

// verdict is the outcome of a delivery's attempt.
type verdict struct {
	delivery Pending
	route    Route
	at       time.Time
	status   int
	err      string

	untried   bool // no request was made: the delivery expired or its event is lost
	delivered bool
	retryAt   time.Time // when neither delivered nor dead
	pause     time.Time // the target asked for no requests until then; zero: it did not
	dead      Reason    // set if the delivery becomes a dead letter
	gone      bool      // the target answered 410: disable the route
}

// judge applies the rules of the package comment: it turns an attempt's result into a verdict. rnd
// provides the jitter of the retry schedule.
func judge(
	p Pending, r Route, schedule backoff.Schedule, res webhook.Result, now time.Time, rnd func() float64,
) verdict {
	v := verdict{delivery: p, route: r, at: now, status: res.Status, err: res.Problem()}
	v.delivery.Attempts++
	if (res.Status == http.StatusTooManyRequests || res.Status == http.StatusServiceUnavailable) && res.RetryAfter > 0 {
		v.pause = now.Add(res.RetryAfter)
	}
	switch webhook.Classify(res.Status, res.Err) {
	case webhook.Delivered:
		v.delivered, v.err = true, ""
	case webhook.Gone:
		v.dead, v.gone = Permanent, true
	case webhook.Permanent:
		v.dead = Permanent
	default:
		if v.delivery.Attempts > r.RetryMax {
			v.dead = Exhausted
			break
		}
		wait := max(schedule.Delay(v.delivery.Attempts-1, rnd), res.RetryAfter)
		v.retryAt = now.Add(wait)
	}
	return v
}

// clip limits the length of an error's text and makes it valid for PostgreSQL, which accepts
// neither invalid UTF-8 nor NUL.
func clip(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// settle stores a batch of verdicts.
func (e *Engine) settle(ctx context.Context, tx *db.Tx, verdicts []verdict) ([]struct{}, error) {
	byRoute := map[string][]verdict{}
	lock := LockRoute
	for _, v := range verdicts {
		byRoute[v.route.ID] = append(byRoute[v.route.ID], v)
		if v.gone { // the route is disabled below
			lock = e.HoldRoutes
		}
	}
	ids := slices.Sorted(maps.Keys(byRoute))
	if err := lock(ctx, tx, ids...); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := e.settleRoute(ctx, tx, byRoute[id]); err != nil {
			return nil, err
		}
	}
	return make([]struct{}, len(verdicts)), nil
}

func (e *Engine) settleRoute(ctx context.Context, tx *db.Tx, vs []verdict) error {
	route, now := vs[0].route, e.now()
	var sum stats
	var delivered []verdict
	gone := false
	for _, v := range vs {
		if !v.untried {
			sum.lastStatus = v.status
		}
		if v.delivered {
			delivered = append(delivered, v)
			sum.delivered++
			sum.lastSuccess = v.at
			continue
		}
		if !v.untried {
			sum.failed++
			sum.lastFailure, sum.lastError = v.at, v.err
		} else if v.err == "" {
			if err := lastFailure(ctx, tx, &v); err != nil {
				return err
			}
		}
		gone = gone || v.gone
		if v.dead == "" {
			if _, err := tx.Exec(
				ctx, "UPDATE deliveries SET attempts = ?, next_at = ? WHERE route_id = ? AND event_seq = ?",
				v.delivery.Attempts, db.At(v.retryAt), route.ID, v.delivery.EventSeq,
			); err != nil {
				return err
			}
			continue
		}
		buried, err := bury(ctx, tx, v)
		if err != nil {
			return err
		}
		sum.dead += buried
	}
	if err := removeDelivered(ctx, tx, route, delivered); err != nil {
		return err
	}
	if err := addStats(ctx, tx, route.ID, route.OrgID, sum, now); err != nil {
		return err
	}
	if gone {
		return e.onGone(ctx, tx, route.ID)
	}
	return nil
}

// lastFailure fills in the verdict on a delivery that expired while its route's circuit was open:
// it adds the target's last status and error.
func lastFailure(ctx context.Context, tx *db.Tx, v *verdict) error {
	var last struct {
		Status int    `db:"last_status"`
		Error  string `db:"last_error"`
	}
	err := tx.Get(ctx, &last, "SELECT last_status, last_error FROM route_stats WHERE route_id = ?", v.route.ID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return err
	}
	v.status, v.err = last.Status, "it waited for as long as its retries may take, while the target kept failing"
	if last.Error != "" {
		v.err = clip(v.err + ": " + last.Error)
	}
	return nil
}

// removeDelivered deletes delivered rows, together with the dead letters of replays and of
// deliveries that were buried while their request was in flight.
func removeDelivered(ctx context.Context, tx *db.Tx, route Route, delivered []verdict) error {
	for len(delivered) > 0 {
		n := min(500, len(delivered))
		seqs, letters, replays := make([]int64, n), make([]string, n), false
		for i, v := range delivered[:n] {
			seqs[i], letters[i] = v.delivery.EventSeq, deadLetterID(route.ID, v.delivery.EventSeq)
			replays = replays || v.delivery.DeadLetterID != ""
		}
		query, args, err := db.In("DELETE FROM deliveries WHERE route_id = ? AND event_seq IN (?)", route.ID, seqs)
		if err != nil {
			return err
		}
		gone, err := tx.Exec(ctx, query, args...)
		if err != nil {
			return err
		}
		tally.Add(tx, route.OrgID, tally.Delivery, "pending", -gone)
		if replays || gone < int64(n) {
			query, args, err := db.In("DELETE FROM deadletters WHERE id IN (?)", letters)
			if err != nil {
				return err
			}
			raised, err := tx.Exec(ctx, query, args...)
			if err != nil {
				return err
			}
			tally.Add(tx, route.OrgID, tally.DeadLetter, "dead", -raised)
		}
		delivered = delivered[n:]
	}
	return nil
}

// bury turns one delivery into a dead letter. It returns how many new dead letters that created: 0
// for a replay, whose dead letter exists already, and if the route was disabled while the request
// was in flight.
func bury(ctx context.Context, tx *db.Tx, v verdict) (int64, error) {
	p, id := v.delivery, deadLetterID(v.route.ID, v.delivery.EventSeq)
	gone, err := tx.Exec(ctx, "DELETE FROM deliveries WHERE route_id = ? AND event_seq = ?", p.RouteID, p.EventSeq)
	if err != nil {
		return 0, err
	}
	tally.Add(tx, v.route.OrgID, tally.Delivery, "pending", -gone)
	if p.DeadLetterID != "" || gone == 0 {
		_, err := tx.Exec(
			ctx,
			"UPDATE deadletters SET status = 'dead', reason = ?, attempts = ?, last_status = ?, last_error = ? WHERE id = ?",
			string(v.dead), p.Attempts, v.status, v.err, id,
		)
		return 0, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO deadletters (`+deadLetterColumns+`)
		SELECT CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), e.seq, e.org_id, e.event_id, e.site_id, e.topic,
			e.payload, e.headers, e.event_time, e.received_at,
			CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), 'dead', CAST(? AS BIGINT), 0
		FROM events e WHERE e.seq = ?`,
		id, v.route.OrgID, v.route.ID, p.Attempts, v.status, v.err, string(v.dead), db.At(v.at), p.EventSeq)
	if err != nil {
		return 0, err
	}
	tally.Add(tx, v.route.OrgID, tally.DeadLetter, "dead", n)
	return n, nil
}
