package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

// cluster makes replicas on one PostgreSQL.
type cluster struct {
	testing.TB
	args []string
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	return &cluster{
		t,
		[]string{
			"--database", dbtest.PostgresURL(t), "--secret-key", secretKey, "--pki-dir",
			filepath.Join(t.TempDir(), "pki"), "--allow-private-targets",
		},
	}
}

func (c *cluster) replica() *edge { c.Helper(); return startEdge(c.TB, c.args...) }

// traffic has every site hand over its events one after the other, each to the
// next replica, until it is acknowledged.
type traffic struct {
	testing.TB
	name  string
	sites []string

	mu       sync.Mutex
	replicas []*edge
	sent     map[string][]string // by site, in order of acknowledgement
	total    atomic.Int64
}

func newTraffic(t testing.TB, name string, sites []string, replicas ...*edge) *traffic {
	return &traffic{TB: t, name: name, sites: sites, replicas: replicas, sent: map[string][]string{}}
}

func (tr *traffic) through(replicas ...*edge) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.replicas = replicas
}

func (tr *traffic) replica(n int) *edge {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.replicas[n%len(tr.replicas)]
}

// run has every site send until enough says so; it is asked before each event.
func (tr *traffic) run(enough func(sentBySite int) bool) {
	var sites sync.WaitGroup
	for i, site := range tr.sites {
		sites.Go(func() {
			for n := 0; !enough(n); n++ {
				id := fmt.Sprintf("%s-%d-%05d", tr.name, i, n)
				for try := i + n; !tr.replica(try).ingest(event(id, site, fmt.Sprint(n))); try++ {
					if tr.Context().Err() != nil || tr.Failed() {
						return
					}
					time.Sleep(5 * time.Millisecond) // a replica is on its way out
				}
				tr.mu.Lock()
				tr.sent[site] = append(tr.sent[site], id)
				tr.mu.Unlock()
				tr.total.Add(1)
			}
		})
	}
	sites.Wait()
}

// acknowledged are all events that were sent.
func (tr *traffic) acknowledged() map[string]bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	ids := map[string]bool{}
	for _, sent := range tr.sent {
		for _, id := range sent {
			ids[id] = true
		}
	}
	return ids
}

// checkDeliveries fails the test unless a path got every event exactly once, and
// those of each site in order.
func (tr *traffic) checkDeliveries(tg *target, path string) {
	tr.Helper()
	got := tg.deliveries(path)
	if lost := missing(tr.acknowledged(), got); len(lost) > 0 {
		tr.Errorf("%s: acknowledged events that were not delivered: %s", path, sample(lost))
	}
	if more := repeated(got); len(more) > 0 {
		tr.Errorf("%s: events that were delivered more than once: %s", path, sample(more))
	}
	bySite := map[string][]string{}
	for _, r := range tg.requests(path) {
		bySite[r.SiteID] = append(bySite[r.SiteID], r.EventID)
	}
	disordered, example := 0, ""
	for site, sent := range tr.sent {
		got := bySite[site]
		if len(got) != len(sent) {
			continue // reported above
		}
		for i := range sent {
			if got[i] != sent[i] {
				disordered++
				example = fmt.Sprintf("%s came where %s was due", got[max(0, i-1):min(len(got), i+3)], sent[i])
				break
			}
		}
	}
	if disordered > 0 {
		tr.Errorf(
			"%s: the events of %d of %d sites did not come in the order of their acceptance: %s", path, disordered,
			len(tr.sent), example,
		)
	}
}

func enrollMany(e *edge, n int) []string {
	e.Helper()
	sites := make([]string, n)
	for i := range sites {
		sites[i], _ = e.enroll(fmt.Sprintf("site %d", i))
	}
	return sites
}

func attempts(e *edge) float64 { return e.metric("edge_delivery_attempts_total") }

