package edge_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

var update = flag.Bool("update", false, "write testdata/access.tsv anew")

// callers are all kinds of callers there are, in the order of the matrix.
func callers(c *control) (names []string, tokens map[string]string) {
	org := c.org("matrix")
	_, agent := c.site("matrix", org.EnrollmentToken)
	revokedID, revoked := c.site("revoked", enrollmentToken)
	c.call("POST", "/sites/"+revokedID+"/revoke", adminToken, nil).Want(200)
	session := contracttest.As[edgeapi.Session](
		c.call("POST", "/auth/login", "", object{"username": "operator", "password": "correct horse"}).Want(200),
	)
	names = []string{
		"nobody", "garbage", "global-admin", "global-viewer", "session", "org-admin", "org-viewer", "agent",
		"revoked-agent", "org-enrollment", "global-enrollment",
	}
	return names, map[string]string{
		"nobody":            "",
		"garbage":           "garbage",
		"global-admin":      adminToken,
		"global-viewer":     viewerToken,
		"session":           session.Token,
		"org-admin":         org.AdminToken,
		"org-viewer":        org.ViewerToken,
		"agent":             agent,
		"revoked-agent":     revoked,
		"org-enrollment":    org.EnrollmentToken,
		"global-enrollment": enrollmentToken,
	}
}

// Every operation is tried by every kind of caller. The table testdata/access.tsv
// says what each may do; it is reviewed like code (rewrite it with -update).
func TestAccessMatrix(t *testing.T) {
	t.Parallel()
	c := start(t)
	names, tokens := callers(c)
	var got strings.Builder
	fmt.Fprintf(&got, "operation\tclass\t%s\n", strings.Join(names, "\t"))
	for _, op := range c.contract.Operations() {
		if op.ID == "Logout" { // it would end the session under test
			continue
		}
		fmt.Fprintf(&got, "%s\t%s", op.ID, op.Access)
		path := strings.ReplaceAll(op.Path, "{id}", "no-such-id")
		for _, name := range names {
			body := any(nil)
			if op.Method != "GET" && op.Method != "DELETE" {
				body = "{}"
			}
			header := map[string]string{}
			if op.ID == "GetStream" {
				// An id that cannot be shows that the caller was let in, without a stream.
				header["Last-Event-ID"] = "x"
			}
			a := c.callWith(op.Method, path, tokens[name], body, header)
			switch {
			case op.Access != "open" && (a.Status == 401 || a.Status == 403):
				fmt.Fprintf(&got, "\t%d", a.Status)
			default:
				fmt.Fprint(&got, "\tyes")
			}
		}
		got.WriteString("\n")
	}
	const file = "testdata/access.tsv"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s says\n%s\nbut it is\n%s", file, want, &got)
	}
}

