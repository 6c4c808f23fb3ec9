package edge_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// history reads a history and checks that its points are steps of its span.
func (c *control) history(token string, query url.Values) edgeapi.History {
	c.Helper()
	h := contracttest.As[edgeapi.History](c.call("GET", "/history?"+query.Encode(), token, nil).Want(200))
	step := time.Duration(h.StepSeconds) * time.Second
	for i, p := range h.Points {
		if p.At.Before(h.From) || p.At.Add(step).After(h.To) || i > 0 && !p.At.Equal(h.Points[i-1].At.Add(step)) {
			c.Errorf("point %d of %s to %s in steps of %s is at %s", i, h.From, h.To, step, p.At)
		}
	}
	if h.Now.Before(h.From) || h.Now.After(h.To) {
		c.Errorf("%s is not in the span from %s to %s", h.Now, h.From, h.To)
	}
	return h
}

// sums are the sums of a history as "events delivered failed dead"; events are "-" if it has none.
func sums(h edgeapi.History) string {
	events, delivered, failed, dead := int64(-1), int64(0), int64(0), int64(0)
	for _, p := range h.Points {
		if p.Events != nil {
			events = max(events, 0) + *p.Events
		}
		delivered, failed, dead = delivered+p.Delivered, failed+p.FailedAttempts, dead+p.DeadLettered
	}
	return strings.ReplaceAll(fmt.Sprint(events, delivered, failed, dead), "-1", "-")
}

func TestTheHistoryCountsWhatHappenedInTheCallersScope(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		good, bad := newTarget(c.T, nil), newTarget(c.T, func(int, *http.Request, []byte) int { return 400 })
		acme, other := c.org("acme"), c.org("other")
		site, agent := c.site("plant", acme.EnrollmentToken)
		elsewhere, otherAgent := c.site("depot", other.EnrollmentToken)
		made := func(token, topic string, tg *target) string {
			return contracttest.As[edgeapi.Route](
				c.call("POST", "/routes", token, object{"name": topic, "topic": topic, "target_url": tg.url}).Want(201),
			).Id
		}
		hook, alarms := made(acme.AdminToken, "temp", good), made(acme.AdminToken, "alarm", bad)
		theirs := made(other.AdminToken, "temp", good)
		for i := range 3 {
			c.send(agent, site, fmt.Sprint("t", i), "temp")
		}
		c.send(agent, site, "a", "alarm")
		c.send(otherAgent, elsewhere, "o", "temp")
		c.eventually("all outcomes are counted", func() bool {
			return sums(c.history(viewerToken, nil)) == "5 4 1 1"
		})
		check := func(what, token, route, want string) {
			c.Helper()
			query := url.Values{}
			if route != "" {
				query.Set("route_id", route)
			}
			if got := sums(c.history(token, query)); got != want {
				c.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		check("an org", acme.ViewerToken, "", "4 3 1 1")
		check("the other org", other.ViewerToken, "", "1 1 0 0")
		check("a route", acme.ViewerToken, hook, "- 3 0 0")
		check("a route that fails", viewerToken, alarms, "- 0 1 1")
		for _, id := range []string{theirs, "nothing", ""} {
			c.call("GET", "/history?route_id="+id, acme.ViewerToken, nil).Refused(404, "not_found", "")
		}
		c.call("DELETE", "/routes/"+hook, acme.AdminToken, nil).Want(204)
		c.call("GET", "/history?route_id="+hook, acme.ViewerToken, nil).Want(404)
		check("the org without the route", acme.ViewerToken, "", "4 3 1 1")
		for query, field := range map[string]string{
			"points=1": "points", "points=1001": "points", "since=yesterday": "since", "since=2199-03-05T12:00:00Z": "since",
			"since=1926-03-05T12:00:00Z": "since",
		} {
			c.call("GET", "/history?"+query, viewerToken, nil).Refused(400, "invalid", field)
		}
	})
}

