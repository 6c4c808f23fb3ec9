package edge_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/service/edge"
)

func TestASiteGoesOfflineAfterThreeMissedHeartbeatsAndComesBack(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		id, agent := c.site("plant", enrollmentToken)
		site := func() edgeapi.Site { return as[edgeapi.Site](c.call("GET", "/sites/"+id, viewerToken, nil).want(200)) }
		if s := site(); s.Status != "online" || s.LastSeenAt == nil {
			c.Errorf("%+v", s)
		}
		c.ahead(85 * time.Second)
		c.maintain()
		if s := site(); s.Status != "online" {
			c.Errorf("%s after 85 s", s.Status)
		}
		c.ahead(10 * time.Second)
		c.maintain()
		if s := site(); s.Status != "offline" {
			c.Errorf("%s after 95 s", s.Status)
		}
		if got := c.alerts("site_offline"); len(got) != 1 || got[0].Subject != id {
			c.Errorf("%+v", got)
		}
		r := as[edgeapi.HeartbeatReply](c.call("POST", "/heartbeat", agent, object{"version": "2", "labels": object{"zone": "n"}}).want(200))
		if r.Status != "online" || r.HeartbeatIntervalSeconds != 30 {
			c.Errorf("%+v", r)
		}
		if s := site(); s.Version != "2" || s.Labels["zone"] != "n" {
			c.Errorf("%+v", s)
		}
		c.maintain()
		if got := c.alerts("site_offline"); len(got) != 0 {
			c.Errorf("the alert did not resolve: %+v", got)
		}
		if all := as[[]edgeapi.Alert](c.call("GET", "/alerts?status=resolved", viewerToken, nil).want(200)); len(all) != 1 || all[0].ResolvedAt == nil {
			c.Errorf("%+v", all)
		}
	})
}

// alerts are the firing alerts of a kind.
func (c *control) alerts(kind string) []edgeapi.Alert {
	c.Helper()
	all := as[[]edgeapi.Alert](c.call("GET", "/alerts?limit=1000", adminToken, nil).want(200))
	return slices.DeleteFunc(all, func(a edgeapi.Alert) bool { return string(a.Kind) != kind })
}

func TestARevokedSiteIsShutOutAtOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		e := as[edgeapi.Enrollment](c.call("POST", "/enroll", "", object{"name": "plant", "enrollment_token": enrollmentToken, "csr_pem": newCSR(c.T)}).want(200))
		c.call("POST", "/heartbeat", e.AgentToken, nil).want(200)
		if s := as[edgeapi.Site](c.call("POST", "/sites/"+e.SiteId+"/revoke", adminToken, nil).want(200)); s.Status != "revoked" {
			c.Errorf("%+v", s)
		}
		c.call("POST", "/heartbeat", e.AgentToken, nil).want(401)
		c.call("POST", "/events", e.AgentToken, object{"site_id": e.SiteId, "topic": "t", "payload": 1}).want(401)
		c.call("POST", "/sites/"+e.SiteId+"/rotate", e.AgentToken, object{"csr_pem": newCSR(c.T)}).refused(403, "site_revoked", "")
		c.call("POST", "/sites/"+e.SiteId+"/revoke", adminToken, nil).want(200)
		c.call("POST", "/sites/nowhere/revoke", adminToken, nil).want(404)

		list, err := x509.ParseRevocationList(c.call("GET", "/ca/crl", "", nil).want(200).body)
		if err != nil {
			c.Fatal(err)
		}
		certificate := parseCertificate(c.T, *e.CertificatePem)
		if len(list.RevokedCertificateEntries) != 1 || list.RevokedCertificateEntries[0].SerialNumber.Cmp(certificate.SerialNumber) != 0 {
			c.Errorf("the list holds %+v", list.RevokedCertificateEntries)
		}
		if err := list.CheckSignatureFrom(parseCertificate(c.T, *e.CaPem)); err != nil {
			c.Error(err)
		}
		a := c.call("GET", "/ca/crl?format=pem", "", nil).want(200)
		if a.header.Get("Content-Type") != "application/pkix-crl" || !strings.HasPrefix(string(a.body), "-----BEGIN X509 CRL-----") {
			c.Errorf("%s %.40s", a.header.Get("Content-Type"), a.body)
		}
	})
}

