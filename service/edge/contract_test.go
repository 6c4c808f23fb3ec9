package edge_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// tour uses every operation once with success, the way its users would, and
// checks that each leaves the audit entry that the contract promises.
type tour struct {
	*control
	audited map[string]int
}

// ok calls the operation and checks status and audit.
func (tr *tour) ok(id, path, token string, body any, status int) answer {
	tr.Helper()
	for _, op := range tr.contract.Operations() {
		if op.ID != id {
			continue
		}
		a := tr.call(op.Method, path, token, body).Want(status)
		if op.Audit != "" && op.Audit != "none" {
			entries := contracttest.As[[]edgeapi.AuditEntry](
				tr.call("GET", "/audit?limit=1000&action="+url.QueryEscape(op.Audit), adminToken, nil).Want(200),
			)
			okEntries := 0
			for _, e := range entries {
				if e.Result == edgeapi.AuditResultOk {
					okEntries++
				}
			}
			if okEntries <= tr.audited[op.Audit] {
				tr.Errorf("%s left no audit entry %q", id, op.Audit)
			}
			tr.audited[op.Audit] = okEntries
		}
		return a
	}
	tr.Fatalf("no operation %s", id)
	return answer{}
}

func TestEveryOperationIsExercisedRefusesStrangersAndIsAudited(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		tr := &tour{c, map[string]int{}}
		takeTour(tr)
		// Every operation that is not open, without credentials and with too few.
		low := refusedCallers(c)
		for _, op := range c.contract.Operations() {
			path := strings.ReplaceAll(op.Path, "{id}", "some-id")
			if op.Access == "open" {
				continue
			}
			c.call(op.Method, path, "", nil).Want(http.StatusUnauthorized)
			if op.Access != "any" {
				c.call(op.Method, path, low[op.Access], nil).Want(http.StatusForbidden)
			}
		}
		missing := c.recorder.Missing("open", "any")
		missing = slices.DeleteFunc(
			missing, func(m string) bool { return strings.HasPrefix(m, "OIDC") },
		) // e2e has a real provider
		if len(missing) > 0 {
			c.Errorf("never seen:\n%s\nseen:\n%s", strings.Join(missing, "\n"), c.recorder.Report())
		}
		if v := contracttest.As[edgeapi.AuditVerification](c.call("GET", "/audit/verify", adminToken, nil).Want(200)); !v.Ok ||
			v.Entries == 0 {
			c.Errorf("audit log: %+v", v)
		}
	})
}

// refusedCallers has, for each access class, a token that it must not admit.
func refusedCallers(c *control) map[string]string {
	org := c.org("refused")
	_, agent := c.site("refused", enrollmentToken)
	return map[string]string{
		"viewer":        agent,
		"admin":         viewerToken,
		"global-viewer": org.AdminToken,
		"global-admin":  org.AdminToken,
		"agent":         adminToken,
		"ingest":        viewerToken,
	}
}

