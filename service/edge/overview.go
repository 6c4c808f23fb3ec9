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

// Overview reads the tallies; it counts nothing itself.
func (s *Service) Overview(ctx context.Context) (Overview, error) {
	o := Overview{GeneratedAt: s.now().UTC(), Counts: map[string]map[string]int64{}, Rates: []RateMinute{}}
	caller := callerFrom(ctx)
	where, args := caller.scope()
	var rows []struct {
		Kind  string `db:"kind"`
		State string `db:"state"`
		N     int64  `db:"n"`
	}
	if err := s.db.Select(ctx, &rows, "SELECT kind, state, CAST(SUM(n) AS BIGINT) AS n FROM tallies WHERE "+where+" GROUP BY kind, state", args...); err != nil {
		return o, err
	}
	for _, kind := range []string{tally.Org, tally.Site, tally.Device, tally.OTA, tally.Campaign, tally.Deployment, tally.Route, tally.Delivery, tally.DeadLetter, tally.Alert, tally.PolicyPack} {
		o.Counts[kind] = map[string]int64{}
	}
	for _, r := range rows {
		if r.N != 0 {
			o.Counts[r.Kind][r.State] = r.N
		}
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
