package edge_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// route makes a route to a target.
func (c *control) route(tg *target, more object) edgeapi.Route {
	c.Helper()
	body := object{"name": "r", "topic": "*", "target_url": tg.url}
	for k, v := range more {
		body[k] = v
	}
	return contracttest.As[edgeapi.Route](c.call("POST", "/routes", adminToken, body).Want(201))
}

func (c *control) send(token, site, id, topic string) {
	c.Helper()
	c.call("POST", "/events", token, object{
		"event_id": id,
		"site_id":  site,
		"topic":    topic,
		"payload":  object{"id": id},
		"headers":  object{"X-Line": "4"},
	}).Want(202)
}

func (c *control) deadLetters(route string) []edgeapi.DeadLetter {
	c.Helper()
	return contracttest.As[[]edgeapi.DeadLetter](c.call("GET", "/deadletters?limit=1000&route_id="+route, adminToken, nil).Want(200))
}

func TestAnEventReachesItsTargetSignedAndWithItsHeaders(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tg := newTarget(c.T, nil)
		site, agent := c.site("plant", enrollmentToken)
		route := c.route(tg, object{"topic": "temp.*", "method": "PUT"})
		if route.Secret == nil {
			c.Fatal("creation does not show the secret")
		}
		if r := contracttest.As[edgeapi.Route](c.call("GET", "/routes/"+route.Id, adminToken, nil).Want(200)); r.Secret != nil {
			c.Error("a read shows the secret")
		}
		c.send(agent, site, "e1", "temp.oven")
		c.send(agent, site, "e2", "other")
		c.eventually("delivery", func() bool { return len(tg.got()) == 1 })
		got := tg.got()[0]
		if got.method != "PUT" || got.header.Get("X-Line") != "4" || got.event.EventID != "e1" ||
			string(got.event.Payload) != `{"id":"e1"}` ||
			got.header.Get("webhook-id") != "e1" {
			c.Errorf("%s %v %s", got.method, got.header, got.body)
		}
		secret, err := webhook.ParseSecret(*route.Secret)
		if err != nil {
			c.Fatal(err)
		}
		if err := secret.Verify(got.header, got.body, time.Now(), webhook.DefaultTolerance); err != nil {
			c.Errorf("signature: %v", err)
		}
		c.eventually("statistics", func() bool {
			st := contracttest.As[edgeapi.RouteStats](c.call("GET", "/routes/"+route.Id+"/stats", viewerToken, nil).Want(200))
			return st.Delivered == 1 && st.Pending == 0 && st.LastStatus == 200 && len(st.Series) == 1
		})
	})
}

func TestEventsOfASiteArriveInOrder(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tg := newTarget(c.T, nil)
		c.route(tg, nil)
		const sites, each = 4, 40
		var ids, tokens [sites]string
		for i := range sites {
			ids[i], tokens[i] = c.site(fmt.Sprint(i), enrollmentToken)
		}
		for n := range each {
			for i := range sites {
				c.send(tokens[i], ids[i], fmt.Sprintf("%d-%03d", i, n), "t")
			}
		}
		c.eventually("all deliveries", func() bool { return len(tg.got()) >= sites*each })
		bySite := map[string][]string{}
		for _, r := range tg.got() {
			bySite[r.event.SiteID] = append(bySite[r.event.SiteID], r.event.EventID)
		}
		for site, got := range bySite {
			if len(got) != each || !slices.IsSorted(got) {
				c.Errorf("site %s: %v", site, got)
			}
		}
	})
}

func TestATargetThatFailsIsTriedAgainAndItsSuccessorsDoNotWait(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tg := newTarget(c.T, func(n int, _ *http.Request, body []byte) int {
			if n <= 1 {
				return 503
			}
			return 200
		})
		site, agent := c.site("plant", enrollmentToken)
		c.route(tg, nil)
		c.send(agent, site, "first", "t")
		c.eventually("the first attempt", func() bool { return len(tg.got()) == 1 })
		c.send(agent, site, "second", "t")
		c.eventually("a retry", func() bool { return len(tg.got()) == 3 })
		ids := tg.ids()
		slices.Sort(ids)
		if !slices.Equal(ids, []string{"first", "first", "second"}) {
			c.Errorf("%v", ids)
		}
	})
}