func takeTour(tr *tour) {
	tr.Helper()
	target := newTarget(tr.T, nil)
	csr := newCSR(tr.T)

	tr.ok("GetVersion", "/version", "", nil, 200)
	session := contracttest.As[edgeapi.Session](
		tr.ok("Login", "/auth/login", "", object{"username": "operator", "password": "correct horse"}, 200),
	)
	tr.ok("GetMe", "/auth/me", session.Token, nil, 200)
	tr.ok("Logout", "/auth/logout", session.Token, nil, 204)

	org := contracttest.As[edgeapi.NewOrg](tr.ok("CreateOrg", "/orgs", adminToken, object{"name": "acme"}, 201))
	tr.ok("ListOrgs", "/orgs", adminToken, nil, 200)
	tr.ok("GetOrg", "/orgs/"+org.Id, adminToken, nil, 200)

	made := contracttest.As[edgeapi.NewEnrollmentToken](
		tr.ok("CreateEnrollmentToken", "/enrollment-tokens", org.AdminToken, object{"name": "plants"}, 201),
	)
	tr.ok("ListEnrollmentTokens", "/enrollment-tokens", org.AdminToken, nil, 200)
	tr.ok("DeleteEnrollmentToken", "/enrollment-tokens/"+made.Id, org.AdminToken, nil, 204)

	site := contracttest.As[edgeapi.Enrollment](
		tr.ok(
			"Enroll", "/enroll", "",
			object{"name": "plant", "enrollment_token": org.EnrollmentToken, "csr_pem": csr}, 200,
		),
	)
	agent := site.AgentToken
	tr.ok("ListSites", "/sites", org.ViewerToken, nil, 200)
	tr.ok("GetSite", "/sites/"+site.SiteId, org.AdminToken, nil, 200)
	tr.ok(
		"PatchSite", "/sites/"+site.SiteId, org.AdminToken,
		object{"name": "plant 1", "labels": object{"zone": "north"}}, 200,
	)
	tr.ok("Heartbeat", "/heartbeat", agent, object{"version": "1.2.3"}, 200)
	tr.ok("RotateCertificate", "/sites/"+site.SiteId+"/rotate", agent, object{"csr_pem": csr}, 200)
	tr.ok("GetCRL", "/ca/crl", "", nil, 200)

	route := contracttest.As[edgeapi.Route](
		tr.ok(
			"CreateRoute", "/routes", org.AdminToken,
			object{"name": "hook", "topic": "temp.*", "target_url": target.url, "retry_max": 1}, 201,
		),
	)
	tr.ok("ListRoutes", "/routes", org.ViewerToken, nil, 200)
	tr.ok("GetRoute", "/routes/"+route.Id, org.ViewerToken, nil, 200)
	tr.ok("TestRoute", "/routes/"+route.Id+"/test", org.AdminToken, nil, 200)
	event := object{
		"site_id": site.SiteId,
		"topic":   "temp.oven",
		"payload": object{"c": 180},
		"headers": object{"X-Line": "4"},
	}
	tr.ok("IngestEvent", "/events", agent, event, 202)
	tr.ok("IngestEvents", "/events/batch", agent, object{"events": []any{event, event}}, 202)
	tr.ok("ListEvents", "/events?minutes=5&site_id="+site.SiteId, org.ViewerToken, nil, 200)
	tr.eventually("3 events and a test are delivered", func() bool { return len(target.got()) == 4 })
	tr.ok("GetRouteStats", "/routes/"+route.Id+"/stats", org.ViewerToken, nil, 200)

	dead := newTarget(tr.T, func(int, *http.Request, []byte) int { return 400 })
	bad := contracttest.As[edgeapi.Route](
		tr.call(
			"POST", "/routes", org.AdminToken, object{"name": "bad", "topic": "alarm", "target_url": dead.url},
		).Want(201),
	)
	for range 3 {
		tr.call("POST", "/events", agent, object{"site_id": site.SiteId, "topic": "alarm", "payload": 1}).Want(202)
	}
	var letters []edgeapi.DeadLetter
	tr.eventually("3 dead letters", func() bool {
		letters = contracttest.As[[]edgeapi.DeadLetter](
			tr.call("GET", "/deadletters?route_id="+bad.Id, org.ViewerToken, nil).Want(200),
		)
		return len(letters) == 3
	})
	tr.ok("ListDeadLetters", "/deadletters?reason=permanent", org.ViewerToken, nil, 200)
	tr.ok("GetDeadLetter", "/deadletters/"+letters[0].Id, org.ViewerToken, nil, 200)
	tr.ok("DeleteDeadLetter", "/deadletters/"+letters[0].Id, org.AdminToken, nil, 204)
	tr.ok("ReplayDeadLetter", "/deadletters/"+letters[1].Id+"/replay", org.AdminToken, nil, 202)
	tr.ok("ReplayDeadLetters", "/deadletters/replay", org.AdminToken, object{"route_id": bad.Id}, 202)
	tr.ok("PatchRoute", "/routes/"+route.Id, org.AdminToken, object{"enabled": false}, 200)
	tr.ok("DeleteRoute", "/routes/"+route.Id, org.AdminToken, nil, 204)

	tr.ok("RegisterDevice", "/devices/register", agent, object{"device_id": "d1", "model": "m"}, 201)
	tr.device(agent, "d2")
	tr.ok("ListDevices", "/devices", org.ViewerToken, nil, 200)
	tr.ok("GetDevice", "/devices/d1", org.ViewerToken, nil, 200)
	tr.ok("ListTwins", "/twins", org.ViewerToken, nil, 200)
	tr.ok("GetTwin", "/twins/d1", org.ViewerToken, nil, 200)
	tr.ok("PutDesired", "/twins/d1/desired", org.AdminToken, object{"desired": object{"rate": 5}}, 200)
	tr.ok("ListAgentTwins", "/agent/twins", agent, nil, 200)
	tr.ok("ReportTwin", "/agent/twins/d1/reported", agent, object{"reported": object{"rate": 5}}, 200)
	artifact := object{"version": "2.0", "url": "https://fw.example/2.0.bin", "sha256": strings.Repeat("ab", 32)}
	tr.ok("RequestOTA", "/devices/d1/ota", org.AdminToken, artifact, 200)
	tr.ok("GetOTA", "/devices/d1/ota", org.ViewerToken, nil, 200)
	tr.ok(
		"ReportOTAStatus", "/agent/devices/d1/ota/status", agent,
		object{"site_id": site.SiteId, "status": object{"state": "downloading", "progress": 10}}, 200,
	)

	campaign := object{
		"name":    "spring",
		"version": "3.0",
		"url":     "https://fw.example/3.0.bin",
		"sha256":  strings.Repeat("cd", 32),
		"targets": object{"site_ids": []string{site.SiteId}},
		"stages":  []int{50, 100},
	}
	drafted := contracttest.As[edgeapi.Campaign](tr.ok("CreateCampaign", "/ota/campaigns", org.AdminToken, campaign, 201))
	tr.ok("ListCampaigns", "/ota/campaigns?status=draft", org.ViewerToken, nil, 200)
	tr.ok("StartCampaign", "/ota/campaigns/"+drafted.Id+"/start", org.AdminToken, nil, 200)
	tr.ok("GetCampaign", "/ota/campaigns/"+drafted.Id, org.ViewerToken, nil, 200)
	tr.ok("ListCampaignDevices", "/ota/campaigns/"+drafted.Id+"/devices", org.ViewerToken, nil, 200)
	tr.ok("CountTargets", "/ota/campaigns/count-targets", org.ViewerToken, campaign["targets"], 200)
	tr.ok("PauseCampaign", "/ota/campaigns/"+drafted.Id+"/pause", org.AdminToken, nil, 200)
	tr.ok("ResumeCampaign", "/ota/campaigns/"+drafted.Id+"/resume", org.AdminToken, nil, 200)
	for _, id := range []string{"d1", "d2"} { // one of them was asked
		tr.call("POST", "/agent/devices/"+id+"/ota/status", agent,
			object{"site_id": site.SiteId, "status": object{"state": "failed"}})
	}
	tr.ok("RetryCampaign", "/ota/campaigns/"+drafted.Id+"/retry", org.AdminToken, nil, 200)
	tr.ok("PromoteCampaign", "/ota/campaigns/"+drafted.Id+"/promote", org.AdminToken, nil, 200)
	tr.ok("AbortCampaign", "/ota/campaigns/"+drafted.Id+"/abort", org.AdminToken, nil, 200)
	tr.ok("DeleteDevice", "/devices/d2", org.AdminToken, nil, 204)

	deployed := contracttest.As[edgeapi.Deployment](tr.ok(
		"CreateDeployment",
		"/deployments",
		org.AdminToken,
		object{
			"site_id": site.SiteId,
			"name":    "web",
			"image":   "ghcr.io/acme/web:1",
			"version": "1",
			"env":     object{"A": "b"},
			"ports":   []any{object{"container_port": 80}},
		},
		201,
	))
	tr.ok("ListDeployments", "/deployments", org.ViewerToken, nil, 200)
	tr.ok("GetDeployment", "/deployments/"+deployed.Id, org.ViewerToken, nil, 200)
	tr.ok(
		"PatchDeployment", "/deployments/"+deployed.Id, org.AdminToken,
		object{"image": "ghcr.io/acme/web:2", "version": "2"}, 200,
	)
	tr.ok("ListAgentDeployments", "/agent/deployments?site_id="+site.SiteId, agent, nil, 200)
	tr.ok(
		"ReportDeploymentStatus", "/agent/deployments/"+deployed.Id+"/status", agent,
		object{"site_id": site.SiteId, "status": "running", "observed_revision": 2}, 200,
	)
	tr.ok(
		"RollbackDeployment", "/agent/deployments/"+deployed.Id+"/rollback", agent,
		object{"site_id": site.SiteId, "reason": "crash loop"}, 200,
	)
	tr.ok("DeleteDeployment", "/deployments/"+deployed.Id, org.AdminToken, nil, 204)
	pack := contracttest.As[edgeapi.PolicyPack](
		tr.ok(
			"CreatePolicyPack", "/policy-packs", org.AdminToken,
			object{"name": "p", "site_id": site.SiteId, "allowed_images": []string{"ghcr.io/acme/*"}}, 201,
		),
	)
	tr.ok("ListPolicyPacks", "/policy-packs", org.ViewerToken, nil, 200)
	tr.ok("ListAgentPolicyPacks", "/agent/policy-packs", agent, nil, 200)
	tr.ok(
		"CheckImage", "/policy-packs/check", org.ViewerToken,
		object{"image": "ghcr.io/acme/web:9", "site_id": site.SiteId}, 200,
	)
	tr.ok("GetPolicyPack", "/policy-packs/"+pack.Id, org.ViewerToken, nil, 200)
	tr.ok("PatchPolicyPack", "/policy-packs/"+pack.Id, org.AdminToken, object{"enabled": false}, 200)
	tr.ok("DeletePolicyPack", "/policy-packs/"+pack.Id, org.AdminToken, nil, 204)

	stream := tr.follow(org.ViewerToken, "")
	tr.ok(
		"AddActivity", "/activity", agent,
		object{"entries": []any{object{"message": "hello", "level": "ok"}}, "extra": true}, 200,
	)
	for !strings.Contains(tr.next(stream).data, "hello") {
		// the alert on the route above that fails is told whenever it is noticed
	}
	tr.ok("ListActivity", "/activity?limit=10", org.ViewerToken, nil, 200)
	tr.ok("GetOverview", "/overview", org.ViewerToken, nil, 200)
	tr.ok("GetHistory", "/history", org.ViewerToken, nil, 200)
	tr.ok("ListAlerts", "/alerts?status=all", org.ViewerToken, nil, 200)
	tr.device(agent, "broken")
	tr.call("POST", "/devices/broken/ota", org.AdminToken, artifact).Want(200)
	tr.ota(agent, site.SiteId, "broken", "failed", nil).Want(200)
	tr.maintain()
	alerts := contracttest.As[[]edgeapi.Alert](tr.call("GET", "/alerts?kind=ota_failed", org.AdminToken, nil).Want(200))
	alert := "/alerts/" + url.PathEscape(alerts[0].Id)
	tr.ok("AcknowledgeAlert", alert+"/acknowledge", org.AdminToken, object{"note": "mine", "more": 1}, 200)
	tr.ok("SilenceAlert", alert+"/silence", org.AdminToken, object{"until": time.Now().Add(time.Hour), "reason": "work"}, 200)
	tr.ok("UnsilenceAlert", alert+"/unsilence", org.AdminToken, nil, 200)
	tr.ok("ListAlertGroups", "/alerts/groups?by=site", org.ViewerToken, nil, 200)
	tr.ok("ListAudit", "/audit", org.ViewerToken, nil, 200)
	tr.ok("VerifyAudit", "/audit/verify", viewerToken, nil, 200)
	tamper(tr.control, "UPDATE audit_head SET signature = ''")
	broken := contracttest.As[edgeapi.AuditVerification](tr.call("GET", "/audit/verify", adminToken, nil).Want(200))
	tr.ok(
		"AcknowledgeAudit", "/audit/acknowledge", adminToken,
		map[string]any{"through": broken.Breaks[0].Recorded, "note": "it was a test"}, 204,
	)

	tr.ok("RevokeSite", "/sites/"+site.SiteId+"/revoke", org.AdminToken, nil, 200)
	tr.ok("DeleteSite", "/sites/"+site.SiteId, org.AdminToken, nil, 204)
	tr.ok("DeleteOrg", "/orgs/"+org.Id, adminToken, nil, 204)
}
