package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Pending is a delivery that has not been made yet.
type Pending struct {
	RouteID      string  `db:"route_id"`
	EventSeq     int64   `db:"event_seq"`
	Shard        int64   `db:"shard"`
	SiteID       string  `db:"site_id"`
	Attempts     int     `db:"attempts"`
	CreatedAt    db.Time `db:"created_at"`
	NextAt       db.Time `db:"next_at"`
	DeadLetterID string  `db:"dead_letter_id"`
}

// shardCount is the number of shards. With more replicas than shards, some would be idle.
const shardCount = 32

// ShardOf returns the shard of a lane.
func ShardOf(routeID, siteID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(routeID + "\x00" + siteID)) // never fails
	return int64(h.Sum32() % shardCount)
}

// Event is the event as sent to a target. Its JSON is the body of the request.
type Event struct {
	EventID    string            `json:"event_id"`
	OrgID      string            `json:"org_id"`
	SiteID     string            `json:"site_id"`
	Topic      string            `json:"topic"`
	Payload    json.RawMessage   `json:"payload"`
	Headers    map[string]string `json:"headers"`
	EventTime  time.Time         `json:"event_time"`
	ReceivedAt time.Time         `json:"received_at"`
}

// Reason is why a delivery became a dead letter.
type Reason string

// The reasons.
const (
	Exhausted     Reason = "exhausted"
	Permanent     Reason = "permanent"
	RouteDisabled Reason = "route_disabled"
	RouteDeleted  Reason = "route_deleted"
)

// Statuses of a dead letter.
const (
	Dead      = "dead"
	Replaying = "replaying"
)

// DeadLetter is a delivery that failed for good, with a copy of its event.
type DeadLetter struct {
	ID          string                     `db:"id"`
	OrgID       string                     `db:"org_id"`
	RouteID     string                     `db:"route_id"`
	EventSeq    int64                      `db:"event_seq"`
	EventOrgID  string                     `db:"event_org_id"`
	EventID     string                     `db:"event_id"`
	SiteID      string                     `db:"site_id"`
	Topic       string                     `db:"topic"`
	Payload     string                     `db:"payload"`
	Headers     db.JSON[map[string]string] `db:"headers"`
	EventTime   db.Time                    `db:"event_time"`
	ReceivedAt  db.Time                    `db:"received_at"`
	Attempts    int                        `db:"attempts"`
	LastStatus  int                        `db:"last_status"`
	LastError   string                     `db:"last_error"`
	Reason      Reason                     `db:"reason"`
	Status      string                     `db:"status"`
	CreatedAt   db.Time                    `db:"created_at"`
	ReplayCount int                        `db:"replay_count"`
}

// deadLetterID returns the ID of a delivery's dead letter. A route has at most one per event, so a
// replay that fails keeps its ID.
func deadLetterID(routeID string, seq int64) string { return fmt.Sprintf("%s-%d", routeID, seq) }

// Add stores new deliveries and adds them to the tallies of the routes' orgs, in the transaction
// that accepts their events.
func Add(ctx context.Context, tx *db.Tx, pending []Pending, orgOf func(routeID string) string) error {
	const chunk, columns = 128, 8
	byOrg := map[string]int64{}
	for len(pending) > 0 {
		// Powers of two keep the number of distinct statements small, so they stay prepared.
		n := min(chunk, 1<<(bits.Len(uint(len(pending)))-1))
		args := make([]any, 0, n*columns)
		for _, p := range pending[:n] {
			args = append(
				args, p.RouteID, p.EventSeq, p.Shard, p.SiteID, p.Attempts, p.CreatedAt, p.NextAt, p.DeadLetterID,
			)
			byOrg[orgOf(p.RouteID)]++
		}
		query := "INSERT INTO deliveries (route_id, event_seq, shard, site_id, attempts, created_at, next_at, dead_letter_id) VALUES " +
			strings.Repeat("(?, ?, ?, ?, ?, ?, ?, ?), ", n-1) + "(?, ?, ?, ?, ?, ?, ?, ?)"
		if _, err := tx.Exec(ctx, query, args...); err != nil {
			return err
		}
		pending = pending[n:]
	}
	for org, n := range byOrg {
		tally.Add(tx, org, tally.Delivery, "pending", n)
	}
	return nil
}

const deadLetterColumns = "id, org_id, route_id, event_seq, event_org_id, event_id, site_id, topic, payload, headers, event_time, received_at, attempts, last_status, last_error, reason, status, created_at, replay_count"