func parseCertificate(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no PEM: %s", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACertificateCanBeRenewedUntilThirtyDaysAfterItsEnd(t *testing.T) {
	t.Parallel()
	c := start(t)
	e := as[edgeapi.Enrollment](c.call("POST", "/enroll", "", object{"name": "plant", "enrollment_token": enrollmentToken, "csr_pem": newCSR(t)}).want(200))
	cert := parseCertificate(t, *e.CertificatePem)
	if cert.Subject.CommonName != e.SiteId || len(cert.DNSNames) != 0 {
		t.Errorf("the certificate names %s and %v", cert.Subject, cert.DNSNames)
	}
	rotate := func() answer {
		return c.call("POST", "/sites/"+e.SiteId+"/rotate", e.AgentToken, object{"csr_pem": newCSR(t)})
	}
	c.ahead(61 * 24 * time.Hour)
	if r := as[edgeapi.HeartbeatReply](c.call("POST", "/heartbeat", e.AgentToken, nil).want(200)); !r.RenewCertificate {
		t.Error("two thirds are over, but the agent is not told to renew")
	}
	c.ahead(58 * 24 * time.Hour) // 119 days: expired 29 days ago
	c.maintain()
	if got := c.alerts("cert_expiring"); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	renewed := as[edgeapi.IssuedCertificate](rotate().want(200))
	if got := parseCertificate(t, renewed.CertificatePem); got.SerialNumber.Cmp(cert.SerialNumber) == 0 {
		t.Error("the serial is the old one")
	}
	c.ahead(121 * 24 * time.Hour)
	rotate().refused(403, "certificate_expired", "")
	rotateBad := c.call("POST", "/sites/"+e.SiteId+"/rotate", e.AgentToken, object{"csr_pem": "nonsense"})
	rotateBad.refused(400, "invalid", "csr_pem")
}

func TestTheRevocationListIsRenewedBeforeItEnds(t *testing.T) {
	t.Parallel()
	c := start(t)
	read := func() *x509.RevocationList {
		list, err := x509.ParseRevocationList(c.call("GET", "/ca/crl", "", nil).want(200).body)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := read()
	if again := read(); again.Number.Cmp(first.Number) != 0 {
		t.Error("every read makes a new list")
	}
	c.ahead(13 * time.Hour)
	if second := read(); second.Number.Cmp(first.Number) <= 0 || !second.NextUpdate.After(first.NextUpdate) {
		t.Errorf("%v then %v", first.Number, second.Number)
	}
}

func TestWithoutPKIItsRoutesAreUnavailable(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *edge.Config) { cfg.PKI = false })
	site, agent := c.site("plant", enrollmentToken)
	c.call("GET", "/ca/crl", "", nil).refused(503, "pki_disabled", "")
	c.call("POST", "/sites/"+site+"/rotate", agent, object{"csr_pem": newCSR(t)}).refused(503, "pki_disabled", "")
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": enrollmentToken, "csr_pem": newCSR(t)}).refused(503, "pki_disabled", "")
	c.call("GET", "/auth/oidc/login", "", nil).refused(503, "oidc_not_configured", "")
}

