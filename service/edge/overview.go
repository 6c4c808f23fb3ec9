package edge

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
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
	where, args := callerFrom(ctx).scope().SQL()
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
	err := s.movePaused(ctx, o.Counts[tally.Campaign])
	if err != nil {
		return o, err
	}
	o.Rates, err = s.rates(ctx, series.Last(s.now(), time.Minute, 60), where, args)
	return o, err
}

// rates are the minutes of a window in which anything happened, within a scope.
func (s *Service) rates(ctx context.Context, w series.Window, where string, args []any) ([]RateMinute, error) {
	var accepted []struct {
		Minute db.Time `db:"minute"`
		Events int64   `db:"events"`
		Bytes  int64   `db:"bytes"`
	}
	if err := eventMinutes.Read(ctx, s.db, &accepted, w, where, args...); err != nil {
		return nil, err
	}
	rates := []RateMinute{}
	if err := delivery.Minutes.Read(ctx, s.db, &rates, w, where, args...); err != nil {
		return nil, err
	}
	for _, m := range accepted {
		at := slices.IndexFunc(rates, func(r RateMinute) bool { return r.Minute.Equal(m.Minute.Time) })
		if at < 0 {
			at = len(rates)
			rates = append(rates, RateMinute{Minute: m.Minute})
		}
		rates[at].Events = m.Events
	}
	slices.SortFunc(rates, func(a, b RateMinute) int { return a.Minute.Compare(b.Minute.Time) })
	return rates, nil
}

// The states of the overview that no object has by itself.
const (
	countUnknown = "unknown" // deployments: nobody has heard lately how they do
	countPaused  = "paused"  // campaigns that wait for a person
)

// moveUnknown moves deployments whose agent is not heard of from the state that the agent last
// told of to unknown.
func (s *Service) moveUnknown(ctx context.Context, counts map[string]int64) error {
	where, args := callerFrom(ctx).scope().SQL()
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
	where, args := callerFrom(ctx).scope().SQL()
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