// BuryEvents turns accepted events into dead letters of a route without an attempt, so that events
// for a disabled route are not lost.
func BuryEvents(
	ctx context.Context, tx *db.Tx, routeID, orgID string, seqs []int64, reason Reason, now time.Time,
) error {
	for len(seqs) > 0 {
		n := min(500, len(seqs))
		query, args, err := db.In(`INSERT INTO deadletters (`+deadLetterColumns+`)
			SELECT CAST(? AS TEXT) || '-' || CAST(e.seq AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), e.seq, e.org_id,
				e.event_id, e.site_id, e.topic, e.payload, e.headers, e.event_time, e.received_at,
				0, 0, '', CAST(? AS TEXT), 'dead', CAST(? AS BIGINT), 0
			FROM events e WHERE e.seq IN (?)`, routeID, orgID, routeID, string(reason), db.At(now), seqs[:n])
		if err != nil {
			return err
		}
		buried, err := tx.Exec(ctx, query, args...)
		if err != nil {
			return err
		}
		if err := countDead(ctx, tx, routeID, orgID, buried, now); err != nil {
			return err
		}
		seqs = seqs[n:]
	}
	return nil
}

// buryPage is how many deliveries of a route BuryRoute takes at once. More would delay ingest,
// which waits while routes change.
const buryPage = 2000

// BuryRoute turns up to buryPage pending deliveries of a route into dead letters, because the route
// was disabled or deleted. It reports whether there are more. The caller must have locked the route
// (LockRoute) and must make sure that no new deliveries are added: it either holds off ingest or
// has committed the change of the route before.
func BuryRoute(
	ctx context.Context, tx *db.Tx, routeID, orgID string, reason Reason, now time.Time,
) (more bool, err error) {
	last := int64(math.MaxInt64)
	err = tx.Get(
		ctx, &last, "SELECT event_seq FROM deliveries WHERE route_id = ? ORDER BY event_seq LIMIT 1 OFFSET ?",
		routeID, buryPage-1,
	)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return false, err
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE deadletters SET status = 'dead', reason = ? WHERE route_id = ? AND event_seq <= ? AND status = 'replaying'",
		string(reason), routeID, last,
	); err != nil {
		return false, err
	}
	buried, err := tx.Exec(ctx, `INSERT INTO deadletters (`+deadLetterColumns+`)
		SELECT d.route_id || '-' || CAST(d.event_seq AS TEXT), CAST(? AS TEXT), d.route_id, e.seq, e.org_id,
			e.event_id, e.site_id, e.topic, e.payload, e.headers, e.event_time, e.received_at,
			d.attempts, 0, '', CAST(? AS TEXT), 'dead', CAST(? AS BIGINT), 0
		FROM deliveries d JOIN events e ON e.seq = d.event_seq WHERE d.route_id = ? AND d.event_seq <= ? AND d.dead_letter_id = '' ON CONFLICT DO NOTHING`, orgID, string(reason), db.At(now), routeID, last)
	if err != nil {
		return false, err
	}
	gone, err := tx.Exec(ctx, "DELETE FROM deliveries WHERE route_id = ? AND event_seq <= ?", routeID, last)
	if err != nil {
		return false, err
	}
	tally.Add(tx, orgID, tally.Delivery, "pending", -gone)
	return last != math.MaxInt64, countDead(ctx, tx, routeID, orgID, buried, now)
}

// LockRoute locks the deliveries and statistics of routes until the transaction ends. Transactions
// must call it before they change any of them, so that they do not deadlock over the rows.
func LockRoute(ctx context.Context, tx *db.Tx, routeIDs ...string) error {
	if len(routeIDs) == 0 {
		return nil
	}
	query, args, err := db.In("SELECT route_id FROM route_stats WHERE route_id IN (?) ORDER BY route_id", routeIDs)
	if err != nil {
		return err
	}
	var locked []string
	return tx.Select(ctx, &locked, query+tx.ForUpdate(), args...)
}

// OldestPending returns the sequence number of the oldest event that is still to be delivered, or
// math.MaxInt64 if there is none. Replays do not count, since they take their event from the dead
// letter.
func OldestPending(ctx context.Context, q db.Querier) (int64, error) {
	oldest := int64(math.MaxInt64)
	for after := ""; ; {
		var id *string
		if err := q.Get(ctx, &id, "SELECT MIN(route_id) FROM deliveries WHERE route_id > ?", after); err != nil ||
			id == nil {
			return oldest, err
		}
		var seq int64
		err := q.Get(
			ctx, &seq,
			"SELECT event_seq FROM deliveries WHERE route_id = ? AND dead_letter_id = '' ORDER BY event_seq LIMIT 1",
			*id,
		)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return oldest, err
		}
		if err == nil {
			oldest = min(oldest, seq)
		}
		after = *id
	}
}