func TestEnrollmentRefusesBadTokensAndBadRequests(t *testing.T) {
	t.Parallel()
	c := start(t)
	org := c.org("acme")
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": "wrong"}).want(401)
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": org.AdminToken}).want(401)
	c.call("POST", "/enroll", "", object{"enrollment_token": enrollmentToken}).refused(400, "invalid", "name")
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": enrollmentToken, "csr_pem": "x"}).refused(400, "invalid", "csr_pem")
	key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	weak := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": enrollmentToken, "csr_pem": weak}).refused(400, "invalid", "csr_pem")
	if s := as[[]edgeapi.Site](c.call("GET", "/sites", adminToken, nil).want(200)); len(s) != 0 {
		t.Errorf("%d sites", len(s))
	}
	e := as[edgeapi.Enrollment](c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": org.EnrollmentToken}).want(200))
	if e.OrgId != org.Id || e.CertificatePem != nil || e.HeartbeatIntervalSeconds != 30 {
		t.Errorf("%+v", e)
	}
}

func TestManySitesEnrollAtOnceAndGuessersAreSlowedDown(t *testing.T) {
	t.Parallel()
	c := start(t)
	var sites sync.WaitGroup
	for i := range 30 {
		sites.Go(func() { c.site(fmt.Sprint(i), enrollmentToken) })
	}
	sites.Wait()
	for range 5 {
		c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": "guess"}).want(401)
	}
	if a := c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": "guess"}).want(429); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestADesiredStateIsReplacedUnderItsVersion(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		c.call("POST", "/devices/d1/ota", adminToken, artifact("2.0")).want(200)
		put := func(body object, ifMatch string) answer {
			return c.callWith("PUT", "/twins/d1/desired", adminToken, body, map[string]string{"If-Match": ifMatch})
		}
		a := put(object{"desired": object{"rate": 5, "ota": object{"version": "evil"}}, "expected_version": 1}, "").want(200)
		tw := as[edgeapi.Twin](a)
		if tw.DesiredVersion != 2 || !strings.Contains(string(tw.Desired), `"version":"2.0"`) || strings.Contains(string(tw.Desired), "evil") || tw.SiteId != site {
			c.Errorf("%+v %s", tw, tw.Desired)
		}
		put(object{"desired": object{}, "expected_version": 1}, "").refused(409, "stale_version", "")
		put(object{"desired": object{}}, `"0-0"`).want(412)
		put(object{"desired": object{}}, a.header.Get("ETag")).want(200)
		put(object{"desired": object{"x": strings.Repeat("y", 33<<10)}}, "").want(413)
		put(object{"desired": []any{}}, "").refused(400, "invalid", "desired")
		put(object{}, "").refused(400, "invalid", "desired")
		c.call("PUT", "/twins/none/desired", adminToken, object{"desired": object{}}).want(404)
		if got := c.call("GET", "/twins/d1", viewerToken, nil).want(200); got.header.Get("ETag") == a.header.Get("ETag") {
			c.Error("the ETag did not change with the twin")
		}
	})
}

func TestAReportIsMerged(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		_, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		report := func(body object) answer { return c.call("POST", "/agent/twins/d1/reported", agent, body) }
		report(object{"reported": object{"a": 1, "b": object{"x": 1, "y": 2}}}).want(200)
		tw := as[edgeapi.Twin](report(object{"reported": object{"a": nil, "b": object{"x": nil}}, "version": 1}).want(200))
		if string(tw.Reported) != `{"b":{"y":2}}` || tw.ReportedVersion != 2 {
			c.Errorf("%s at %d", tw.Reported, tw.ReportedVersion)
		}
		report(object{"reported": object{}, "version": 1}).refused(409, "stale_version", "")
		report(object{"reported": object{"x": strings.Repeat("y", 33<<10)}}).want(413)
		twins := as[[]edgeapi.Twin](c.call("GET", "/agent/twins", agent, nil).want(200))
		if len(twins) != 1 || twins[0].DeviceId != "d1" {
			c.Errorf("%+v", twins)
		}
	})
}

func artifact(version string) object {
	return object{"version": version, "url": "https://fw.example/" + version, "sha256": strings.Repeat("ab", 32), "size": 1000}
}

func (c *control) ota(agent, site, device string, state string, more object) answer {
	c.Helper()
	status := object{"state": state}
	for k, v := range more {
		status[k] = v
	}
	return c.call("POST", "/agent/devices/"+device+"/ota/status", agent, object{"site_id": site, "status": status})
}

