package e2e

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

func TestEventsOfASiteArriveInTheOrderOfTheirAcceptance(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"SQLite", "PostgreSQL"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			args := []string{"--allow-private-targets"}
			if engine == "PostgreSQL" {
				args = append(args, "--database", dbtest.PostgresURL(t))
			}
			tg := newTarget(t, nil)
			e := startEdge(t, args...)
			e.route("all", tg.url+"/all")
			tr := newTraffic(t, "ev", enrollMany(e, 20), e)
			tr.run(func(n int) bool { return n == 100 })
			e.drained()
			tr.checkDeliveries(tg, "/all")
			if made := attempts(e); int64(made) != tr.total.Load() {
				t.Errorf("%v attempts for %d deliveries", made, tr.total.Load())
			}
		})
	}
}

func TestEventsThatWaitForARetryDoNotHoldUpNewOnes(t *testing.T) {
	t.Parallel()
	var failing atomic.Value
	failing.Store("")
	tg := newTarget(t, func(r received) int {
		if r.SiteID == failing.Load() {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	tg.retryAfter = "600"
	e := startEdge(t, "--allow-private-targets")
	e.route("all", tg.url+"/all")
	bad, _ := e.enroll("bad")
	good, _ := e.enroll("good")
	failing.Store(bad)
	// Successes in between keep the route's circuit breaker closed.
	for i := range 200 {
		for _, site := range []string{bad, good} {
			id := fmt.Sprintf("%s-%d", site, i)
			ask(e.api(adminToken).IngestEvent(t.Context(), event(id, site, "1"))).is(t, 202)
			within(
				t, 5*time.Second, fmt.Sprintf("a first attempt, with %d other events waiting for a retry", i),
				func() bool { return tg.deliveries("/all")[id] == 1 },
			)
		}
	}
}
