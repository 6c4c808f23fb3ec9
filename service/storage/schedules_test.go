package storage_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// clocked starts a gateway whose clock the test sets.
func clocked(t *testing.T) (*gateway, *atomic.Int64) {
	t.Helper()
	ahead := &atomic.Int64{}
	g := prepare(t)
	g.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	g.begin()
	g.admin = g.sign(jose.HS256, "ada", "admin", "", 1000*time.Hour)
	return g, ahead
}

func (g *gateway) schedule(id string) storageapi.Schedule {
	g.Helper()
	return contracttest.As[storageapi.Schedule](g.call("GET", "/schedules/"+id, g.admin, nil).Want(200))
}

// runSchedules begins what is due, and waits for the end of all jobs.
func (g *gateway) runSchedules() {
	g.Helper()
	if err := g.service.Schedules().Run(g.Context()); err != nil {
		g.Error(err)
	}
	for _, j := range contracttest.As[[]storageapi.Job](g.call("GET", "/jobs?limit=1000", g.admin, nil).Want(200)) {
		g.job(j.Id, g.admin)
	}
}

func TestSchedulesTakeSnapshotsAndKeepSoMany(t *testing.T) {
	t.Parallel()
	g, ahead := clocked(t)
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	mine := g.done(g.call("POST", "/volumes/"+id+"/snapshots", g.admin, object{"name": "mine"}), g.admin)
	c := contracttest.As[storageapi.Schedule](g.call("POST", "/schedules", g.admin, object{
		"name": "hourly", "kind": "snapshot", "volume_id": id, "every_secs": 3600, "keep": 2,
	}).Want(201))
	var names []string
	for range 4 {
		g.runSchedules()
		g.runSchedules() // nothing is due any more, and what is kept no longer goes
		all := contracttest.As[[]storageapi.Snapshot](g.call("GET", "/volumes/"+id+"/snapshots", g.admin, nil).Want(200))
		if all[0].State != "ready" || !strings.HasPrefix(all[0].Name, "hourly-") || len(names) > 0 && all[0].Name == names[len(names)-1] {
			t.Fatalf("%+v", all[0])
		}
		names = append(names, all[0].Name)
		if want := min(len(names), 2) + 1; len(all) != want || all[len(all)-1].Id != mine {
			t.Errorf("%d snapshots, want %d: %+v", len(all), want, all)
		}
		if s := g.schedule(c.Id); s.LastError != "" || s.LastJobId == "" || s.NextAt == nil || !s.NextAt.After(*s.LastAt) {
			t.Errorf("%+v", s)
		}
		ahead.Add(int64(time.Hour))
	}
	// What was missed is made up for once.
	ahead.Add(int64(10 * time.Hour))
	before := len(contracttest.As[[]storageapi.Job](g.call("GET", "/jobs?kind=snapshot.create&limit=1000", g.admin, nil).Want(200)))
	g.runSchedules()
	g.runSchedules()
	if n := len(contracttest.As[[]storageapi.Job](g.call("GET", "/jobs?kind=snapshot.create&limit=1000", g.admin, nil).Want(200))); n != before+1 {
		t.Errorf("%d runs", n-before)
	}
	// A run that cannot begin says why, and the next one is tried.
	g.call("POST", "/backends/"+g.local().Id+"/cordon", g.admin, nil).Want(200)
	bad := contracttest.As[storageapi.Schedule](g.call("POST", "/schedules", g.admin, object{
		"name": "checks", "kind": "verify", "volume_id": id, "every_secs": 3600,
	}).Want(201))
	g.runSchedules()
	if s := g.schedule(bad.Id); !strings.Contains(s.LastError, "no backup") || s.NextAt == nil || s.LastJobId != "" {
		t.Errorf("%+v", s)
	}
	// It goes with its volume.
	for _, s := range contracttest.As[[]storageapi.Snapshot](g.call("GET", "/volumes/"+id+"/snapshots", g.admin, nil).Want(200)) {
		g.done(g.call("DELETE", "/snapshots/"+s.Id, g.admin, nil), g.admin)
	}
	g.done(g.call("DELETE", "/volumes/"+id, g.admin, nil), g.admin)
	g.call("GET", "/schedules/"+c.Id, g.admin, nil).Refused(404, "NOT_FOUND", "")
}

func TestARunOfAScheduleIsTakenByOneReplica(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
		g.call("POST", "/schedules", g.admin, object{
			"name": "hourly", "kind": "snapshot", "volume_id": id, "every_secs": 3600,
		}).Want(201)
		ended := make(chan error, 8)
		for range cap(ended) {
			go func() { ended <- g.service.Schedules().Run(g.Context()) }()
		}
		for range cap(ended) {
			if err := <-ended; err != nil {
				g.Error(err)
			}
		}
		if all := contracttest.As[[]storageapi.Job](g.call("GET", "/jobs?kind=snapshot.create", g.admin, nil).Want(200)); len(all) != 1 {
			g.Errorf("%d jobs", len(all))
		}
	})
}

func TestSnapshotsOfWhichVolumesWereMadeDoNotKeepOthers(t *testing.T) {
	t.Parallel()
	g, ahead := clocked(t)
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	g.call("POST", "/schedules", g.admin, object{
		"name": "hourly", "kind": "snapshot", "volume_id": id, "every_secs": 3600, "keep": 1,
	}).Want(201)
	const cloned = 21 // more than are removed at once
	for i := range cloned + 3 {
		g.runSchedules()
		if i < cloned {
			all := contracttest.As[[]storageapi.Snapshot](g.call("GET", "/volumes/"+id+"/snapshots", g.admin, nil).Want(200))
			g.done(g.call("POST", "/snapshots/"+all[0].Id+"/clone", g.admin, object{"name": fmt.Sprintf("clone-%d", i)}), g.admin)
		}
		ahead.Add(int64(time.Hour))
	}
	g.runSchedules()
	g.runSchedules()
	if all := contracttest.As[[]storageapi.Snapshot](g.call("GET", "/volumes/"+id+"/snapshots?limit=1000", g.admin, nil).Want(200)); len(all) != cloned+1 {
		t.Errorf("%d snapshots, want %d", len(all), cloned+1)
	}
}