func TestAnUpdateFollowsItsStates(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		c.device(agent, "d1")
		c.call("GET", "/devices/d1/ota", viewerToken, nil).refused(404, "no_update", "")
		c.call("POST", "/devices/none/ota", adminToken, artifact("2")).want(404)
		c.call("POST", "/devices/d1/ota", adminToken, object{"version": "2", "url": "ftp://x/y", "sha256": strings.Repeat("ab", 32)}).refused(400, "invalid", "url")
		c.call("POST", "/devices/d1/ota", adminToken, object{"version": "2", "url": "https://x/y", "sha256": "short"}).refused(400, "invalid", "sha256")
		c.ota(agent, site, "d1", "downloading", nil).refused(404, "no_update", "")
		tw := as[edgeapi.Twin](c.call("POST", "/devices/d1/ota", adminToken, artifact("2")).want(200))
		if tw.DesiredVersion != 1 || !strings.Contains(string(tw.Desired), `"ota":{"request_id"`) {
			c.Errorf("%s", tw.Desired)
		}
		first := as[edgeapi.OTA](c.call("GET", "/devices/d1/ota", viewerToken, nil).want(200))
		if first.Status.State != "pending" || first.Request.Version != "2" || first.Request.RequestId != first.Status.RequestId {
			c.Errorf("%+v", first)
		}
		c.ota(agent, site, "d1", "downloading", object{"progress": 40}).want(200)
		c.ota(agent, site, "d1", "downloading", object{"progress": 60}).want(200)
		c.ota(agent, site, "d1", "pending", nil).refused(409, "illegal_transition", "")
		c.ota(agent, site, "d1", "flying", nil).want(400)
		c.ota(agent, site, "d1", "installing", object{"progress": 101}).want(400)
		if got := as[edgeapi.OTA](c.ota(agent, site, "d1", "succeeded", nil).want(200)); got.Status.Progress != 100 {
			c.Errorf("%+v", got)
		}
		c.ota(agent, site, "d1", "succeeded", nil).want(200)
		c.ota(agent, site, "d1", "failed", nil).refused(409, "illegal_transition", "")

		c.call("POST", "/devices/d1/ota", adminToken, artifact("3")).want(200)
		c.ota(agent, site, "d1", "downloading", object{"request_id": first.Request.RequestId}).refused(409, "superseded", "")
		c.ota(agent, site, "d1", "failed", object{"message": "no space\nleft"}).want(200)
		c.maintain()
		if got := c.alerts("ota_failed"); len(got) != 1 || got[0].Subject != "d1" {
			c.Errorf("%+v", got)
		}
		if o := as[edgeapi.Overview](c.call("GET", "/overview", viewerToken, nil).want(200)); o.Devices != 1 || o.Ota["failed"] != 1 || len(o.Ota) != 1 {
			c.Errorf("%+v", o.Ota)
		}
	})
}

// fleet makes a site with n devices d000, d001, ...
func (c *control) fleet(name string, n int) (site, agent string) {
	c.Helper()
	site, agent = c.site(name, enrollmentToken)
	for i := range n {
		c.device(agent, fmt.Sprintf("%s-%03d", name, i))
	}
	return site, agent
}

func (c *control) campaign(site string, more object) edgeapi.Campaign {
	c.Helper()
	body := artifact("9")
	body["name"], body["targets"] = "spring", object{"site_ids": []string{site}}
	for k, v := range more {
		body[k] = v
	}
	return as[edgeapi.Campaign](c.call("POST", "/ota/campaigns", adminToken, body).want(201))
}

func (c *control) readCampaign(id string) edgeapi.Campaign {
	c.Helper()
	return as[edgeapi.Campaign](c.call("GET", "/ota/campaigns/"+id, viewerToken, nil).want(200))
}

// asked are the devices of a campaign that were asked and have not finished.
func (c *control) asked(id string) []string {
	c.Helper()
	var ids []string
	for _, d := range as[[]edgeapi.CampaignDevice](c.call("GET", "/ota/campaigns/"+id+"/devices?limit=1000&outcome=pending", viewerToken, nil).want(200)) {
		ids = append(ids, d.DeviceId)
	}
	return ids
}

func TestACampaignRollsThroughItsStages(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 20)
		c.fleet("b", 2) // no targets
		cp := c.campaign(site, nil)
		if cp.Status != "draft" || cp.CurrentStage != -1 || !slices.Equal(cp.Stages, []int{5, 25, 100}) {
			c.Errorf("%+v", cp)
		}
		path := "/ota/campaigns/" + cp.Id
		c.call("POST", path+"/promote", adminToken, nil).refused(409, "illegal_transition", "")
		cp = as[edgeapi.Campaign](c.call("POST", path+"/start", adminToken, nil).want(200))
		if cp.Status != "running" || cp.Counts.Total != 20 || cp.Counts.Pending != 1 || cp.Counts.Waiting != 19 || cp.Rollout.Phase != "idle" {
			c.Errorf("%+v %+v", cp.Counts, cp.Rollout)
		}
		c.call("POST", path+"/start", adminToken, nil).refused(409, "illegal_transition", "")
		for stage, want := range []int{1, 4, 15} {
			devices := c.asked(cp.Id)
			if len(devices) != want {
				c.Fatalf("stage %d asked %d devices, want %d", stage, len(devices), want)
			}
			for _, d := range devices {
				c.ota(agent, site, d, "installing", nil).want(200)
				c.ota(agent, site, d, "succeeded", nil).want(200)
			}
			if stage < 2 {
				c.call("POST", path+"/promote", adminToken, nil).want(200)
			}
		}
		c.eventually("completion", func() bool { return c.readCampaign(cp.Id).Status == "completed" })
		if cp = c.readCampaign(cp.Id); cp.Counts.Succeeded != 20 || cp.FinishedAt == nil {
			c.Errorf("%+v", cp)
		}
		c.call("POST", path+"/promote", adminToken, nil).refused(409, "illegal_transition", "")
		c.call("POST", path+"/abort", adminToken, nil).refused(409, "illegal_transition", "")
	})
}