func TestReplicasDeliverEveryEventOnceAndInOrderWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	tg := newTarget(t, nil)
	a, b := c.replica(), c.replica()
	paths := []string{"/one", "/two"}
	for _, path := range paths {
		a.route(path, tg.url+path)
	}
	tr := newTraffic(t, "ev", enrollMany(a, 20), a, b)

	// Two replicas, and no fewer than 2,000 events. The second replica gets its
	// share of the lanes within seconds; there is traffic until it has.
	deadline := time.Now().Add(patience)
	var both atomic.Bool
	tr.run(func(n int) bool {
		if n%20 == 0 && attempts(a) > 0 && attempts(b) > 0 {
			both.Store(true)
		}
		return n >= 100 && both.Load() || time.Now().After(deadline)
	})
	if !both.Load() {
		t.Fatalf("deliveries by replica: %v and %v; both should make some", attempts(a), attempts(b))
	}
	a.drained()
	if made, want := attempts(a)+attempts(b), 2*tr.total.Load(); int64(made) != want {
		t.Errorf("the replicas made %v attempts for %d deliveries", made, want)
	}

	// A third joins and the first leaves, in the middle of the traffic.
	tr.name = "more"
	d := c.replica()
	var left atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.run(func(int) bool { return left.Load() })
	}()
	tr.through(a, b, d)
	eventually(t, "the third replica delivers", func() bool { return attempts(d) > 0 })
	a.process.terminate()
	tr.through(b, d)
	if code := a.process.wait(); code != 0 {
		t.Errorf("the leaving replica ended with exit code %d", code)
	}
	before := tr.total.Load()
	eventually(t, "the traffic goes on", func() bool { return tr.total.Load() > before+200 })
	left.Store(true)
	<-done
	// What a leaving replica frees, the others have at their next renewal, long
	// before its leases would run out.
	within(t, 12*time.Second, "the rest is delivered", func() bool {
		return got[edgeapi.Overview](d.api(adminToken).GetOverview(t.Context())).is(t, 200).DeliveriesPending == 0
	})
	for _, path := range paths {
		tr.checkDeliveries(tg, path)
	}
	b.checkAudit()
	t.Logf("%d events over %d routes, with 20 sites and 3 replicas", tr.total.Load(), len(paths))
}

func TestASlowRequestOfALeavingReplicaIsNotRepeatedByAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	begun, release := make(chan struct{}), make(chan struct{})
	tg := newTarget(t, func(r received) int {
		if r.EventID == "slow" && r.again == 0 {
			close(begun)
			<-release
		}
		return http.StatusOK
	})
	a := c.replica()
	timeout := 60
	a.route("slow", tg.url+"/slow", func(r *edgeapi.RouteInput) { r.TimeoutSeconds = &timeout })
	site, _ := a.enroll("site")
	if !a.ingest(event("slow", site, "1")) {
		t.Fatal("not acknowledged")
	}
	<-begun
	b := c.replica()
	a.process.terminate()
	// Longer than leases last that nobody renews.
	timer := time.NewTimer(20 * time.Second)
	for waiting := true; waiting; {
		select {
		case <-timer.C:
			waiting = false
		case <-a.process.exited:
			t.Error("the replica ended while its request was under way")
			waiting = false
		case <-time.After(100 * time.Millisecond):
			waiting = len(tg.requests("/slow")) == 1
		}
	}
	close(release)
	a.process.wait()
	b.drained()
	if n := len(tg.requests("/slow")); n != 1 {
		t.Errorf("the target got the event %d times", n)
	}
}

