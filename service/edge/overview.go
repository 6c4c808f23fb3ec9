package edge

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Overview is the caller's fleet at a glance.
type Overview struct {
	GeneratedAt time.Time
	Counts      map[string]map[string]int64 // kind -> state -> objects
	Rates       []RateMinute                // the last 60 minutes that saw anything
}

// RateMinute is what happened in a minute.
type RateMinute struct {
	Minute         db.Time `db:"minute"`
	Events         int64   `db:"events"`
	Delivered      int64   `db:"delivered"`
	FailedAttempts int64   `db:"failed_attempts"`
	DeadLettered   int64   `db:"dead_lettered"`
}

// Overview reads the tallies. It counts only what is few: what sites that are not online should
// run, and what waits for a person.
func (s *Service) Overview(ctx context.Context) (Overview, error) {
	o := Overview{GeneratedAt: s.now().UTC(), Counts: map[string]map[string]int64{}, Rates: []RateMinute{}}
	caller := callerFrom(ctx)
	where, args := caller.scope()
	var rows []struct {
		Kind  string `db:"kind"`
		State string `db:"state"`
		N     int64  `db:"n"`
	}
	if err := s.db.Select(
		ctx,
		&rows,
		"SELECT kind, state, CAST(SUM(n) AS BIGINT) AS n FROM tallies WHERE "+where+" GROUP BY kind, state",
		args...); err != nil {
		return o, err
	}
	for _, kind := range []string{
		tally.Org, tally.Site, tally.Device, tally.OTA, tally.Campaign, tally.Deployment, tally.Route,
		tally.Delivery, tally.DeadLetter, tally.Alert, tally.PolicyPack,
	} {
		o.Counts[kind] = map[string]int64{}
	}
	for _, r := range rows {
		if r.N != 0 {
			o.Counts[r.Kind][r.State] = r.N
		}
	}
	if err := s.moveUnknown(ctx, o.Counts[tally.Deployment]); err != nil {
		return o, err
	}
	if err := s.movePaused(ctx, o.Counts[tally.Campaign]); err != nil {
		return o, err
	}
	since := db.At(s.now().Add(-time.Hour))
	query := `SELECT minute, CAST(SUM(events) AS BIGINT) AS events, CAST(SUM(delivered) AS BIGINT) AS delivered, CAST(SUM(failed_attempts) AS BIGINT) AS failed_attempts, CAST(SUM(dead_lettered) AS BIGINT) AS dead_lettered FROM (
		SELECT minute, events, 0 AS delivered, 0 AS failed_attempts, 0 AS dead_lettered FROM event_minutes WHERE minute > ? AND ` + where + `
		UNION ALL
		SELECT minute, 0, delivered, failed_attempts, dead_lettered FROM route_minutes WHERE minute > ? AND ` + where + `) AS m GROUP BY minute ORDER BY minute`
	all := append(append([]any{since}, args...), append([]any{since}, args...)...)
	err := s.db.Select(ctx, &o.Rates, query, all...)
	return o, err
}

// The states of the overview that no object has by itself.
const (
	countUnknown = "unknown" // deployments: nobody has heard lately how they do
	countPaused  = "paused"  // campaigns that wait for a person
)

// moveUnknown moves deployments whose agent is not heard of from the state that the agent last
// told of to unknown.
func (s *Service) moveUnknown(ctx context.Context, counts map[string]int64) error {
	where, args := callerFrom(ctx).scope()
	var rows []struct {
		Status string `db:"status"`
		N      int64  `db:"n"`
	}
	err := s.db.Select(
		ctx,
		&rows,
		`SELECT status, count(*) AS n FROM deployments WHERE `+where+` AND status IN ('running', 'stopped', 'pulling')
		AND site_id IN (SELECT id FROM sites WHERE status IN ('offline', 'revoked')) GROUP BY status`,
		args...)
	for _, r := range rows {
		moveCount(counts, r.Status, countUnknown, r.N)
	}
	return err
}

// movePaused moves campaigns that wait for a person from running to paused.
func (s *Service) movePaused(ctx context.Context, counts map[string]int64) error {
	where, args := callerFrom(ctx).scope()
	var n int64
	err := s.db.Get(
		ctx, &n, "SELECT count(*) FROM campaigns WHERE "+where+" AND status = 'running' AND paused_reason <> ''",
		args...)
	moveCount(counts, "running", countPaused, n)
	return err
}

// moveCount moves up to n objects from a state to another. The tallies were read a moment before, so
// that they may hold less.
func moveCount(counts map[string]int64, from, to string, n int64) {
	n = min(n, counts[from])
	if n <= 0 {
		return
	}
	if counts[to] += n; counts[from] == n {
		delete(counts, from)
	} else {
		counts[from] -= n
	}
}