func TestACampaignPromotesItselfAfterItsSoak(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.fleet("a", 10)
	cp := c.campaign(site, object{"stages": []int{50, 100}, "auto_promote": true, "soak_seconds": 600})
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).want(200)
	for _, d := range c.asked(cp.Id) {
		c.ota(agent, site, d, "succeeded", nil).want(200)
	}
	c.maintain()
	if got := c.readCampaign(cp.Id); got.CurrentStage != 0 {
		t.Errorf("promoted without a soak: stage %d", got.CurrentStage)
	}
	c.ahead(11 * time.Minute)
	c.eventually("promotion", func() bool { return c.readCampaign(cp.Id).CurrentStage == 1 && len(c.asked(cp.Id)) == 5 })
}

func TestACampaignStopsAtItsFailureThreshold(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 10)
		for _, auto := range []bool{false, true} {
			cp := c.campaign(site, object{"stages": []int{50, 100}, "auto_abort": auto, "failure_threshold": 0.2, "min_devices": 2})
			c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).want(200)
			devices := c.asked(cp.Id)
			c.ota(agent, site, devices[0], "failed", nil).want(200)
			if got := c.readCampaign(cp.Id); got.PausedReason != "" || got.Status != "running" {
				c.Errorf("judged before min_devices: %+v", got)
			}
			c.ota(agent, site, devices[1], "rolled_back", nil).want(409) // not from pending
			c.ota(agent, site, devices[1], "timed_out", nil).want(200)
			got := c.readCampaign(cp.Id)
			if auto && got.Status != "aborted" || !auto && (got.Status != "running" || got.PausedReason == "") {
				c.Errorf("auto_abort %t: %s, %q", auto, got.Status, got.PausedReason)
			}
			if !auto {
				c.maintain()
				if a := c.alerts("campaign_paused"); len(a) != 1 {
					c.Errorf("%+v", a)
				}
				c.call("POST", "/ota/campaigns/"+cp.Id+"/promote", adminToken, nil).want(200)
				c.call("POST", "/ota/campaigns/"+cp.Id+"/abort", adminToken, nil).want(200)
			}
		}
	})
}

func TestDevicesThatGoAwayLeaveTheDenominator(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 4)
		other, _ := c.fleet("b", 4)
		cp := c.campaign(site, object{"stages": []int{100}, "targets": object{"site_ids": []string{site, other}}, "success_threshold": 1, "failure_threshold": 1})
		c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).want(200)
		c.call("POST", "/sites/"+other+"/revoke", adminToken, nil).want(200)
		c.ota(agent, site, "a-000", "failed", nil).want(200)
		c.call("DELETE", "/devices/a-000", adminToken, nil).want(204)
		for _, d := range []string{"a-001", "a-002", "a-003"} {
			c.ota(agent, site, d, "succeeded", nil).want(200)
		}
		c.eventually("completion", func() bool { return c.readCampaign(cp.Id).Status == "completed" })
		if got := c.readCampaign(cp.Id).Counts; got.Total != 3 || got.Removed != 5 || got.Succeeded != 3 {
			c.Errorf("%+v", got)
		}
	})
}

func TestADeviceThatTakesTooLongCountsAsFailed(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, _ := c.fleet("a", 2)
	cp := c.campaign(site, object{"stages": []int{100}, "device_timeout_seconds": 60})
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).want(200)
	c.ahead(2 * time.Minute)
	if got := c.readCampaign(cp.Id); got.Counts.Failed != 2 || got.PausedReason == "" {
		t.Errorf("%+v", got)
	}
}

