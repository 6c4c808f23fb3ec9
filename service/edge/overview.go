package edge

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Overview summarizes the caller's fleet.
type Overview struct {
	GeneratedAt time.Time
	Counts      map[string]map[string]int64 // kind -> state -> objects
	Failing     int64                       // routes for which an alert is firing, enabled or not
	Rates       []HistoryStep               // the minutes of the last hour in which anything happened
}

// Overview returns the overview, from the tallies. It counts rows only where there are few:
// deployments on sites that are not online, paused campaigns, and failing routes.
func (s *Service) Overview(ctx context.Context) (Overview, error) {
	o := Overview{GeneratedAt: s.now().UTC(), Counts: map[string]map[string]int64{}, Rates: []HistoryStep{}}
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
	if err := s.db.Get(
		ctx, &o.Failing, "SELECT count(*) FROM routes WHERE "+where+" AND "+routeIsFailing, args...,
	); err != nil {
		return o, err
	}
	o.Rates, err = s.happened(ctx, series.Last(s.now(), time.Minute, 60))
	return o, err
}

// States that exist only in the overview.
const (
	countUnknown = "unknown" // deployments whose site is not online
	countPaused  = "paused"  // campaigns that wait for a person
	countFailing = "failing" // routes for which an alert is firing
)

// What the overview counts and lists are filtered by. The statuses are those of changeUnheard.
const (
	silentSites      = "(SELECT id FROM sites WHERE status IN ('offline', 'revoked'))"
	statusIsUnknown  = "status IN ('running', 'stopped', 'pulling') AND site_id IN " + silentSites
	campaignIsPaused = "status = 'running' AND paused_reason <> ''"
)

// changeUnheard are the statuses of a deployment that may have changed since its site was last heard
// of.
var changeUnheard = []string{"running", "stopped", "pulling"}

// moveUnknown counts deployments on offline and revoked sites as unknown instead of the status that
// the agent last reported.
func (s *Service) moveUnknown(ctx context.Context, counts map[string]int64) error {
	where, args := callerFrom(ctx).scope().SQL()
	var rows []struct {
		Status string `db:"status"`
		N      int64  `db:"n"`
	}
	err := s.db.Select(
		ctx,
		&rows,
		"SELECT status, count(*) AS n FROM deployments WHERE "+where+" AND "+statusIsUnknown+" GROUP BY status",
		args...)
	for _, r := range rows {
		moveCount(counts, r.Status, countUnknown, r.N)
	}
	return err
}

// movePaused counts campaigns that wait for a person as paused instead of running.
func (s *Service) movePaused(ctx context.Context, counts map[string]int64) error {
	where, args := callerFrom(ctx).scope().SQL()
	var n int64
	err := s.db.Get(
		ctx, &n, "SELECT count(*) FROM campaigns WHERE "+where+" AND "+campaignIsPaused,
		args...)
	moveCount(counts, "running", countPaused, n)
	return err
}

// moveCount moves up to n objects from one state to another. The tallies were read a moment earlier
// and may be lower than n.
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
