package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

const requestTimeout = 30 * time.Second

// newKey makes a key and a certificate request for it, both in PEM.
func newKey(name string) (key, csr string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", fmt.Errorf("encode the key: %w", err)
	}
	// The control plane decides what stands in the certificate; this is for people
	// who look at the request.
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, private)
	if err != nil {
		return "", "", fmt.Errorf("make a certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})), nil
}

// enroll makes a site of this agent.
func (a *Agent) enroll(ctx context.Context) error {
	s, err := a.newSession(nil)
	if err != nil {
		return err
	}
	defer s.close()
	key, csr, err := newKey("mainstay agent")
	if err != nil {
		return err
	}
	version := telemetry.BuildInfo().Version
	request := edgeapi.EnrollRequest{Name: a.cfg.Name, EnrollmentToken: a.enrollmentToken, CsrPem: &csr, Version: &version}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	e, err := decode[edgeapi.Enrollment](read(s.api.Enroll(ctx, request)))
	var r *refusal
	if errors.As(err, &r) && r.code == "pki_disabled" {
		request.CsrPem = nil
		e, err = decode[edgeapi.Enrollment](read(s.api.Enroll(ctx, request)))
	}
	if err != nil {
		return err
	}
	id := Identity{SiteID: e.SiteId, OrgID: e.OrgId, AgentToken: e.AgentToken, EnrolledAt: a.now().UTC()}
	if e.CertificatePem != nil && e.CaPem != nil {
		id.CertificatePEM, id.CAPEM, id.KeyPEM = *e.CertificatePem, *e.CaPem, key
	}
	// The devices are to be this site's, if they were another one's before.
	if err := a.twins.RegisterAll(ctx); err != nil {
		a.log.Warn("devices are not registered again", "error", err)
	}
	if err := a.identity.put(id); err != nil {
		return fmt.Errorf("site %s was enrolled, but its identity is lost: %w", e.SiteId, err)
	}
	a.log.Info("enrolled", "site", e.SiteId, "name", a.cfg.Name, "certificate_until", id.notAfterText())
	return nil
}

func (id *Identity) notAfterText() string {
	k := *id
	if k.prepare() != nil || k.certificate == nil {
		return "none"
	}
	return k.notAfter().Format(time.RFC3339)
}

// renew replaces key and certificate. The old ones stay valid, so nothing is lost
// if the answer is.
func (a *Agent) renew(ctx context.Context, s *session) error {
	key, csr, err := newKey(s.site())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := decode[edgeapi.IssuedCertificate](read(s.api.RotateCertificate(ctx, s.site(), edgeapi.RotateRequest{CsrPem: csr})))
	if err != nil {
		return err
	}
	id := *s.id
	id.CertificatePEM, id.KeyPEM, id.CAPEM = c.CertificatePem, key, c.CaPem
	if err := a.identity.put(id); err != nil {
		return err
	}
	a.log.Info("certificate renewed", "site", id.SiteID, "until", id.notAfterText())
	return nil
}
