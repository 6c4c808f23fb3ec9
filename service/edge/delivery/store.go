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

// Pending is a delivery that is still to be made.
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

// shardCount is into how many parts the lanes are dealt out. More replicas than
// shards would leave some idle.
const shardCount = 32

// ShardOf is the shard of a lane.
func ShardOf(routeID, siteID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(routeID + "\x00" + siteID)) // never fails
	return int64(h.Sum32() % shardCount)
}

// Event is what a target is sent. Its JSON is the body of the request.
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

// DeadLetter is a delivery that was given up, with a copy of its event.
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

// deadLetterID names the dead letter of a delivery. A route has at most one for
// an event, so a replay that fails comes back under the same id.
func deadLetterID(routeID string, seq int64) string { return fmt.Sprintf("%s-%d", routeID, seq) }

// Add stores new deliveries, counted to the routes' orgs, in the transaction that
// accepts their events.
func Add(ctx context.Context, tx *db.Tx, pending []Pending, orgOf func(routeID string) string) error {
	const chunk, columns = 128, 8
	byOrg := map[string]int64{}
	for len(pending) > 0 {
		// Powers of two make few distinct statements, which stay prepared.
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

// BuryEvents makes dead letters of accepted events at once, without an attempt:
// what a disabled route would have got is not lost.
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

// buryPage is how many deliveries of a route BuryRoute takes at once: more would hold up ingest,
// which waits while routes change.
const buryPage = 2000

// BuryRoute makes dead letters of what a route has pending, because it was disabled or removed, and
// reports whether there is more. The route must be locked (LockRoute), and nothing new may come to
// it: callers hold off ingest, or have committed the change of the route before.
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

// LockRoute keeps others from changing deliveries and numbers of routes until the transaction ends.
// It comes before any change of them, so that transactions do not deadlock over their rows.
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

// OldestPending is the number of the oldest event that is still to be delivered, or the largest
// number there is. A replay takes its event from its dead letter, and does not count.
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

// Stray lists the routes that have deliveries which nobody will make: the route is disabled or gone.
func Stray(ctx context.Context, q db.Querier) (routeIDs []string, err error) {
	for after := ""; ; {
		// One look at the index for each route, however many deliveries it has.
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

// Recount sets the counts of pending deliveries to what there is.
func Recount(ctx context.Context, tx *db.Tx) error {
	// Transactions write their counts last. With the counts locked first, what another transaction
	// changes is either seen below or added to the result after this one.
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

// Minutes counts the outcomes of each route.
var Minutes = series.NewTable(series.Table{
	Name: "route_minutes", Key: []string{"route_id"}, First: []string{"org_id"},
	Sums: []string{"delivered", "failed_attempts", "dead_lettered"},
})

// stats is what a batch of outcomes adds to a route's numbers.
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
	// Without an attempt the last answer stays what it was, and without a failure the last error does.
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
	return err
}
