package edge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestTheStreamResumesWhereItWasLeft(t *testing.T) {
	t.Parallel()
	c := start(t)
	say := func(text string) string {
		return contracttest.As[[]edgeapi.ActivityEntry](c.call("POST", "/activity", adminToken, object{"entries": []any{object{"message": text}}}).Want(200))[0].Id
	}
	live := c.follow(viewerToken, "")
	first := say("one")
	if e := c.next(live); e.id != first || !strings.Contains(e.data, `"message":"one"`) {
		t.Errorf("%+v", e)
	}
	say("two")
	say("three")
	resumed := c.follow(viewerToken, first)
	for _, want := range []string{"two", "three"} {
		if e := c.next(resumed); !strings.Contains(e.data, want) {
			t.Errorf("%+v, want %s", e, want)
		}
	}
	c.callWith("GET", "/stream", viewerToken, nil, map[string]string{"Last-Event-ID": "x"}).Want(400)
}

func TestActivityKeepsItsLimits(t *testing.T) {
	t.Parallel()
	c := start(t)
	entries := make([]any, 300)
	for i := range entries {
		entries[i] = object{"message": fmt.Sprint(i), "level": "info", "detail": object{"i": i}}
	}
	c.call("POST", "/activity", adminToken, object{"entries": entries, "more": 1}).Want(200)
	for path, want := range map[string]int{"/activity": 250, "/activity?limit=1": 1, "/activity?limit=1000": 300} {
		if got := len(contracttest.As[[]edgeapi.ActivityEntry](c.call("GET", path, viewerToken, nil).Want(200))); got != want {
			t.Errorf("%s: %d lines, want %d", path, got, want)
		}
	}
	for _, path := range []string{"/activity?limit=0", "/activity?limit=1001"} {
		c.call("GET", path, viewerToken, nil).Refused(400, "invalid", "limit")
	}
	c.call("POST", "/activity", adminToken, object{"entries": []any{object{"level": "info"}}}).Refused(
		400, "invalid", "entries.0.message",
	)
	c.call("POST", "/activity", adminToken, object{"entries": []any{object{"message": "m", "level": "loud"}}}).Refused(
		400, "invalid", "entries.0.level",
	)
	c.call("POST", "/activity", adminToken, object{}).Refused(400, "invalid", "entries")
}

// The overview reads tallies that every change keeps up. They must say what
// counting would.
func TestTheOverviewCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tr := &tour{c, map[string]int{}}
		takeTour(tr)
		site, agent := c.fleet("a", 5)
		c.fleet("b", 3)
		c.call("POST", "/devices/a-000/ota", adminToken, artifact("2")).Want(200)
		c.ota(agent, site, "a-000", "downloading", nil).Want(200)
		c.call(
			"POST", "/deployments", adminToken,
			object{"site_id": site, "name": "web", "image": "nginx", "version": "1"},
		).Want(201)
		o := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200))
		if int(o.Devices) != len(c.all("/devices", adminToken)) || o.Devices != 8 {
			c.Errorf("devices: %d", o.Devices)
		}
		if o.Sites["online"] != 2 || o.Sites["revoked"] != 0 || o.Ota["downloading"] != 1 || len(o.Ota) != 1 ||
			o.Deployments["pending"] != 1 ||
			len(o.Deployments) != 1 {
			c.Errorf("%+v", o)
		}
		if int(o.Routes["enabled"]+o.Routes["disabled"]) != len(c.all("/routes", adminToken)) ||
			int(o.Deadletters) != len(c.all("/deadletters", adminToken)) ||
			o.Orgs != 0 {
			c.Errorf("%+v", o)
		}
		var events int64
		for _, m := range o.Rates {
			events += m.Events
		}
		if events != 6 {
			c.Errorf("%d events in the rates", events)
		}
	})
}

func TestAlertsAreListedByKindAndSeverity(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 2)
		for _, device := range []string{"a-000", "a-001"} {
			c.call("POST", "/devices/"+device+"/ota", adminToken, artifact("2")).Want(200)
			c.ota(agent, site, device, "failed", nil).Want(200)
		}
		c.site("quiet", enrollmentToken)
		c.ahead(10 * time.Minute)
		c.call("POST", "/heartbeat", agent, object{}).Want(200)
		c.maintain()
		for query, want := range map[string]int{"": 3, "?severity=critical": 1, "?severity=warning": 2, "?kind=ota_failed": 2, "?kind=ota_failed&limit=1": 1, "?kind=site_offline&severity=warning": 0} {
			if got := contracttest.As[[]edgeapi.Alert](c.call("GET", "/alerts"+query, viewerToken, nil).Want(200)); len(
				got,
			) != want {
				c.Errorf("%s: %d alerts, want %d: %+v", query, len(got), want, got)
			}
		}
		c.call("GET", "/alerts?severity=mild", viewerToken, nil).Refused(400, "invalid", "severity")
		c.call("GET", "/alerts?kind=boredom", viewerToken, nil).Refused(400, "invalid", "kind")
	})
}

func TestAuditEntriesOfAnActionAreLeftOutUnlessTheyWereRefused(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		_, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		c.device(agent, "d2")
		c.call("POST", "/devices/register", viewerToken, object{"device_id": "d3"}).Want(403)
		for _, e := range contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit?without_action=device.register", viewerToken, nil).Want(200)) {
			if e.Action == "device.register" && e.Result == "ok" {
				c.Errorf("%+v", e)
			}
		}
		if got := contracttest.As[[]edgeapi.AuditEntry](
			c.call("GET", "/audit?action=device.register&without_action=device.register", viewerToken, nil).Want(200),
		); len(got) != 1 ||
			got[0].Result != "denied" {
			c.Errorf("%+v", got)
		}
	})
}

func TestADeviceThatIsRegisteredAgainLeavesNoAuditEntry(t *testing.T) {
	t.Parallel()
	c := start(t)
	_, agent := c.site("plant", enrollmentToken)
	c.device(agent, "d1")
	c.call("POST", "/devices/register", agent, object{"device_id": "d1", "name": "d1"}).Want(200)
	if got := contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit?action=device.register", viewerToken, nil).Want(200)); len(
		got,
	) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestUnknownPathsAndMethodsAnswerInTheErrorBody(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.call("GET", "/nothing", adminToken, nil).Refused(404, "not_found", "")
	a := c.call("DELETE", "/version", adminToken, nil)
	a.Refused(405, "method_not_allowed", "")
	if !strings.Contains(a.Header.Get("Allow"), "GET") {
		t.Errorf("Allow: %q", a.Header.Get("Allow"))
	}
}