// Stray returns the routes that have deliveries that will never be made because the route is
// disabled or deleted.
func Stray(ctx context.Context, q db.Querier) (routeIDs []string, err error) {
	for after := ""; ; {
		// One index lookup per route, however many deliveries it has.
		var id *string
		if err := q.Get(ctx, &id, "SELECT MIN(route_id) FROM deliveries WHERE route_id > ?", after); err != nil ||
			id == nil {
			return routeIDs, err
		}
		var enabled bool
		err := q.Get(ctx, &enabled, "SELECT enabled FROM routes WHERE id = ?", *id)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return routeIDs, err
		}
		if !enabled {
			routeIDs = append(routeIDs, *id)
		}
		after = *id
	}
}

// Recount sets the tallies of pending deliveries to the actual counts.
func Recount(ctx context.Context, tx *db.Tx) error {
	// Transactions write their tallies last. Since the tallies are locked first, a change by
	// another transaction is either seen below or added to the result afterwards.
	var locked []int64
	if err := tx.Select(
		ctx, &locked, "SELECT n FROM tallies WHERE kind = ? ORDER BY org_id, state"+tx.ForUpdate(), tally.Delivery,
	); err != nil {
		return err
	}
	var orgs []struct {
		OrgID string `db:"org_id"`
		N     int64  `db:"n"`
	}
	if err := tx.Select(
		ctx, &orgs,
		"SELECT COALESCE(r.org_id, '') AS org_id, count(*) AS n FROM deliveries d LEFT JOIN routes r ON r.id = d.route_id GROUP BY 1",
	); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE tallies SET n = 0 WHERE kind = ?", tally.Delivery); err != nil {
		return err
	}
	for _, o := range orgs {
		tally.Add(tx, o.OrgID, tally.Delivery, "pending", o.N)
	}
	return nil
}

func countDead(ctx context.Context, tx *db.Tx, routeID, orgID string, n int64, now time.Time) error {
	tally.Add(tx, orgID, tally.DeadLetter, "dead", n)
	return addStats(ctx, tx, routeID, orgID, stats{dead: n}, now)
}

// Minutes counts the outcomes of each route per minute.
var Minutes = series.NewTable(series.Table{
	Name: "route_minutes", Key: []string{"route_id"}, First: []string{"org_id"},
	Sums: []string{"delivered", "failed_attempts", "dead_lettered"},
})

// OrgMinutes counts the outcomes of all routes of an org per minute, also those of routes that were
// deleted since.
var OrgMinutes = series.NewTable(series.Table{
	Name: "delivery_minutes", Key: []string{"org_id"}, Sums: []string{"delivered", "failed_attempts", "dead_lettered"},
})

// stats is what a batch of outcomes adds to a route's statistics.
type stats struct {
	delivered, failed, dead  int64
	lastStatus               int    // of the last attempt
	lastError                string // of the last attempt that failed
	lastSuccess, lastFailure time.Time
}

func addStats(ctx context.Context, tx *db.Tx, routeID, orgID string, s stats, now time.Time) error {
	if s.delivered+s.failed+s.dead == 0 {
		return nil
	}
	if err := Minutes.Add(ctx, tx, now, routeID, orgID, s.delivered, s.failed, s.dead); err != nil {
		return err
	}
	// Without an attempt last_status does not change, and without a failure last_error does not.
	_, err := tx.Exec(
		ctx,
		`UPDATE route_stats SET delivered = delivered + ?, failed_attempts = failed_attempts + ?, dead_lettered = dead_lettered + ?,
			last_status = CASE WHEN ? THEN CAST(? AS BIGINT) ELSE last_status END,
			last_error = CASE WHEN ? THEN CAST(? AS TEXT) ELSE last_error END,
			last_success_at = COALESCE(CAST(? AS BIGINT), last_success_at),
			last_failure_at = COALESCE(CAST(? AS BIGINT), last_failure_at)
		WHERE route_id = ?`,
		s.delivered,
		s.failed,
		s.dead,
		s.delivered+s.failed > 0,
		s.lastStatus,
		s.failed > 0,
		s.lastError,
		db.At(s.lastSuccess),
		db.At(s.lastFailure),
		routeID,
	)
	if err != nil {
		return err
	}
	// All routes of the org change this row, so it is locked last.
	return OrgMinutes.Add(ctx, tx, now, orgID, s.delivered, s.failed, s.dead)
}