func TestAnotherOrgsObjectsDoNotExist(t *testing.T) {
	t.Parallel()
	c := start(t)
	mine, theirs := c.org("mine"), c.org("theirs")
	site, agent := c.site("plant", mine.EnrollmentToken)
	c.device(agent, "d1")
	route := contracttest.As[edgeapi.Route](
		c.call(
			"POST",
			"/routes",
			mine.AdminToken,
			object{"name": "r", "topic": "*", "target_url": "http://127.0.0.1:9/"},
		).Want(201),
	)
	deployment := contracttest.As[edgeapi.Deployment](
		c.call(
			"POST", "/deployments", mine.AdminToken,
			object{"site_id": site, "name": "web", "image": "nginx", "version": "1"},
		).Want(201),
	)
	campaign := contracttest.As[edgeapi.Campaign](c.call("POST", "/ota/campaigns", mine.AdminToken, object{
		"name":    "c",
		"version": "1",
		"url":     "https://x/y",
		"sha256":  strings.Repeat("a", 64),
		"targets": object{"labels": object{"line": "a"}},
	}).Want(201))
	pack := contracttest.As[edgeapi.PolicyPack](
		c.call(
			"POST", "/policy-packs", mine.AdminToken,
			object{"name": "p", "site_id": site, "allowed_images": []string{"*"}},
		).Want(201),
	)

	for path, methods := range map[string]string{
		"/sites/" + site: "GET PATCH DELETE", "/sites/" + site + "/revoke": "POST",
		"/routes/" + route.Id: "GET PATCH DELETE", "/routes/" + route.Id + "/stats": "GET", "/routes/" + route.Id + "/test": "POST",
		"/history?route_id=" + route.Id: "GET",
		"/devices/d1":                   "GET DELETE", "/devices/d1/ota": "GET", "/twins/d1": "GET",
		"/deployments/" + deployment.Id: "GET PATCH DELETE", "/policy-packs/" + pack.Id: "GET PATCH DELETE",
		"/ota/campaigns/" + campaign.Id: "GET", "/ota/campaigns/" + campaign.Id + "/start": "POST", "/ota/campaigns/" + campaign.Id + "/abort": "POST", "/ota/campaigns/" + campaign.Id + "/devices": "GET",
		"/events?site_id=" + site: "GET",
	} {
		for _, method := range strings.Fields(methods) {
			c.call(method, path, theirs.AdminToken, body(method)).Want(404)
			if a := c.call(
				"GET", strings.TrimSuffix(path, "/revoke"), mine.AdminToken, nil,
			); method == "GET" && a.Status == 404 &&
				!strings.HasSuffix(path, "/ota") {
				t.Errorf("%s: the owner gets 404 too", path)
			}
		}
	}
	c.call("PUT", "/twins/d1/desired", theirs.AdminToken, object{"desired": object{}}).Want(404)
	c.call("POST", "/events", theirs.AdminToken, object{"site_id": site, "topic": "t", "payload": 1}).Want(404)
	c.call(
		"POST", "/deployments", theirs.AdminToken,
		object{"site_id": site, "name": "x", "image": "nginx", "version": "1"},
	).Want(404)
	c.call("POST", "/ota/campaigns", theirs.AdminToken, object{
		"name":    "c",
		"version": "1",
		"url":     "https://x/y",
		"sha256":  strings.Repeat("a", 64),
		"targets": object{"site_ids": []string{site}},
	}).Want(403)
	for _, list := range []string{"/sites", "/routes", "/devices", "/twins", "/deployments", "/ota/campaigns", "/events", "/deadletters", "/alerts?status=all", "/alerts/groups?status=all", "/activity", "/policy-packs"} {
		if a := c.call("GET", list, theirs.ViewerToken, nil).Want(200); strings.TrimSpace(a.Body) != "[]" {
			t.Errorf("%s shows another org's objects: %s", list, a.Body)
		}
	}
	for _, e := range contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit", theirs.ViewerToken, nil).Want(200)) {
		if e.OrgId != theirs.Id {
			t.Errorf("audit shows another org's entry: %+v", e)
		}
	}
	if o := contracttest.As[edgeapi.Overview](
		c.call("GET", "/overview", theirs.ViewerToken, nil).Want(200),
	); o.Devices != 0 || len(o.Sites) != 0 ||
		len(o.Deployments) != 0 {
		t.Errorf("overview counts another org's objects: %+v", o)
	}
}

func body(method string) any {
	if method == "GET" || method == "DELETE" {
		return nil
	}
	return object{}
}

func TestAnAgentActsForItsOwnSiteOnly(t *testing.T) {
	t.Parallel()
	c := start(t)
	org := c.org("acme")
	site, agent := c.site("one", org.EnrollmentToken)
	other, otherAgent := c.site("two", org.EnrollmentToken)
	c.device(otherAgent, "d2")
	deployment := contracttest.As[edgeapi.Deployment](
		c.call(
			"POST", "/deployments", org.AdminToken,
			object{"site_id": other, "name": "web", "image": "nginx", "version": "1"},
		).Want(201),
	)

	c.call("POST", "/events", agent, object{"site_id": other, "topic": "t", "payload": 1}).Want(403)
	c.call("POST", "/events", agent, object{"site_id": site, "topic": "t", "payload": 1}).Want(202)
	c.call("POST", "/activity", agent, object{"entries": []any{object{"message": "m", "site_id": other}}}).Want(403)
	c.call("POST", "/devices/register", agent, object{"device_id": "d2"}).Refused(409, "device_of_another_site", "")
	c.call("POST", "/devices/register", agent, object{"device_id": "d3", "site_id": other}).Want(403)
	c.call("GET", "/agent/deployments?site_id="+other, agent, nil).Want(403)
	c.call("POST", "/agent/deployments/"+deployment.Id+"/rollback", agent, object{"site_id": site}).Want(403)
	c.call("POST", "/agent/deployments/"+deployment.Id+"/rollback", agent, object{"site_id": other}).Want(403)
	c.call(
		"POST", "/agent/deployments/"+deployment.Id+"/status", agent, object{"site_id": site, "status": "running"},
	).Want(403)
	c.call("POST", "/agent/twins/d2/reported", agent, object{"reported": object{}}).Want(404)
	c.call(
		"POST", "/agent/devices/d2/ota/status", agent, object{"site_id": site, "status": object{"state": "failed"}},
	).Want(404)
	c.call("POST", "/sites/"+other+"/rotate", agent, object{"csr_pem": newCSR(t)}).Want(403)
}