func TestWhatATargetsAnswerMeans(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.site("plant", enrollmentToken)
	for status, want := range map[int]struct {
		reason   edgeapi.DeadLetterReason
		attempts int
	}{
		400: {edgeapi.DeadLetterReasonPermanent, 1}, 404: {edgeapi.DeadLetterReasonPermanent, 1}, 302: {edgeapi.DeadLetterReasonPermanent, 1},
		408: {edgeapi.DeadLetterReasonExhausted, 2}, 429: {edgeapi.DeadLetterReasonExhausted, 2}, 500: {edgeapi.DeadLetterReasonExhausted, 2},
	} {
		tg := newTarget(t, func(int, *http.Request, []byte) int { return status })
		route := c.route(tg, object{"topic": fmt.Sprint(status), "retry_max": 1})
		c.send(agent, site, fmt.Sprintf("e%d", status), fmt.Sprint(status))
		var letters []edgeapi.DeadLetter
		c.eventually(
			fmt.Sprintf("dead letter after %d", status),
			func() bool { letters = c.deadLetters(route.Id); return len(letters) == 1 },
		)
		d := letters[0]
		if d.Reason != want.reason || d.Attempts != want.attempts || d.LastStatus != status ||
			d.Event.EventId != fmt.Sprintf("e%d", status) ||
			!strings.Contains(d.LastError, fmt.Sprint(status)) {
			t.Errorf("%d: %+v", status, d)
		}
	}
}

func TestATargetThatIsGoneDisablesItsRouteAndRaisesAnAlert(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tg := newTarget(c.T, func(int, *http.Request, []byte) int { return 410 })
		site, agent := c.site("plant", enrollmentToken)
		route := c.route(tg, nil)
		c.send(agent, site, "e1", "t")
		c.eventually("the route is disabled", func() bool {
			r := contracttest.As[edgeapi.Route](c.call("GET", "/routes/"+route.Id, adminToken, nil).Want(200))
			return !r.Enabled && r.DisabledReason != nil
		})
		c.send(agent, site, "e2", "t") // not lost, though the route is off
		c.eventually("two dead letters", func() bool { return len(c.deadLetters(route.Id)) == 2 })
		reasons := map[string]edgeapi.DeadLetterReason{}
		for _, d := range c.deadLetters(route.Id) {
			reasons[d.Event.EventId] = d.Reason
		}
		if reasons["e1"] != "permanent" || reasons["e2"] != "route_disabled" {
			c.Errorf("%v", reasons)
		}
		c.eventually("an alert", func() bool {
			alerts := contracttest.As[[]edgeapi.Alert](c.call("GET", "/alerts", adminToken, nil).Want(200))
			return slices.ContainsFunc(
				alerts, func(a edgeapi.Alert) bool { return a.Kind == "route_failing" && a.Subject == route.Id },
			)
		})
	})
}

func TestADeadLetterCanBeReplayedUntilItIsDelivered(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		status := make(chan int, 10)
		tg := newTarget(c.T, func(int, *http.Request, []byte) int { return <-status })
		site, agent := c.site("plant", enrollmentToken)
		route := c.route(tg, nil)
		status <- 400
		c.send(agent, site, "e1", "t")
		c.eventually("a dead letter", func() bool { return len(c.deadLetters(route.Id)) == 1 })
		id := c.deadLetters(route.Id)[0].Id

		// A replay that fails comes back.
		if d := contracttest.As[edgeapi.DeadLetter](
			c.call("POST", "/deadletters/"+id+"/replay", adminToken, nil).Want(202),
		); d.Status != "replaying" ||
			d.ReplayCount != 1 {
			c.Errorf("%+v", d)
		}
		c.call("POST", "/deadletters/"+id+"/replay", adminToken, nil).Refused(409, "replaying", "")
		c.call("DELETE", "/deadletters/"+id, adminToken, nil).Refused(409, "replaying", "")
		status <- 404
		c.eventually("the replay failed", func() bool {
			d := c.deadLetters(route.Id)
			return len(d) == 1 && d[0].Status == "dead" && d[0].LastStatus == 404 && d[0].ReplayCount == 1
		})
		// One that succeeds removes it, also when the event itself is long gone.
		c.ahead(8 * 24 * time.Hour)
		c.maintain()
		c.call("POST", "/deadletters/"+id+"/replay", adminToken, nil).Want(202)
		status <- 200
		c.eventually("the dead letter is gone", func() bool { return len(c.deadLetters(route.Id)) == 0 })
		c.call("GET", "/deadletters/"+id, adminToken, nil).Want(404)
		if ids := tg.ids(); !slices.Equal(ids, []string{"e1", "e1", "e1"}) {
			c.Errorf("%v", ids)
		}
		if o := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200)); o.Deadletters != 0 ||
			o.DeliveriesPending != 0 {
			c.Errorf("%+v", o)
		}
	})
}