func TestNothingIsUnknownInTheHistorySinceTheControlPlaneBegan(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		if h := c.history(viewerToken, nil); h.StepSeconds != 60 || len(h.Points) < 1 || len(h.Points) > 2 {
			c.Errorf("a new control plane: %+v", h)
		}
		c.ahead(5 * time.Hour)
		if h := c.history(viewerToken, nil); len(h.Points) < 60 || len(h.Points) > 61 || sums(h) != "0 0 0 0" {
			c.Errorf("an hour in which nothing happened: %d points, %s", len(h.Points), sums(h))
		}
		day := url.Values{"since": {time.Now().Add(-19 * time.Hour).UTC().Format(time.RFC3339)}, "points": {"24"}}
		if h := c.history(viewerToken, day); h.StepSeconds != 3600*3 || len(h.Points) < 2 || len(h.Points) > 3 {
			c.Errorf("a day: %d points in steps of %d s", len(h.Points), h.StepSeconds)
		}
		// A route has no history of before it was made.
		route := c.route(newTarget(c.T, nil), nil)
		if h := c.history(viewerToken, url.Values{"route_id": {route.Id}}); len(h.Points) < 1 || len(h.Points) > 2 {
			c.Errorf("a new route: %d points", len(h.Points))
		}
	})
}

// Steps begin at round times, so the first one of few long steps began before what is kept.
func TestAStepThatBeganBeforeWhatIsKeptCountsWhatIsKeptOfIt(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		route := c.route(newTarget(c.T, nil), object{"topic": "temp"})
		c.send(agent, site, "e", "temp")
		c.eventually("delivery", func() bool { return sums(c.history(viewerToken, nil)) == "1 1 0 0" })
		c.ahead(46 * time.Hour)
		c.send(agent, site, "f", "temp")
		since := url.Values{"since": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}}
		for _, points := range []string{"2", "3", "5", "7", "1000"} {
			since.Set("points", points)
			since.Del("route_id")
			c.eventually("all is counted in "+points, func() bool {
				return sums(c.history(viewerToken, since)) == "2 2 0 0"
			})
			since.Set("route_id", route.Id)
			if got := sums(c.history(viewerToken, since)); got != "- 2 0 0" {
				c.Errorf("%s points of the route: %s", points, got)
			}
		}
	})
}

func TestTheHistoryIsKeptForTwoDaysAlsoWhereEventsAreNot(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, change func(*edge.Config)) {
		c := start(t, func(cfg *edge.Config) { cfg.RetentionAge = time.Minute; change(cfg) })
		site, agent := c.site("plant", enrollmentToken)
		route := c.route(newTarget(t, nil), object{"topic": "temp"})
		c.send(agent, site, "e", "temp")
		c.eventually("delivery", func() bool { return sums(c.history(viewerToken, nil)) == "1 1 0 0" })
		since := url.Values{"since": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}, "points": {"1000"}}
		rows := func() (n int) {
			if err := c.service.DB().Get(t.Context(), &n, `SELECT (SELECT count(*) FROM event_minutes) +
				(SELECT count(*) FROM route_minutes) + (SELECT count(*) FROM delivery_minutes)`); err != nil {
				t.Fatal(err)
			}
			return n
		}
		c.ahead(47 * time.Hour)
		c.maintain()
		if left := c.eventIDs(); len(left) != 0 {
			t.Errorf("events are kept: %v", left)
		}
		if got := sums(c.history(viewerToken, since)); got != "1 1 0 0" {
			t.Errorf("after 47 hours: %s", got)
		}
		since.Set("route_id", route.Id)
		c.ahead(2 * time.Hour)
		for range 2 { // before and after they are deleted
			h := c.history(viewerToken, since)
			ended := h.Points[0].At.Add(5 * time.Minute)
			if sums(h) != "- 0 0 0" || ended.Before(h.Now.Add(-48*time.Hour)) || len(h.Points) < 570 {
				t.Errorf("after 49 hours: %s, %d points", sums(h), len(h.Points))
			}
			c.maintain()
		}
		if n := rows(); n != 0 {
			t.Errorf("%d rows are kept", n)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, func(*edge.Config) {})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		address := dbtest.PostgresURL(t)
		test(t, func(cfg *edge.Config) { cfg.Database = address })
	})
}