func TestTargetsAreSelectedByLabelAndName(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.fleet("a", 3)
	c.call("POST", "/devices/register", agent, object{"device_id": "special", "labels": object{"line": "b"}}).want(201)
	cp := c.campaign(site, object{"stages": []int{100}, "targets": object{"labels": object{"line": "b"}, "device_ids": []string{"a-001"}}})
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).want(200)
	got := c.asked(cp.Id)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a-001", "special"}) {
		t.Errorf("%v", got)
	}
	for name, change := range map[string]object{
		"targets":              {"targets": object{}},
		"targets.site_ids":     {"targets": object{"site_ids": []string{"nowhere"}}},
		"stages":               {"stages": []int{10, 50}},
		"stages.1":             {"stages": []int{50, 10, 100}},
		"failure_threshold":    {"failure_threshold": 1.5},
		"targets.device_ids.0": {"targets": object{"device_ids": []any{1}}},
	} {
		body := artifact("9")
		body["name"], body["targets"] = "x", object{"site_ids": []string{site}}
		for k, v := range change {
			body[k] = v
		}
		c.call("POST", "/ota/campaigns", adminToken, body).refused(400, "invalid", name)
	}
}

func TestADeploymentMovesBetweenControlPlaneAndAgent(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		create := object{"site_id": site, "name": "web", "image": "ghcr.io/acme/web:1", "version": "1"}
		d := as[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, create).want(201))
		if d.Status != "pending" || d.Revision != 1 || d.DesiredState != "running" || d.Previous != nil {
			c.Errorf("%+v", d)
		}
		c.call("POST", "/deployments", adminToken, create).want(409)
		report := func(status string, revision int) answer {
			return c.call("POST", "/agent/deployments/"+d.Id+"/status", agent, object{"site_id": site, "status": status, "observed_revision": revision})
		}
		report("running", 1).want(200)
		report("running", 7).refused(400, "invalid", "observed_revision")
		d = as[edgeapi.Deployment](c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"image": "ghcr.io/acme/web:2", "version": "2"}).want(200))
		if d.Revision != 2 || d.Previous == nil || d.Previous.Version != "1" || d.Status != "pending" {
			c.Errorf("%+v", d)
		}
		report("failed", 2).want(200)
		if late := as[edgeapi.Deployment](report("running", 1).want(200)); late.Status != "failed" {
			c.Errorf("a late report on revision 1 counted: %+v", late)
		}
		c.maintain()
		if a := c.alerts("deployment_failed"); len(a) != 1 {
			c.Errorf("%+v", a)
		}
		rollback := func() edgeapi.RollbackResult {
			return as[edgeapi.RollbackResult](c.call("POST", "/agent/deployments/"+d.Id+"/rollback", agent, object{"site_id": site, "reason": "crash"}).want(200))
		}
		if r := rollback(); !r.RolledBack || r.Deployment.Version != "1" || r.Deployment.Status != "rolled_back" || r.Deployment.Revision != 3 {
			c.Errorf("%+v", r)
		}
		if r := rollback(); r.RolledBack {
			c.Errorf("rolled back twice: %+v", r)
		}
		stopped := as[edgeapi.Deployment](c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "stopped"}).want(200))
		if stopped.DesiredState != "stopped" {
			c.Errorf("%+v", stopped)
		}
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "asleep"}).refused(400, "invalid", "desired_state")
		c.call("PATCH", "/deployments/none", adminToken, object{}).want(404)
		c.call("DELETE", "/deployments/"+d.Id, adminToken, nil).want(204)
		c.call("DELETE", "/deployments/"+d.Id, adminToken, nil).want(404)
		if list := as[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).want(200)); len(list) != 0 {
			c.Errorf("%+v", list)
		}
	})
}

