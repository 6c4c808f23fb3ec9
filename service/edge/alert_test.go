package edge_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// quietSite is an org's site that has just gone offline, with its alert. back and gone have it send
// a heartbeat and fall silent again.
func (c *control) quietSite(org edgeapi.NewOrg) (alert edgeapi.Alert, back, gone func()) {
	c.Helper()
	_, agent := c.site("quiet", org.EnrollmentToken)
	gone = func() {
		c.ahead(10 * time.Minute)
		c.maintain()
	}
	back = func() {
		c.call("POST", "/heartbeat", agent, object{}).Want(200)
		c.maintain()
	}
	gone()
	return c.alerts("site_offline")[0], back, gone
}

func alertPath(a edgeapi.Alert, verb string) string {
	return "/alerts/" + url.PathEscape(a.Id) + "/" + verb
}

// told counts the lines of the activity log that tell of alerts.
func (c *control) told() int {
	c.Helper()
	lines := contracttest.As[[]edgeapi.ActivityEntry](c.call("GET", "/activity?limit=1000", adminToken, nil).Want(200))
	return len(slices.DeleteFunc(lines, func(l edgeapi.ActivityEntry) bool { return l.Chapter != "alerts" }))
}

func TestAnAcknowledgementLastsUntilTheAlertResolves(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("acme")
		alert, back, gone := c.quietSite(org)
		if alert.AcknowledgedAt != nil || alert.AcknowledgedBy != "" {
			c.Errorf("%+v", alert)
		}
		got := contracttest.As[edgeapi.Alert](
			c.call("POST", alertPath(alert, "acknowledge"), org.AdminToken, object{"note": "on\nmy way"}).Want(200),
		)
		if got.AcknowledgedAt == nil || got.AcknowledgedBy == "" || got.AcknowledgeNote != "on\nmy way" || got.Status != "firing" {
			c.Errorf("%+v", got)
		}
		if again := contracttest.As[edgeapi.Alert](
			c.call("POST", alertPath(alert, "acknowledge"), adminToken, object{}).Want(200),
		); again.AcknowledgedBy == got.AcknowledgedBy || again.AcknowledgeNote != "" {
			c.Errorf("acknowledged again: %+v", again)
		}
		back()
		c.call("POST", alertPath(alert, "acknowledge"), org.AdminToken, object{}).Refused(409, "alert_resolved", "")
		gone()
		if now := c.alerts("site_offline"); len(now) != 1 || now[0].Id == alert.Id || now[0].AcknowledgedAt != nil {
			c.Errorf("the next one: %+v", now)
		}
		entries := contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit?action=alert.acknowledge", org.ViewerToken, nil).Want(200))
		if len(entries) != 2 || entries[0].Target != alert.Id || entries[0].SiteId != alert.SiteId {
			c.Errorf("%+v", entries)
		}
	})
}

func TestASilenceHidesNothingAndOutlivesTheAlertButNotItsTime(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("acme")
		alert, back, gone := c.quietSite(org)
		until := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200)).GeneratedAt.Add(time.Hour)
		got := contracttest.As[edgeapi.Alert](c.call(
			"POST", alertPath(alert, "silence"), org.AdminToken, object{"until": until, "reason": "work on the line"},
		).Want(200))
		if got.SilencedUntil == nil || !got.SilencedUntil.Equal(until.Truncate(time.Microsecond)) ||
			got.SilencedBy == "" || got.SilenceReason != "work on the line" {
			c.Errorf("%+v", got)
		}
		told := c.told()
		back()
		gone() // ten minutes later
		now := c.alerts("site_offline")
		if len(now) != 1 || now[0].Id == alert.Id || now[0].SilencedUntil == nil {
			c.Errorf("the next one: %+v", now)
		}
		if c.told() != told {
			c.Error("the activity log tells of a silenced alert")
		}
		if o := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200)); o.Alerts["site_offline"] != 1 {
			c.Errorf("the overview counts %v", o.Alerts)
		}
		for query, want := range map[string]int{"silenced=true": 1, "silenced=false": 0, "acknowledged=true": 0, "acknowledged=false": 1} {
			if got := contracttest.As[[]edgeapi.Alert](c.call("GET", "/alerts?"+query, org.ViewerToken, nil).Want(200)); len(got) != want {
				c.Errorf("%s: %+v", query, got)
			}
		}
		c.ahead(time.Hour)
		if now := c.alerts("site_offline"); len(now) != 1 || now[0].SilencedUntil != nil || now[0].SilencedBy != "" {
			c.Errorf("when it is over: %+v", now)
		}
		back()
		if c.told() != told+1 {
			c.Error("the activity log does not tell of an alert that is silenced no longer")
		}
	})
}

