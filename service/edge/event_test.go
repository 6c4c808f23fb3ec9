package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/edge"
)

func TestAnAcceptedEventIsListedAsItWasSent(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		sent := object{
			"event_id":   "e.1",
			"site_id":    site,
			"topic":      "temp/öfen",
			"payload":    object{"c": 1.50, "big": json.Number("12345678901234567890")},
			"headers":    object{"X-A": "b"},
			"event_time": "2026-01-02T03:04:05.123456Z",
		}
		if r := contracttest.As[edgeapi.EventReceipt](c.call("POST", "/events", agent, sent).Want(202)); r.EventId != "e.1" ||
			r.Duplicate {
			t := c.T
			t.Errorf("%+v", r)
		}
		got := contracttest.As[[]edgeapi.Event](c.call("GET", "/events", viewerToken, nil).Want(200))
		if len(got) != 1 || got[0].Topic != "temp/öfen" || got[0].Headers["X-A"] != "b" ||
			!got[0].EventTime.Equal(time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)) {
			c.Errorf("%+v", got)
		}
		if !strings.Contains(string(got[0].Payload), "12345678901234567890") {
			c.Errorf("a large number was rounded: %s", got[0].Payload)
		}
	})
}

func TestARepeatedEventIdIsADuplicateForTheWholeOrg(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		a, b := c.org("a"), c.org("b")
		siteA, agentA := c.site("a", a.EnrollmentToken)
		_, agentA2 := c.site("a2", a.EnrollmentToken)
		siteB, agentB := c.site("b", b.EnrollmentToken)
		send := func(token, site string) edgeapi.EventReceipt {
			return contracttest.As[edgeapi.EventReceipt](
				c.call(
					"POST", "/events", token, object{"event_id": "same", "site_id": site, "topic": "t", "payload": 1},
				).Want(202),
			)
		}
		if send(agentA, siteA).Duplicate || !send(agentA, siteA).Duplicate {
			c.Error("the first is a duplicate, or the second is not")
		}
		if send(agentB, siteB).Duplicate {
			c.Error("another org's event counts as a duplicate")
		}
		me := contracttest.As[edgeapi.Caller](c.call("GET", "/auth/me", agentA2, nil).Want(200))
		if !send(agentA2, me.SiteId).Duplicate {
			c.Error("the same id from another site of the org is not a duplicate")
		}
		if n := len(contracttest.As[[]edgeapi.Event](c.call("GET", "/events", adminToken, nil).Want(200))); n != 2 {
			c.Errorf("%d events stored", n)
		}
	})
}

func TestMalformedEventsAreRefusedAndNameTheField(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.site("plant", enrollmentToken)
	for name, tt := range map[string]struct {
		body   any
		status int
		field  string
	}{
		"no site":             {object{"topic": "t", "payload": 1}, 400, "site_id"},
		"no topic":            {object{"site_id": site, "payload": 1}, 400, "topic"},
		"no payload":          {object{"site_id": site, "topic": "t"}, 400, "payload"},
		"topic of wrong type": {object{"site_id": site, "topic": 7, "payload": 1}, 400, "topic"},
		"control character":   {object{"site_id": site, "topic": "a\x01", "payload": 1}, 400, "topic"},
		"bad time":            {object{"site_id": site, "topic": "t", "payload": 1, "event_time": "yesterday"}, 400, "event_time"},
		"credential header":   {object{"site_id": site, "topic": "t", "payload": 1, "headers": object{"Authorization": "Bearer x"}}, 400, "headers.Authorization"},
		"hop-by-hop header":   {object{"site_id": site, "topic": "t", "payload": 1, "headers": object{"Connection": "close"}}, 400, "headers.Connection"},
		"header injection":    {object{"site_id": site, "topic": "t", "payload": 1, "headers": object{"X": "a\r\nY: b"}}, 400, "headers.X"},
		"long id":             {object{"event_id": strings.Repeat("x", 129), "site_id": site, "topic": "t", "payload": 1}, 400, "event_id"},
		"broken JSON":         {`{"site_id":`, 400, ""},
		"not an object":       {`[]`, 400, ""},
		"empty body":          {``, 400, ""},
		"over 1 MiB":          {object{"site_id": site, "topic": "t", "payload": strings.Repeat("x", 1<<20)}, 413, ""},
	} {
		a := c.call("POST", "/events", agent, tt.body)
		if a.Status != tt.status {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
			continue
		}
		if a.Problem().Field != tt.field {
			t.Errorf("%s: want field %q: %s", name, tt.field, a.Body)
		}
	}
	c.call("POST", "/events", adminToken, object{"site_id": "nowhere", "topic": "t", "payload": 1}).Want(404)
	if a := c.call("GET", "/events", adminToken, nil); strings.TrimSpace(a.Body) != "[]" {
		t.Errorf("something was stored: %s", a.Body)
	}
	c.call("POST", "/events", agent, object{"site_id": site, "topic": "t", "payload": nil, "unknown": "field"}).Want(
		202,
	)
}

func TestABatchIsAcceptedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		events := make([]any, 1000)
		for i := range events {
			events[i] = object{"event_id": fmt.Sprintf("e%d", i%900), "site_id": site, "topic": "t", "payload": i}
		}
		receipts := contracttest.As[[]edgeapi.EventReceipt](
			c.call("POST", "/events/batch", agent, object{"events": events}).Want(202),
		)
		duplicates := 0
		for _, r := range receipts {
			if r.Duplicate {
				duplicates++
			}
		}
		if len(receipts) != 1000 || duplicates != 100 {
			c.Errorf("%d receipts, %d duplicates", len(receipts), duplicates)
		}
		c.call("POST", "/events/batch", agent, object{"events": append(events, events[0])}).Refused(
			400, "invalid", "events",
		)
		c.call("POST", "/events/batch", agent, object{"events": []any{}}).Refused(400, "invalid", "events")
		bad := []any{
			object{"event_id": "new", "site_id": site, "topic": "t", "payload": 1},
			object{"site_id": site, "topic": "", "payload": 1},
		}
		c.call("POST", "/events/batch", agent, object{"events": bad}).Refused(400, "invalid", "events.1.topic")
		if list := c.all("/events", adminToken); len(list) != 900 {
			c.Errorf("%d events stored, want 900", len(list))
		}
	})
}

// all follows the Link headers of a list.
func (c *control) all(path, token string) []json.RawMessage {
	c.Helper()
	var all []json.RawMessage
	for path != "" {
		a := c.call("GET", path, token, nil).Want(200)
		all = append(all, contracttest.As[[]json.RawMessage](a)...)
		link := a.Header.Get("Link")
		path = ""
		if link != "" {
			next, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
			if !strings.Contains(link, `rel="next"`) {
				c.Fatalf("Link: %s", link)
			}
			path = strings.TrimPrefix(next, edgeapi.BasePath)
		}
	}
	return all
}

func TestEventsCanBeFilteredAndPaged(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		one, agentOne := c.site("one", enrollmentToken)
		two, agentTwo := c.site("two", enrollmentToken)
		for i := range 7 {
			c.call(
				"POST", "/events", agentOne, object{"site_id": one, "topic": fmt.Sprintf("temp.%d", i), "payload": i},
			).Want(202)
		}
		c.ahead(10 * time.Minute)
		c.call("POST", "/events", agentTwo, object{"site_id": two, "topic": "100%_x", "payload": 1}).Want(202)
		for path, want := range map[string]int{
			"/events": 8, "/events?limit=3": 8, "/events?site_id=" + two: 1, "/events?minutes=5": 1, "/events?minutes=60": 8,
			"/events?topic=temp.3": 1, "/events?topic=" + url.QueryEscape("temp.*"): 7, "/events?topic=" + url.QueryEscape("100%_*"): 1, "/events?topic=" + url.QueryEscape("*_*"): 1, "/events?topic=" + url.QueryEscape("TEMP.*"): 0,
		} {
			if got := len(c.all(path, viewerToken)); got != want {
				c.Errorf("%s: %d events, want %d", path, got, want)
			}
		}
		for _, path := range []string{"/events?minutes=0", "/events?limit=0", "/events?limit=1001", "/events?limit=x", "/events?cursor=%21"} {
			c.call("GET", path, viewerToken, nil).Want(400)
		}
		newest := contracttest.As[[]edgeapi.Event](c.call("GET", "/events?limit=1", viewerToken, nil).Want(200))
		if newest[0].Topic != "100%_x" {
			c.Errorf("the newest event is not first: %s", newest[0].Topic)
		}
	})
}

func TestOldEventsGoAndPendingOnesStay(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.call("POST", "/events", agent, object{"event_id": "old", "site_id": site, "topic": "t", "payload": 1}).Want(
			202,
		)
		c.ahead(8 * 24 * time.Hour)
		c.call("POST", "/events", agent, object{"event_id": "new", "site_id": site, "topic": "t", "payload": 1}).Want(
			202,
		)
		c.maintain()
		events := contracttest.As[[]edgeapi.Event](c.call("GET", "/events", adminToken, nil).Want(200))
		if len(events) != 1 || events[0].EventId != "new" {
			c.Errorf("%+v", events)
		}
		// Its id may be used again now: uniqueness lasts as long as the event.
		if r := contracttest.As[edgeapi.EventReceipt](
			c.call(
				"POST", "/events", agent, object{"event_id": "old", "site_id": site, "topic": "t", "payload": 1},
			).Want(202),
		); r.Duplicate {
			c.Error("an expired event still counts")
		}
	})
}

func TestAFullBacklogRefusesEventsUntilItIsDrained(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *edge.Config) { cfg.MaxBacklog = 3 })
	site, agent := c.site("plant", enrollmentToken)
	gate := make(chan struct{})
	tg := newTarget(t, func(int, *http.Request, []byte) int { <-gate; return 200 })
	c.call("POST", "/routes", adminToken, object{"name": "slow", "topic": "*", "target_url": tg.url}).Want(201)
	send := func() answer {
		return c.call("POST", "/events", agent, object{"site_id": site, "topic": "t", "payload": 1})
	}
	for range 3 {
		send().Want(202)
	}
	a := send()
	a.Refused(503, "backlog_full", "")
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(gate)
	c.eventually("events are accepted again", func() bool { return send().Status == 202 })
}

func TestConcurrentEventsAreAllStored(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		var clients sync.WaitGroup
		for k := range 8 {
			clients.Go(func() {
				for i := range 25 {
					c.call(
						"POST", "/events", agent,
						object{"event_id": fmt.Sprintf("%d-%d", k, i), "site_id": site, "topic": "t", "payload": 1},
					).Want(202)
				}
			})
		}
		clients.Wait()
		if n := len(c.all("/events?limit=90", adminToken)); n != 200 {
			c.Errorf("%d events", n)
		}
	})
}