func TestPolicyPacksDecideWhatASiteMayRun(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		deploy := func(name, image string) answer {
			return c.call("POST", "/deployments", adminToken, object{"site_id": site, "name": name, "image": image, "version": "1"})
		}
		before := as[edgeapi.Deployment](deploy("before", "evil.example/miner").want(201))
		fleet := as[edgeapi.PolicyPack](c.call("POST", "/policy-packs", adminToken, object{"name": "fleet", "allowed_images": []string{"ghcr.io/acme/*"}}).want(201))
		deploy("good", "ghcr.io/acme/web:1").want(201)
		deploy("bad", "evil.example/miner").refused(403, "image_not_allowed", "")
		deploy("worse", "not an image").refused(400, "invalid", "image")
		c.call("PATCH", "/deployments/"+before.Id, adminToken, object{"desired_state": "running"}).refused(403, "image_not_allowed", "")

		// What runs already is judged again: the agent is told, and so is the operator.
		for _, d := range as[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).want(200)) {
			if d.Allowed != (d.Name == "good") {
				c.Errorf("%s: allowed %t", d.Name, d.Allowed)
			}
		}
		c.maintain()
		if a := c.alerts("policy_violation"); len(a) != 1 || a[0].Subject != before.Id {
			c.Errorf("%+v", a)
		}
		// Packs add up; a disabled one counts for nothing.
		c.call("POST", "/policy-packs", adminToken, object{"name": "site", "site_id": site, "allowed_images": []string{"evil.example/*"}}).want(201)
		deploy("bad", "evil.example/miner").want(201)
		p := as[edgeapi.PolicyPack](c.call("PATCH", "/policy-packs/"+fleet.Id, adminToken, object{"enabled": false, "name": "old"}).want(200))
		if p.Version != 2 || p.Enabled || p.Name != "old" || len(p.AllowedImages) != 1 {
			c.Errorf("%+v", p)
		}
		deploy("other", "ghcr.io/acme/web:1").refused(403, "image_not_allowed", "")
		c.call("POST", "/policy-packs", adminToken, object{"allowed_images": []string{"x"}}).refused(400, "invalid", "name")
		org := c.org("acme")
		c.call("POST", "/policy-packs", org.AdminToken, object{"name": "fleet-wide", "allowed_images": []string{"*"}}).want(403)
		c.call("PATCH", "/policy-packs/"+fleet.Id, org.AdminToken, object{"enabled": true}).want(403)
	})
}

func TestTheStreamResumesWhereItWasLeft(t *testing.T) {
	t.Parallel()
	c := start(t)
	say := func(text string) string {
		return as[[]edgeapi.ActivityEntry](c.call("POST", "/activity", adminToken, object{"entries": []any{object{"message": text}}}).want(200))[0].Id
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
	c.callWith("GET", "/stream", viewerToken, nil, map[string]string{"Last-Event-ID": "x"}).want(400)
}

func TestActivityKeepsItsLimits(t *testing.T) {
	t.Parallel()
	c := start(t)
	entries := make([]any, 300)
	for i := range entries {
		entries[i] = object{"message": fmt.Sprint(i), "level": "info", "detail": object{"i": i}}
	}
	c.call("POST", "/activity", adminToken, object{"entries": entries, "more": 1}).want(200)
	for path, want := range map[string]int{"/activity": 250, "/activity?limit=1": 1, "/activity?limit=1000": 300} {
		if got := len(as[[]edgeapi.ActivityEntry](c.call("GET", path, viewerToken, nil).want(200))); got != want {
			t.Errorf("%s: %d lines, want %d", path, got, want)
		}
	}
	for _, path := range []string{"/activity?limit=0", "/activity?limit=1001"} {
		c.call("GET", path, viewerToken, nil).refused(400, "invalid", "limit")
	}
	c.call("POST", "/activity", adminToken, object{"entries": []any{object{"level": "info"}}}).refused(400, "invalid", "entries.0.message")
	c.call("POST", "/activity", adminToken, object{"entries": []any{object{"message": "m", "level": "loud"}}}).refused(400, "invalid", "entries.0.level")
	c.call("POST", "/activity", adminToken, object{}).refused(400, "invalid", "entries")
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
		c.call("POST", "/devices/a-000/ota", adminToken, artifact("2")).want(200)
		c.ota(agent, site, "a-000", "downloading", nil).want(200)
		c.call("POST", "/deployments", adminToken, object{"site_id": site, "name": "web", "image": "nginx", "version": "1"}).want(201)
		o := as[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).want(200))
		if int(o.Devices) != len(c.all("/devices", adminToken)) || o.Devices != 8 {
			c.Errorf("devices: %d", o.Devices)
		}
		if o.Sites["online"] != 2 || o.Sites["revoked"] != 0 || o.Ota["downloading"] != 1 || len(o.Ota) != 1 || o.Deployments["pending"] != 1 || len(o.Deployments) != 1 {
			c.Errorf("%+v", o)
		}
		if int(o.Routes["enabled"]) != len(c.all("/routes", adminToken)) || int(o.Deadletters) != len(c.all("/deadletters", adminToken)) || o.Orgs != 0 {
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

func TestUnknownPathsAndMethodsAnswerInTheErrorBody(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.call("GET", "/nothing", adminToken, nil).refused(404, "not_found", "")
	a := c.call("DELETE", "/version", adminToken, nil)
	a.refused(405, "method_not_allowed", "")
	if !strings.Contains(a.header.Get("Allow"), "GET") {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
}
