package pki_test

import (
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/pki"
)

const day = 24 * time.Hour

func issue(t testing.TB, a *pki.Authority, csr string, s pki.Subject, at time.Time, d time.Duration) pki.Certificate {
	t.Helper()
	req, err := pki.ParseCSR(csr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue(req, s, at, d)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// greedyCSR asks for a certificate of an authority with names of others.
func greedyCSR(t testing.TB) string {
	t.Helper()
	isCA, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return csrPEM(t, ecKey(t, elliptic.P256()), x509.CertificateRequest{
		Subject: pkix.Name{
			CommonName:   "site_other",
			Organization: []string{"org_other"},
			Country:      []string{"XX"},
		},
		DNSNames:        []string{"admin.example.com"},
		EmailAddresses:  []string{"root@example.com"},
		IPAddresses:     []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:            []*url.URL{{Scheme: "spiffe", Host: "mainstay", Path: "/site/other"}},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: isCA}},
	})
}

func TestACertificateHasTheSitesIdentityWhateverTheRequestAsks(t *testing.T) {
	t.Parallel()
	a := authority(t)
	got := issue(t, a, greedyCSR(t), pki.Subject{ID: "site_1", OrgID: "org_1"}, now, day)
	c := parseCert(t, got.PEM)
	if s := c.Subject.String(); s != "CN=site_1,O=org_1" {
		t.Errorf("subject %s", s)
	}
	if len(c.DNSNames)+len(c.EmailAddresses)+len(c.IPAddresses) != 0 || len(c.URIs) != 1 ||
		c.URIs[0].String() != "spiffe://mainstay/site/site_1" {
		t.Errorf("names %v %v %v %v", c.DNSNames, c.EmailAddresses, c.IPAddresses, c.URIs)
	}
	if c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature || len(c.ExtKeyUsage) != 1 ||
		c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth ||
		len(c.UnknownExtKeyUsage) != 0 {
		t.Errorf("CA %t, usage %b, extended %v", c.IsCA, c.KeyUsage, c.ExtKeyUsage)
	}
	if len(c.Extensions) != 5 { // usage, extended usage, basic constraints, authority key, names
		t.Errorf("extensions %v", c.Extensions)
	}
	if _, err := c.Verify(x509.VerifyOptions{
		Roots:       a.Pool(),
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		t.Error(err)
	}
	if got.Serial != pki.SerialString(c.SerialNumber) || !got.NotBefore.Equal(c.NotBefore) ||
		!got.NotAfter.Equal(c.NotAfter) {
		t.Errorf("%+v differs from the certificate", got)
	}
	bare := parseCert(t, issue(t, a, greedyCSR(t), pki.Subject{ID: "site_2"}, now, day).PEM)
	if s := bare.Subject.String(); s != "CN=site_2" {
		t.Errorf("subject without organisation %s", s)
	}
}

func TestValidityIsBackdatedFiveMinutesAndEndsWithTheAuthority(t *testing.T) {
	t.Parallel()
	a := authority(t)
	csr := plainCSR(t)
	at := now.Add(time.Hour).Truncate(time.Second)
	c := issue(t, a, csr, pki.Subject{ID: "s"}, at, day)
	if !c.NotBefore.Equal(at.Add(-5*time.Minute)) || !c.NotAfter.Equal(at.Add(day)) {
		t.Errorf("%s to %s", c.NotBefore, c.NotAfter)
	}
	late := issue(t, a, csr, pki.Subject{ID: "s"}, a.NotAfter().Add(-time.Hour), 365*day)
	if !late.NotAfter.Equal(a.NotAfter()) {
		t.Errorf("ends %s, after the authority", late.NotAfter)
	}
	early := issue(t, a, csr, pki.Subject{ID: "s"}, now.Add(-2*time.Minute), day)
	if early.NotBefore.Before(parseCert(t, a.CertificatePEM()).NotBefore) {
		t.Errorf("begins %s, before the authority", early.NotBefore)
	}
}

func TestIssueRefusesBadSubjectsAndPeriods(t *testing.T) {
	t.Parallel()
	a := authority(t)
	req, err := pki.ParseCSR(plainCSR(t))
	if err != nil {
		t.Fatal(err)
	}
	long := string(make([]byte, 65))
	for _, c := range []struct {
		s        pki.Subject
		at       time.Time
		validity time.Duration
		kind     fault.Kind
		field    string
	}{
		{pki.Subject{}, now, day, fault.Invalid, "id"},
		{pki.Subject{ID: ".."}, now, day, fault.Invalid, "id"},
		{pki.Subject{ID: "a/b"}, now, day, fault.Invalid, "id"},
		{pki.Subject{ID: "a b"}, now, day, fault.Invalid, "id"},
		{pki.Subject{ID: long}, now, day, fault.Invalid, "id"},
		{pki.Subject{ID: "a", OrgID: "x,CN=y"}, now, day, fault.Invalid, "org_id"},
		{pki.Subject{ID: "a"}, now, 0, fault.Invalid, "validity"},
		{pki.Subject{ID: "a"}, now, -day, fault.Invalid, "validity"},
		{pki.Subject{ID: "a"}, now.AddDate(-1, 0, 0), day, fault.Invalid, "not_before"},
		{pki.Subject{ID: "a"}, a.NotAfter(), day, fault.Unavailable, ""},
	} {
		_, err := a.Issue(req, c.s, c.at, c.validity)
		if !fault.Is(err, c.kind) || fault.From(err).Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
	req.Signature[len(req.Signature)-1] ^= 1
	if _, err := a.Issue(req, pki.Subject{ID: "a"}, now, day); !fault.Is(err, fault.Invalid) {
		t.Errorf("a request changed after parsing: %v", err)
	}
}

func TestSerialsAreDistinctLowerHexOfOneLength(t *testing.T) {
	t.Parallel()
	a, csr, seen := authority(t), plainCSR(t), map[string]bool{}
	form := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for range 50 {
		s := issue(t, a, csr, pki.Subject{ID: "s"}, now, day).Serial
		if seen[s] || !form.MatchString(s) {
			t.Fatalf("serial %q", s)
		}
		seen[s] = true
	}
	if got := pki.SerialString(big.NewInt(0xabc)); got != "00000000000000000000000000000abc" {
		t.Error(got)
	}
}

func TestASiteAuthenticatesToAServerThatTrustsTheAuthority(t *testing.T) {
	t.Parallel()
	a := authority(t)
	key := ecKey(t, elliptic.P256())
	cert := issue(t, a, csrPEM(t, key, x509.CertificateRequest{}), pki.Subject{ID: "site_1"}, now, day)
	serverCert, err := pki.SelfSigned([]string{"127.0.0.1", "localhost"}, now)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].URIs[0].String())
	}))
	srv.TLS = &tls.Config{
		Certificates: []tls.Certificate{serverCert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    a.Pool(),
	}
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(serverCert.Leaf)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{parseCert(t, cert.PEM).Raw}, PrivateKey: key}},
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != pki.SiteURI("site_1") {
		t.Errorf("peer %q", body)
	}
}

func TestSelfSignedCoversItsHostsAndNeedsOne(t *testing.T) {
	t.Parallel()
	c, err := pki.SelfSigned([]string{"localhost", "::1", "10.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"localhost", "::1", "10.0.0.1"} {
		if err := c.Leaf.VerifyHostname(h); err != nil {
			t.Error(err)
		}
	}
	if c.Leaf.IsCA || c.Leaf.VerifyHostname("example.com") == nil {
		t.Error("it covers more than asked")
	}
	if _, err := pki.SelfSigned(nil, now); fault.From(err).Field != "hosts" {
		t.Error(err)
	}
}
