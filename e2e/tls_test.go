package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/require"
)

func TestASelfSignedServerSpeaksHTTPSOnly(t *testing.T) {
	t.Parallel()
	e := startEdge(t, "--tls-self-signed")
	address, ok := strings.CutPrefix(e.url(), "https://")
	if !ok {
		t.Fatalf("the server calls itself %s", e.url())
	}
	// Trust what it shows, as one does who installs the certificate by hand.
	conn, err := tls.Dial(
		"tcp", address, &tls.Config{InsecureSkipVerify: true},
	) //nolint:gosec // the certificate is what is asked for
	if err != nil {
		t.Fatal(err)
	}
	state := conn.ConnectionState()
	_ = conn.Close()
	if state.Version < tls.VersionTLS13 {
		t.Errorf("it speaks %s with a client that knows TLS 1.3", tls.VersionName(state.Version))
	}
	pool := x509.NewCertPool()
	pool.AddCert(state.PeerCertificates[0])
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true},
	}
	t.Cleanup(client.CloseIdleConnections)
	me := ask(apiAt(t, e.url(), adminToken, client).GetMe(t.Context())).is(t, 200)
	if me.ProtoMajor != 2 {
		t.Errorf("the answer came by %s", me.Proto)
	}
	if old, err := tls.Dial(
		"tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11},
	); err == nil { //nolint:gosec // it must be refused
		_ = old.Close()
		t.Error("it speaks TLS 1.1")
	}
	if res, err := browserless.Get("http://" + address + "/healthz"); err == nil {
		_ = res.Body.Close()
		if res.StatusCode < 400 {
			t.Errorf("plain HTTP is answered with %d", res.StatusCode)
		}
	}
}

// openssl runs the real program.
type openssl struct {
	*testing.T
	path, dir string
}

func (o openssl) file(name string, content []byte) string {
	o.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		o.Fatal(err)
	}
	return path
}

func (o openssl) try(args ...string) (string, error) {
	out, err := exec.CommandContext(o.Context(), o.path, args...).CombinedOutput()
	return string(out), err
}

func (o openssl) run(args ...string) string {
	o.Helper()
	out, err := o.try(args...)
	if err != nil {
		o.Fatalf("openssl %s: %v\n%s", args[0], err, out)
	}
	return out
}

// csr makes a key and a request for it, and returns the request.
func (o openssl) csr(name string) string {
	o.Helper()
	path := filepath.Join(o.dir, name+".csr")
	o.run(
		"req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN="+name,
		"-keyout", filepath.Join(o.dir, name+".key"), "-out", path,
	)
	text, err := os.ReadFile(path)
	if err != nil {
		o.Fatal(err)
	}
	return string(text)
}

func TestOpenSSLAcceptsCertificatesUntilTheirSiteIsRevoked(t *testing.T) {
	t.Parallel()
	o := openssl{t, require.Program(t, "openssl", "openssl"), t.TempDir()}
	e := startEdge(t)

	enroll := func(name string) (site, agent, certificate, authority string) {
		t.Helper()
		csr := o.csr(name)
		r := got[edgeapi.Enrollment](
			e.api("").Enroll(
				t.Context(), edgeapi.EnrollRequest{Name: name, EnrollmentToken: enrollmentToken, CsrPem: &csr},
			),
		).is(t, 200)
		if r.CertificatePem == nil || r.CaPem == nil || r.CertificateNotAfter == nil {
			t.Fatal("no certificate was issued")
		}
		return r.SiteId, r.AgentToken, o.file(
			name+".crt", []byte(*r.CertificatePem),
		), o.file("ca.crt", []byte(*r.CaPem))
	}
	crl := func(format edgeapi.GetCRLParamsFormat) string {
		t.Helper()
		res := ask(e.api("").GetCRL(t.Context(), &edgeapi.GetCRLParams{Format: &format})).is(t, 200)
		path := o.file("crl."+string(format), res.body)
		o.run(
			"crl", "-inform", strings.ToUpper(string(format)), "-in", path, "-noout", "-CAfile",
			filepath.Join(o.dir, "ca.crt"), "-verify",
		)
		return path
	}
	verify := func(authority, certificate string) (string, error) {
		t.Helper()
		crl(edgeapi.GetCRLParamsFormatDer)
		return o.try(
			"verify", "-x509_strict", "-purpose", "sslclient", "-crl_check", "-CAfile", authority, "-CRLfile",
			crl(edgeapi.GetCRLParamsFormatPem), certificate,
		)
	}

	site, agent, certificate, authority := enroll("one")
	other, _, otherCertificate, _ := enroll("two")
	for _, c := range []string{certificate, otherCertificate} {
		if out, err := verify(authority, c); err != nil {
			t.Fatalf("a fresh certificate: %v\n%s", err, out)
		}
	}
	// The key in the certificate is the one that asked for it.
	if asked, issued := o.run("pkey", "-in", filepath.Join(o.dir, "one.key"), "-pubout"), o.run(
		"x509", "-in", certificate, "-noout", "-pubkey",
	); asked != issued {
		t.Error("the certificate is for another key")
	}
	renewed := got[edgeapi.IssuedCertificate](
		e.api(agent).RotateCertificate(t.Context(), site, edgeapi.RotateRequest{CsrPem: o.csr("one-renewed")}),
	).is(t, 200)
	renewal := o.file("one-renewed.crt", []byte(renewed.CertificatePem))
	if out, err := verify(authority, renewal); err != nil {
		t.Fatalf("a renewed certificate: %v\n%s", err, out)
	}

	ask(e.api(adminToken).RevokeSite(t.Context(), site)).is(t, 200)
	for _, c := range []string{certificate, renewal} {
		if out, err := verify(authority, c); err == nil || !strings.Contains(out, "certificate revoked") {
			t.Errorf("a certificate of a revoked site: %v\n%s", err, out)
		}
	}
	if out, err := verify(authority, otherCertificate); err != nil {
		t.Errorf("the certificate of another site: %v\n%s", err, out)
	}
	serial := strings.TrimPrefix(strings.TrimSpace(o.run("x509", "-in", certificate, "-noout", "-serial")), "serial=")
	for format, path := range map[string]string{"DER": crl(edgeapi.GetCRLParamsFormatDer), "PEM": crl(edgeapi.GetCRLParamsFormatPem)} {
		if text := o.run("crl", "-inform", format, "-in", path, "-noout", "-text"); !strings.Contains(
			text, "Serial Number: "+serial,
		) {
			t.Errorf("the list in %s lacks the serial %s:\n%s", format, serial, text)
		}
	}

	// The list survives a kill, and a removed site is on it, too.
	ask(e.api(adminToken).DeleteSite(t.Context(), other)).is(t, 204)
	e.kill()
	e.start()
	for _, c := range []string{certificate, otherCertificate} {
		if out, err := verify(authority, c); err == nil || !strings.Contains(out, "certificate revoked") {
			t.Errorf("after a restart, a revoked certificate: %v\n%s", err, out)
		}
	}
}