func TestManyDeadLettersCanBeReplayedAtOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tg := newTarget(c.T, nil)
		site, agent := c.site("plant", enrollmentToken)
		route := c.route(tg, object{"enabled": false})
		const n = 120
		for i := range n {
			c.send(agent, site, fmt.Sprintf("e%03d", i), "t")
		}
		if got := len(c.deadLetters(route.Id)); got != n {
			c.Fatalf("%d dead letters", got)
		}
		c.call("POST", "/deadletters/replay", adminToken, object{"route_id": route.Id}).Refused(
			409, "route_disabled", "",
		)
		c.call("PATCH", "/routes/"+route.Id, adminToken, object{"enabled": true}).Want(200)
		c.call(
			"POST", "/deadletters/replay", adminToken,
			object{"route_id": route.Id, "from": "2026-02-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
		).Refused(400, "invalid", "to")
		if r := contracttest.As[edgeapi.ReplayReceipt](
			c.call("POST", "/deadletters/replay", adminToken, object{"route_id": route.Id}).Want(202),
		); r.Matched != n {
			c.Errorf("%+v", r)
		}
		c.eventually("all are delivered", func() bool { return len(c.deadLetters(route.Id)) == 0 })
		ids := tg.ids()
		if len(ids) != n || !slices.IsSorted(ids) {
			c.Errorf("%d deliveries, sorted %t", len(ids), slices.IsSorted(ids))
		}
	})
}

func TestDisablingAndDeletingARouteKeepsWhatItHadPending(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		gate := make(chan struct{})
		tg := newTarget(c.T, func(int, *http.Request, []byte) int { <-gate; return 500 })
		defer close(gate)
		site, agent := c.site("plant", enrollmentToken)
		off, gone := c.route(tg, object{"topic": "off"}), c.route(tg, object{"topic": "gone"})
		for i := range 3 {
			c.send(agent, site, fmt.Sprintf("off%d", i), "off")
			c.send(agent, site, fmt.Sprintf("gone%d", i), "gone")
		}
		c.call("PATCH", "/routes/"+off.Id, adminToken, object{"enabled": false}).Want(200)
		c.call("DELETE", "/routes/"+gone.Id, adminToken, nil).Want(204)
		for route, reason := range map[string]edgeapi.DeadLetterReason{off.Id: "route_disabled", gone.Id: "route_deleted"} {
			letters := c.deadLetters(route)
			if len(letters) != 3 {
				c.Errorf("%s: %d dead letters", reason, len(letters))
			}
			for _, d := range letters {
				if d.Reason != reason {
					c.Errorf("%+v", d)
				}
			}
		}
		c.call("POST", "/deadletters/"+c.deadLetters(gone.Id)[0].Id+"/replay", adminToken, nil).Refused(
			409, "route_deleted", "",
		)
		if o := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200)); o.DeliveriesPending != 0 ||
			o.Deadletters != 6 {
			c.Errorf("pending %d, dead %d", o.DeliveriesPending, o.Deadletters)
		}
	})
}