func TestDeletingAnOrgKillsItsTokensAndHidesItsSites(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("acme")
		site, agent := c.site("plant", org.EnrollmentToken)
		c.call("GET", "/sites", org.AdminToken, nil).Want(200)
		c.call("DELETE", "/orgs/"+org.Id, adminToken, nil).Want(204)
		c.call("GET", "/sites", org.AdminToken, nil).Want(401)
		c.call("GET", "/sites", org.ViewerToken, nil).Want(401)
		c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": org.EnrollmentToken}).Want(401)
		c.call("POST", "/heartbeat", agent, nil).Want(200)
		if s := contracttest.As[edgeapi.Site](c.call("GET", "/sites/"+site, adminToken, nil).Want(200)); s.OrgId != org.Id {
			t.Errorf("org_id = %q", s.OrgId)
		}
		c.call("DELETE", "/orgs/"+org.Id, adminToken, nil).Want(404)
	})
}

func TestRedactedOrgsNeverShowTokens(t *testing.T) {
	t.Parallel()
	c := start(t)
	org := c.org("acme")
	for _, path := range []string{"/orgs", "/orgs/" + org.Id, "/audit", "/activity"} {
		a := c.call("GET", path, adminToken, nil).Want(200)
		for _, secret := range []string{org.AdminToken, org.ViewerToken, org.EnrollmentToken} {
			if strings.Contains(a.Body, secret) {
				t.Errorf("%s shows a token", path)
			}
		}
	}
}

func TestFailedLoginsAreThrottled(t *testing.T) {
	t.Parallel()
	c := start(t)
	wrong := object{"username": "operator", "password": "wrong"}
	for range 5 {
		c.call("POST", "/auth/login", "", wrong).Want(401)
	}
	a := c.call("POST", "/auth/login", "", object{"username": "operator", "password": "correct horse"}).Want(429)
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	c.ahead(10 * 60 * 1e9)
	c.call("POST", "/auth/login", "", object{"username": "operator", "password": "correct horse"}).Want(200)
}

func TestASessionEndsAfterTwelveHoursOrAtLogout(t *testing.T) {
	t.Parallel()
	c := start(t)
	login := func() string {
		return contracttest.As[edgeapi.Session](
			c.call("POST", "/auth/login", "", object{"username": "operator", "password": "correct horse"}).Want(200),
		).Token
	}
	first, second := login(), login()
	me := contracttest.As[edgeapi.Caller](c.call("GET", "/auth/me", first, nil).Want(200))
	if me.Kind != "session" || me.Role != "admin" || me.Subject != "operator" || me.ExpiresAt == nil {
		t.Errorf("%+v", me)
	}
	c.call("POST", "/auth/logout", first, nil).Want(204)
	c.call("GET", "/auth/me", first, nil).Want(401)
	c.call("POST", "/auth/logout", adminToken, nil).Refused(409, "no_session", "")
	c.ahead(12*60*60*1e9 + 1e9)
	c.call("GET", "/auth/me", second, nil).Want(401)
}

func TestADeniedChangeIsAudited(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, _ := c.site("plant", enrollmentToken)
	c.call("POST", "/sites/"+site+"/revoke", viewerToken, nil).Want(403)
	entries := contracttest.As[[]edgeapi.AuditEntry](c.call("GET", "/audit?action=site.revoke", adminToken, nil).Want(200))
	if len(entries) != 1 || entries[0].Result != "denied" || entries[0].ActorType != "viewer" ||
		entries[0].Target != site {
		t.Errorf("%+v", entries)
	}
}

func TestOneNetworkCannotTryPasswordsWithoutEndAndTokensAreNotHeldUp(t *testing.T) {
	t.Parallel()
	c := start(t)
	tried := 0
	a := c.call("POST", "/auth/login", "", object{}).Refused(400, "invalid", "username")
	for ; a.Status == 400 && tried < 1000; tried++ {
		forged := map[string]string{"X-Forwarded-For": fmt.Sprintf("203.0.113.%d", tried%256)}
		a = c.callWith("POST", "/auth/login", "", object{}, forged)
	}
	a.Refused(429, "too_many_requests", "")
	if tried < 100 || a.Header.Get("Retry-After") == "" {
		t.Errorf("refused after %d tries, Retry-After %q", tried, a.Header.Get("Retry-After"))
	}
	c.call("GET", "/auth/me", adminToken, nil).Want(200)
	c.ahead(time.Minute)
	c.call("POST", "/auth/login", "", object{}).Refused(400, "invalid", "username")
}
