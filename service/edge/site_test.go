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
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/edge"
)

func TestASiteGoesOfflineAfterThreeMissedHeartbeatsAndComesBack(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		id, agent := c.site("plant", enrollmentToken)
		site := func() edgeapi.Site {
			return contracttest.As[edgeapi.Site](c.call("GET", "/sites/"+id, viewerToken, nil).Want(200))
		}
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
		r := contracttest.As[edgeapi.HeartbeatReply](
			c.call("POST", "/heartbeat", agent, object{"version": "2", "labels": object{"zone": "n"}}).Want(200),
		)
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
		if all := contracttest.As[[]edgeapi.Alert](
			c.call("GET", "/alerts?status=resolved", viewerToken, nil).Want(200),
		); len(all) != 1 ||
			all[0].ResolvedAt == nil {
			c.Errorf("%+v", all)
		}
	})
}

// alerts are the firing alerts of a kind.
func (c *control) alerts(kind string) []edgeapi.Alert {
	c.Helper()
	all := contracttest.As[[]edgeapi.Alert](c.call("GET", "/alerts?limit=1000", adminToken, nil).Want(200))
	return slices.DeleteFunc(all, func(a edgeapi.Alert) bool { return string(a.Kind) != kind })
}

func TestARevokedSiteIsShutOutAtOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		e := contracttest.As[edgeapi.Enrollment](
			c.call(
				"POST", "/enroll", "",
				object{"name": "plant", "enrollment_token": enrollmentToken, "csr_pem": newCSR(c.T)},
			).Want(200),
		)
		c.call("POST", "/heartbeat", e.AgentToken, nil).Want(200)
		if s := contracttest.As[edgeapi.Site](
			c.call("POST", "/sites/"+e.SiteId+"/revoke", adminToken, nil).Want(200),
		); s.Status != "revoked" {
			c.Errorf("%+v", s)
		}
		c.call("POST", "/heartbeat", e.AgentToken, nil).Want(401)
		c.call("POST", "/events", e.AgentToken, object{"site_id": e.SiteId, "topic": "t", "payload": 1}).Want(401)
		c.call("POST", "/sites/"+e.SiteId+"/rotate", e.AgentToken, object{"csr_pem": newCSR(c.T)}).Refused(
			403, "site_revoked", "",
		)
		c.call("POST", "/sites/"+e.SiteId+"/revoke", adminToken, nil).Want(200)
		c.call("POST", "/sites/nowhere/revoke", adminToken, nil).Want(404)

		list, err := x509.ParseRevocationList([]byte(c.call("GET", "/ca/crl", "", nil).Want(200).Body))
		if err != nil {
			c.Fatal(err)
		}
		certificate := parseCertificate(c.T, *e.CertificatePem)
		if len(list.RevokedCertificateEntries) != 1 ||
			list.RevokedCertificateEntries[0].SerialNumber.Cmp(certificate.SerialNumber) != 0 {
			c.Errorf("the list holds %+v", list.RevokedCertificateEntries)
		}
		if err := list.CheckSignatureFrom(parseCertificate(c.T, *e.CaPem)); err != nil {
			c.Error(err)
		}
		a := c.call("GET", "/ca/crl?format=pem", "", nil).Want(200)
		if a.Header.Get("Content-Type") != "application/pkix-crl" ||
			!strings.HasPrefix(a.Body, "-----BEGIN X509 CRL-----") {
			c.Errorf("%s %.40s", a.Header.Get("Content-Type"), a.Body)
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
	e := contracttest.As[edgeapi.Enrollment](
		c.call(
			"POST", "/enroll", "", object{"name": "plant", "enrollment_token": enrollmentToken, "csr_pem": newCSR(t)},
		).Want(200),
	)
	cert := parseCertificate(t, *e.CertificatePem)
	if cert.Subject.CommonName != e.SiteId || len(cert.DNSNames) != 0 {
		t.Errorf("the certificate names %s and %v", cert.Subject, cert.DNSNames)
	}
	rotate := func() answer {
		return c.call("POST", "/sites/"+e.SiteId+"/rotate", e.AgentToken, object{"csr_pem": newCSR(t)})
	}
	c.ahead(61 * 24 * time.Hour)
	if r := contracttest.As[edgeapi.HeartbeatReply](c.call("POST", "/heartbeat", e.AgentToken, nil).Want(200)); !r.RenewCertificate {
		t.Error("two thirds are over, but the agent is not told to renew")
	}
	c.ahead(58 * 24 * time.Hour) // 119 days: expired 29 days ago
	c.maintain()
	if got := c.alerts("cert_expiring"); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	renewed := contracttest.As[edgeapi.IssuedCertificate](rotate().Want(200))
	if got := parseCertificate(t, renewed.CertificatePem); got.SerialNumber.Cmp(cert.SerialNumber) == 0 {
		t.Error("the serial is the old one")
	}
	c.ahead(121 * 24 * time.Hour)
	rotate().Refused(403, "certificate_expired", "")
	rotateBad := c.call("POST", "/sites/"+e.SiteId+"/rotate", e.AgentToken, object{"csr_pem": "nonsense"})
	rotateBad.Refused(400, "invalid", "csr_pem")
}

func TestTheRevocationListIsRenewedBeforeItEnds(t *testing.T) {
	t.Parallel()
	c := start(t)
	read := func() *x509.RevocationList {
		list, err := x509.ParseRevocationList([]byte(c.call("GET", "/ca/crl", "", nil).Want(200).Body))
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
	c.call("GET", "/ca/crl", "", nil).Refused(503, "pki_disabled", "")
	c.call("POST", "/sites/"+site+"/rotate", agent, object{"csr_pem": newCSR(t)}).Refused(503, "pki_disabled", "")
	c.call(
		"POST", "/enroll", "", object{"name": "x", "enrollment_token": enrollmentToken, "csr_pem": newCSR(t)},
	).Refused(503, "pki_disabled", "")
	c.call("GET", "/auth/oidc/login", "", nil).Refused(503, "oidc_not_configured", "")
}

func TestEnrollmentRefusesBadTokensAndBadRequests(t *testing.T) {
	t.Parallel()
	c := start(t)
	org := c.org("acme")
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": "wrong"}).Want(401)
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": org.AdminToken}).Want(401)
	c.call("POST", "/enroll", "", object{"enrollment_token": enrollmentToken}).Refused(400, "invalid", "name")
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": enrollmentToken, "csr_pem": "x"}).Refused(
		400, "invalid", "csr_pem",
	)
	key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	weak := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": enrollmentToken, "csr_pem": weak}).Refused(
		400, "invalid", "csr_pem",
	)
	if s := contracttest.As[[]edgeapi.Site](c.call("GET", "/sites", adminToken, nil).Want(200)); len(s) != 0 {
		t.Errorf("%d sites", len(s))
	}
	e := contracttest.As[edgeapi.Enrollment](
		c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": org.EnrollmentToken}).Want(200),
	)
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
		c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": "guess"}).Want(401)
	}
	if a := c.call("POST", "/enroll", "", object{"name": "x", "enrollment_token": "guess"}).Want(
		429,
	); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