func TestASurvivorTakesOverWhatAKilledReplicaHad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	tg := newTarget(t, nil)
	a, b := c.replica(), c.replica()
	a.route("all", tg.url+"/all")
	tr := newTraffic(t, "ev", enrollMany(a, 20), a, b)
	deadline := time.Now().Add(patience)
	tr.run(func(n int) bool {
		return n%10 == 0 && attempts(a) > 0 && attempts(b) > 0 || time.Now().After(deadline)
	})
	before := tr.total.Load()

	tr.name = "more"
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.run(func(int) bool { return over.Load() })
	}()
	eventually(t, "there is traffic", func() bool { return tr.total.Load() > before+50 })
	a.kill()
	tr.through(b)
	before = tr.total.Load()
	eventually(t, "the survivor accepts events", func() bool { return tr.total.Load() > before+200 })
	over.Store(true)
	<-done
	start := time.Now()
	within(t, 22*time.Second, "the survivor has delivered everything", func() bool {
		return got[edgeapi.Overview](b.api(adminToken).GetOverview(t.Context())).is(t, 200).DeliveriesPending == 0
	})
	t.Logf("everything was delivered %s after the traffic ended", time.Since(start).Round(100*time.Millisecond))
	if lost := missing(tr.acknowledged(), tg.deliveries("/all")); len(lost) > 0 {
		t.Errorf("acknowledged events that were not delivered: %s", sample(lost))
	}
	if lost := missing(tr.acknowledged(), b.events()); len(lost) > 0 {
		t.Errorf("acknowledged events that are not stored: %s", sample(lost))
	}
	b.checkAudit()
}

func TestASiteThatIsStuckDoesNotHoldUpTheOtherReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var stuck atomic.Value
	stuck.Store("")
	release := make(chan struct{})
	tg := newTarget(t, func(r received) int {
		if r.SiteID == stuck.Load() {
			<-release
		}
		return http.StatusOK
	})
	t.Cleanup(func() { close(release) })
	a, b := c.replica(), c.replica()
	timeout := 60
	a.route("all", tg.url+"/all", func(r *edgeapi.RouteInput) { r.TimeoutSeconds = &timeout })
	sites := enrollMany(a, 20)
	tr := newTraffic(t, "ev", sites, a, b)
	deadline := time.Now().Add(patience)
	tr.run(func(n int) bool {
		return n%10 == 0 && attempts(a) > 0 && attempts(b) > 0 || time.Now().After(deadline)
	})
	a.drained()

	// The target stops answering for one site, which has a long backlog. Sites that
	// the same replica delivers may have to wait; half of all are the other's.
	stuck.Store(sites[0])
	var batch []edgeapi.EventInput
	for i := range 400 {
		batch = append(batch, event(fmt.Sprintf("stuck-%d", i), sites[0], "1"))
	}
	ask(a.api(adminToken).IngestEvents(t.Context(), edgeapi.EventBatch{Events: batch})).is(t, 202)
	free := map[string]bool{}
	for i, site := range sites[1:] {
		id := fmt.Sprintf("free-%d", i)
		free[id] = true
		ask(a.api(adminToken).IngestEvent(t.Context(), event(id, site, "1"))).is(t, 202)
	}
	within(t, 5*time.Second, "the other replica delivers the events of its sites", func() bool {
		return len(missing(free, tg.deliveries("/all"))) < len(free)-2
	})
}

func TestWhatIsRevokedOnOneReplicaIsRefusedAtOnceOnTheOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.replica(), c.replica()
	admin := a.api(adminToken)

	site, agent := a.enroll("site")
	beat := edgeapi.HeartbeatInput{}
	ask(b.api(agent).Heartbeat(t.Context(), beat)).is(t, 200)
	ask(admin.RevokeSite(t.Context(), site)).is(t, 200)
	ask(b.api(agent).Heartbeat(t.Context(), beat)).is(t, 401)

	org := got[edgeapi.NewOrg](admin.CreateOrg(t.Context(), edgeapi.OrgInput{Name: "acme"})).is(t, 201)
	ask(b.api(org.AdminToken).GetMe(t.Context())).is(t, 200)
	ask(admin.DeleteOrg(t.Context(), org.Id)).is(t, 204)
	ask(b.api(org.AdminToken).GetMe(t.Context())).is(t, 401)

	session := got[edgeapi.Session](
		a.api("").Login(t.Context(), edgeapi.LoginRequest{Username: adminName, Password: adminPassword}),
	).is(t, 200).Token
	ask(b.api(session).GetMe(t.Context())).is(t, 200)
	ask(a.api(session).Logout(t.Context())).is(t, 204)
	ask(b.api(session).GetMe(t.Context())).is(t, 401)
}