func TestADeadTargetDelaysNoOtherRoute(t *testing.T) {
	t.Parallel()
	c := start(t)
	gate := make(chan struct{})
	defer close(gate)
	var atOnce atomic.Int64
	var overlapped atomic.Bool
	stuck := newTarget(t, func(_ int, r *http.Request, _ []byte) int {
		if atOnce.Add(1) > 1 {
			overlapped.Store(true)
		}
		defer atOnce.Add(-1)
		select {
		case <-gate:
		case <-r.Context().Done(): // the attempt has timed out, and another may follow
		}
		return 200
	})
	fine := newTarget(t, nil)
	site, agent := c.site("plant", enrollmentToken)
	c.route(stuck, nil)
	c.route(fine, nil)
	for i := range 50 {
		c.send(agent, site, fmt.Sprintf("e%02d", i), "t")
	}
	c.eventually("the other route delivers", func() bool { return len(fine.got()) == 50 })
	if overlapped.Load() {
		t.Error("the route has made two requests of one site at once")
	}
}

func TestABrokenTargetIsSparedByItsCircuitBreaker(t *testing.T) {
	t.Parallel()
	c := start(t)
	tg := newTarget(t, func(int, *http.Request, []byte) int { return 500 })
	route := c.route(tg, object{"retry_max": 20})
	const events = 8
	for i := range events {
		site, agent := c.site(fmt.Sprint(i), enrollmentToken)
		c.send(agent, site, fmt.Sprintf("e%d", i), "t")
	}
	if d := route.Delivery; d.State != "idle" || d.LastFailureAt != nil {
		t.Errorf("a new route: %+v", d)
	}
	c.eventually("the breaker opens", func() bool {
		st := contracttest.As[edgeapi.RouteStats](c.call("GET", "/routes/"+route.Id+"/stats", viewerToken, nil).Want(200))
		return st.Breaker == "open" && st.FailedAttempts >= 5
	})
	listed := contracttest.As[[]edgeapi.Route](c.call("GET", "/routes", viewerToken, nil).Want(200))[0].Delivery
	if listed.State != "circuit_open" || listed.LastStatus != 500 ||
		!strings.Contains(listed.LastError, "answered 500") ||
		listed.LastFailureAt == nil {
		t.Errorf("the list shows %+v", listed)
	}
	// What waits for the breaker longer than its retries may take is given up.
	c.ahead(3 * time.Hour)
	c.eventually("all are dead letters", func() bool { return len(c.deadLetters(route.Id)) == events })
	for _, d := range c.deadLetters(route.Id) {
		if d.LastStatus != 500 || !strings.Contains(d.LastError, "answered 500") {
			t.Errorf(
				"a dead letter after %d attempts does not say how the target failed: %d, %q", d.Attempts,
				d.LastStatus, d.LastError,
			)
		}
	}
	// Giving up is not an attempt: without the breaker, each event would have been tried again. Each was tried once at
	// most before the breaker opened, and a few of them afterwards to find out whether the target is back.
	after := contracttest.As[edgeapi.RouteStats](c.call("GET", "/routes/"+route.Id+"/stats", viewerToken, nil).Want(200))
	if after.FailedAttempts > events+4 || !strings.HasPrefix(after.LastError, "the target answered 500") {
		t.Errorf("%d failed attempts of %d events; last error %q", after.FailedAttempts, events, after.LastError)
	}
}

func TestARouteShowsHowItsLastAttemptWent(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		var status atomic.Int64
		status.Store(503)
		tg := newTarget(c.T, func(int, *http.Request, []byte) int { return int(status.Load()) })
		r := c.route(tg, nil)
		site, agent := c.site("one", enrollmentToken)
		c.send(agent, site, "e1", "t")
		health := func() edgeapi.RouteDelivery {
			return contracttest.As[edgeapi.Route](c.call("GET", "/routes/"+r.Id, viewerToken, nil).Want(200)).Delivery
		}
		c.eventually("failing", func() bool { d := health(); return d.State == "failing" && d.LastStatus == 503 })
		status.Store(204)
		c.eventually("ok again, with the last error", func() bool {
			d := health()
			return d.State == "ok" && d.LastStatus == 204 && strings.Contains(d.LastError, "answered 503") &&
				d.LastSuccessAt != nil
		})
		if r := contracttest.As[edgeapi.Route](
			c.call("PATCH", "/routes/"+r.Id, adminToken, object{"enabled": false}).Want(200),
		); r.Delivery.State != "disabled" {
			c.Errorf("%+v", r.Delivery)
		}
	})
}

func TestPendingDeliveriesSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(cfg *edge.Config) { cfg.Data = dir }
	first := start(t, at)
	gate := make(chan struct{})
	stuck := newTarget(t, func(n int, _ *http.Request, _ []byte) int {
		if n == 1 {
			<-gate
			return 500
		}
		return 200
	})
	site, agent := first.site("plant", enrollmentToken)
	first.route(stuck, nil)
	for i := range 5 {
		first.send(agent, site, fmt.Sprintf("e%d", i), "t")
	}
	first.eventually("the first attempt", func() bool { return len(stuck.got()) == 1 })
	close(gate)
	first.stop()
	second := start(t, at)
	second.eventually("all are delivered", func() bool {
		ids := stuck.ids()
		slices.Sort(ids)
		return len(slices.Compact(ids)) == 5
	})
}

func TestRoutesAreChecked(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *edge.Config) { cfg.AllowPrivateTargets = false })
	for name, tt := range map[string]struct {
		change object
		field  string
	}{
		"no scheme":        {object{"target_url": "example.com/x"}, "target_url"},
		"file":             {object{"target_url": "file:///etc/passwd"}, "target_url"},
		"loopback":         {object{"target_url": "http://127.0.0.1/"}, "target_url"},
		"mapped loopback":  {object{"target_url": "http://[::ffff:127.0.0.1]/"}, "target_url"},
		"decimal loopback": {object{"target_url": "http://2130706433/"}, "target_url"},
		"metadata":         {object{"target_url": "http://169.254.169.254/latest"}, "target_url"},
		"private":          {object{"target_url": "https://10.1.2.3/"}, "target_url"},
		"credentials":      {object{"target_url": "https://user:pass@example.com/"}, "target_url"},
		"no topic":         {object{"topic": ""}, "topic"},
		"retries":          {object{"retry_max": 21}, "retry_max"},
		"no retries":       {object{"retry_max": 0}, "retry_max"},
		"timeout":          {object{"timeout_seconds": 61}, "timeout_seconds"},
		"method":           {object{"method": "GET"}, "method"},
		"secret":           {object{"secret": "whsec_" + strings.Repeat("?", 40)}, "secret"},
	} {
		body := object{"name": "r", "topic": "*", "target_url": "https://example.com/hook"}
		for k, v := range tt.change {
			body[k] = v
		}
		a := c.call("POST", "/routes", adminToken, body)
		if a.Status != 400 || a.Problem().Field != tt.field {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	ok := contracttest.As[edgeapi.Route](
		c.call(
			"POST",
			"/routes",
			adminToken,
			object{"name": "r", "topic": "*", "target_url": "https://example.com/hook"},
		).Want(201),
	)
	if ok.Method != "POST" || !ok.Enabled || ok.RetryMax != 5 || ok.TimeoutSeconds != 10 {
		t.Errorf("defaults: %+v", ok)
	}
	c.call(
		"POST",
		"/routes",
		adminToken,
		object{"name": "r", "topic": "*", "target_url": "https://example.com/hook", "site_id": "nowhere"},
	).Want(404)
	c.call(
		"PATCH",
		"/routes/"+ok.Id,
		adminToken,
		object{"target_url": "http://localhost/"},
	).Refused(400, "target_blocked", "target_url")
}

// Times and payloads that no contract admits can be in the database all the same: an older version
// accepted them, or somebody edited them.
func TestAnEventThatCannotBeSentIsADeadLetterAndHoldsUpNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		gate := make(chan struct{})
		tg := newTarget(c.T, func(n int, _ *http.Request, _ []byte) int {
			if n == 1 {
				<-gate
			}
			return http.StatusOK
		})
		site, agent := c.site("plant", enrollmentToken)
		r := c.route(tg, nil)
		for _, id := range []string{"first", "broken", "late", "lost", "last"} {
			c.send(agent, site, id, "t")
		}
		c.eventually("the first request", func() bool { return len(tg.got()) == 1 })
		err := c.service.DB().Update(c.Context(), func(tx *db.Tx) error {
			for _, query := range []string{"UPDATE events SET payload = '{' WHERE event_id = 'broken'",
				"UPDATE events SET event_time = 253402304399000000 WHERE event_id = 'late'", // 9999-12-31T23:59:59-01:00
				"DELETE FROM events WHERE event_id = 'lost'"} {
				if n, err := tx.Exec(c.Context(), query); err != nil || n != 1 {
					return fmt.Errorf("%s: %d rows, %w", query, n, err)
				}
			}
			return nil
		})
		if err != nil {
			c.Fatal(err)
		}
		c.service.Reread(r.Id)
		close(gate)
		c.eventually(
			"the other deliveries", func() bool { return slices.Equal(tg.ids(), []string{"first", "late", "last"}) },
		)
		c.eventually("a dead letter", func() bool { return len(c.deadLetters(r.Id)) == 1 })
		if d := c.deadLetters(r.Id)[0]; d.Event.EventId != "broken" || string(d.Event.Payload) != `"{"` ||
			d.Reason != edgeapi.DeadLetterReasonPermanent ||
			!strings.Contains(d.LastError, "cannot be written as JSON") {
			c.Errorf("%+v", d)
		}
		c.eventually("the end of all deliveries", func() bool {
			return contracttest.As[edgeapi.RouteStats](
				c.call("GET", "/routes/"+r.Id+"/stats", adminToken, nil).Want(200),
			).Pending == 0
		})
	})
}

func TestTimesOutsideOfUTCsYearsAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		for _, at := range []string{"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+05:00"} {
			event := object{"site_id": site, "topic": "t", "payload": 1, "event_time": at}
			c.call("POST", "/events", agent, event).Refused(400, "invalid", "event_time")
			c.call("POST", "/events/batch", agent, object{"events": []object{event}}).Refused(
				400, "invalid", "events.0.event_time",
			)
			c.call(
				"POST", "/activity", agent, object{"entries": []object{{"message": "m", "level": "info", "time": at}}},
			).Refused(400, "invalid", "entries.0.time")
			c.call("GET", "/audit?from="+url.QueryEscape(at), adminToken, nil).Refused(400, "invalid", "from")
		}
		for _, path := range []string{"/events", "/activity", "/audit"} {
			c.call("GET", path, adminToken, nil).Want(200)
		}
	})
}

func TestQueriesThatContradictThemselvesAreRefused(t *testing.T) {
	t.Parallel()
	c := start(t)
	const earlier, later = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
	for query, field := range map[string]string{
		"/history?since=" + earlier + "&since=" + later: "since", "/audit?from=" + earlier + "&from=x": "from",
		"/audit?from=" + later + "&to=" + earlier: "from", "/events?limit=1&limit=1": "limit", "/events?q=a&q=b": "q",
	} {
		c.call("GET", query, adminToken, nil).Refused(400, "invalid", field)
	}
	for _, query := range []string{"/devices?ota_state=pending&ota_state=failed", "/audit?from=" + later + "&to=" + later} {
		c.call("GET", query, adminToken, nil).Want(200)
	}
}

func TestFieldsAreTakenByTheirExactNamesOnly(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.site("plant", enrollmentToken)
	c.call(
		"POST",
		"/routes",
		adminToken,
		object{"name": "r", "topic": "*", "target_url": "http://127.0.0.1:1", "RETRY_MAX": 99999999999},
	).Refused(400, "invalid", "RETRY_MAX")
	c.call(
		"POST",
		"/routes",
		adminToken,
		`{"name": "r", "topic": "*", "target_url": "http://127.0.0.1:1", "method": "POST", "method": "DELETE"}`,
	).Refused(400, "invalid", "method")
	c.call("POST", "/devices/register", agent, object{"device_id": "a", "name": "a", "Device_ID": "../x"}).Refused(
		400, "invalid", "Device_ID",
	)
	c.call(
		"POST", "/events", agent, object{"site_id": site, "topic": "t", "payload": object{"Topic": 1}, "TOPIC": "u"},
	).Refused(400, "invalid", "TOPIC")
	c.call(
		"POST",
		"/events",
		agent,
		`{"site_id": "`+site+`", "topic": "t", "payload": {"a": 1, "a": 2, "TOPIC": 3}}`,
	).Want(202)
	c.call("GET", "/devices/%00", adminToken, nil).Want(404)
	c.call("GET", "/events?topic=%ff", adminToken, nil).Refused(400, "invalid", "topic")
}