func TestASilenceIsEndedAndRefusedWithoutSense(t *testing.T) {
	t.Parallel()
	c := start(t)
	org, other := c.org("acme"), c.org("other")
	alert, back, _ := c.quietSite(org)
	now := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200)).GeneratedAt
	silence := func(token string, until time.Time, reason string) answer {
		return c.call("POST", alertPath(alert, "silence"), token, object{"until": until, "reason": reason})
	}
	silence(org.AdminToken, now.Add(-time.Second), "r").Refused(400, "invalid", "until")
	silence(org.AdminToken, now.AddDate(2, 0, 0), "r").Refused(400, "invalid", "until")
	silence(org.AdminToken, now.Add(time.Hour), "").Refused(400, "invalid", "reason")
	silence(org.AdminToken, now.Add(time.Hour), " ").Refused(400, "invalid", "reason")
	silence(org.AdminToken, now.Add(time.Hour), "\x1b[2J").Refused(400, "invalid", "reason")
	silence(org.AdminToken, now.Add(time.Hour), strings.Repeat("x", 1001)).Refused(400, "invalid", "reason")
	silence(org.ViewerToken, now.Add(time.Hour), "r").Want(403)
	silence(other.AdminToken, now.Add(time.Hour), "r").Want(404)
	for _, verb := range []string{"acknowledge", "unsilence"} {
		c.call("POST", alertPath(alert, verb), other.AdminToken, object{}).Want(404)
		c.call("POST", "/alerts/none/"+verb, adminToken, object{}).Want(404)
	}
	silence(org.AdminToken, now.Add(time.Hour), "r").Want(200)
	for range 2 {
		if got := contracttest.As[edgeapi.Alert](
			c.call("POST", alertPath(alert, "unsilence"), org.AdminToken, nil).Want(200),
		); got.SilencedUntil != nil {
			t.Errorf("%+v", got)
		}
	}
	back()
	silence(org.AdminToken, now.Add(time.Hour), "r").Refused(409, "alert_resolved", "")
}

func TestAlertsAreCountedByWhatTheyHaveInCommon(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 3)
		for _, device := range []string{"a-000", "a-001", "a-002"} {
			c.call("POST", "/devices/"+device+"/ota", adminToken, artifact("2")).Want(200)
			c.ota(agent, site, device, "failed", nil).Want(200)
		}
		quiet, _ := c.site("quiet", enrollmentToken)
		c.ahead(10 * time.Minute)
		c.call("POST", "/heartbeat", agent, object{}).Want(200)
		c.maintain()
		c.call("POST", alertPath(c.alerts("ota_failed")[0], "acknowledge"), adminToken, object{}).Want(200)
		groups := func(query string) (got []string) {
			for _, g := range contracttest.As[[]edgeapi.AlertGroup](c.call("GET", "/alerts/groups"+query, viewerToken, nil).Want(200)) {
				if g.NewestAt.IsZero() {
					c.Errorf("%+v", g)
				}
				got = append(got, g.Key+" "+strings.Repeat("n", int(g.Count))+strings.Repeat("a", int(g.Acknowledged)))
			}
			return got
		}
		for query, want := range map[string][]string{
			"":                  {"ota_failed nnna", "site_offline n"},
			"?by=site":          {site + " nnna", quiet + " n"},
			"?by=severity":      {"warning nnna", "critical n"},
			"?status=resolved":  nil,
			"?site_id=" + quiet: {"site_offline n"},
		} {
			if got := groups(query); !slices.Equal(got, want) {
				c.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		c.call("GET", "/alerts/groups?by=colour", viewerToken, nil).Refused(400, "invalid", "by")
	})
}