// A site's only event waits neither for another site's backlog, which has one request under way at a
// time, nor behind it.
func TestASitesEventDoesNotWaitForTheBacklogOfAnother(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		busy, busyAgent := c.site("busy", enrollmentToken)
		quiet, quietAgent := c.site("quiet", enrollmentToken)
		gate := make(chan struct{})
		tg := newTarget(c.T, func(_ int, _ *http.Request, body []byte) int {
			if strings.Contains(string(body), busy) {
				<-gate
			}
			return http.StatusOK
		})
		r := c.route(tg, nil)
		const backlog = 400 // some times what a worker reads ahead; they go one after the other
		batch := make([]object, backlog)
		for i := range batch {
			batch[i] = object{"event_id": fmt.Sprint(i), "site_id": busy, "topic": "t", "payload": i}
		}
		c.call("POST", "/events/batch", busyAgent, object{"events": batch}).Want(202)
		c.eventually("the first request", func() bool { return len(tg.got()) == 1 })
		c.send(quietAgent, quiet, "only", "t")
		c.eventually("the quiet site's event", func() bool { return slices.Contains(tg.ids(), "only") })
		if n := len(tg.got()); n != 2 {
			c.Errorf("%d requests of the busy site came before", n-1)
		}
		close(gate)
		c.eventually("all deliveries", func() bool {
			return contracttest.As[edgeapi.RouteStats](
				c.call("GET", "/routes/"+r.Id+"/stats", adminToken, nil).Want(200),
			).Delivered == backlog+1
		})
		ids := slices.DeleteFunc(tg.ids(), func(id string) bool { return id == "only" })
		for i, id := range ids {
			if id != fmt.Sprint(i) {
				c.Fatalf("request %d of the busy site is of event %s", i, id)
			}
		}
	})
}

func TestADueRetryDoesNotWaitForABacklog(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		one, oneAgent := c.site("one", enrollmentToken)
		two, twoAgent := c.site("two", enrollmentToken)
		gate := make(chan struct{})
		tg := newTarget(c.T, func(n int, _ *http.Request, body []byte) int {
			if n == 1 {
				return http.StatusServiceUnavailable
			}
			if strings.Contains(string(body), one) {
				<-gate
			}
			return http.StatusOK
		})
		c.route(tg, nil)
		c.send(twoAgent, two, "again", "t")
		c.eventually("the first attempt", func() bool { return len(tg.got()) == 1 })
		batch := make([]object, 400)
		for i := range batch {
			batch[i] = object{"event_id": fmt.Sprint(i), "site_id": one, "topic": "t", "payload": i}
		}
		c.call("POST", "/events/batch", oneAgent, object{"events": batch}).Want(202)
		c.eventually("the retry", func() bool {
			return len(slices.DeleteFunc(tg.ids(), func(id string) bool { return id != "again" })) == 2
		})
		close(gate)
	})
}

func TestNULInTextIsRefusedOnBothEngines(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.call("POST", "/auth/login", "", object{"username": "\x00", "password": "x"}).Refused(400, "invalid", "username")
		c.call("POST", "/events", adminToken, object{"site_id": "\x00", "topic": "t", "payload": 1}).Refused(
			400, "invalid", "site_id",
		)
		c.call(
			"POST", "/events", agent, object{"site_id": site, "event_id": "\x00", "topic": "t", "payload": 1},
		).Refused(400, "invalid", "event_id")
	})
}

// Half of a surrogate pair is read as U+FFFD, so that two ids would be one, and one event a duplicate.
func TestTextThatCannotBeReadIsNoID(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.site("plant", enrollmentToken)
	c.call(
		"POST",
		"/events",
		agent,
		`{"site_id":"`+site+`","event_id":"x\ud800","topic":"t","payload":1}`,
	).Refused(400, "invalid", "event_id")
	c.call(
		"POST",
		"/events",
		agent,
		`{"site_id":"`+site+`","topic":"t\udfff","payload":1}`,
	).Refused(400, "invalid", "topic")
	c.call("POST", "/events", agent, `{"site_id":"`+site+`","topic":"t","payload":"\ud83e\udd21 \ud800"}`).Want(202)
	c.call("PATCH", "/sites/"+site, adminToken, "{\"name\":\"x\",\"zz\":\"\xff\"}").Refused(400, "invalid", "")
}
