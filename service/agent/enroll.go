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
	"syscall"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

const requestTimeout = 30 * time.Second

// newKey creates a key and a certificate request for it, both in PEM.
func newKey(name string) (key, csr string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", fmt.Errorf("encode the key: %w", err)
	}
	// The control plane decides on the content of the certificate. The name is for people who
	// inspect the request.
	request, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, private,
	)
	if err != nil {
		return "", "", fmt.Errorf("make a certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})), nil
}

// enroll registers this agent as a new site. Each attempt uses up an enrollment token, so enroll
// first reserves disk space for the identity, and does not request another site as long as a
// received identity could not be stored.
func (a *Agent) enroll(ctx context.Context) error {
	if a.unkept != nil {
		return a.keep(*a.unkept)
	}
	if err := a.withReserve(a.identity.secureRoom); err != nil {
		return fmt.Errorf("not enrolled: the disk has no space for the identity: %w", err)
	}
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
	request := edgeapi.EnrollRequest{
		Name:            a.cfg.Name,
		EnrollmentToken: a.enrollmentToken,
		CsrPem:          &csr,
		Version:         &version,
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	e, err := answer.Decode[edgeapi.Enrollment](answer.Read(s.api.Enroll(ctx, request)))
	var r *answer.Refusal
	if errors.As(err, &r) && r.Code == "pki_disabled" {
		request.CsrPem = nil
		e, err = answer.Decode[edgeapi.Enrollment](answer.Read(s.api.Enroll(ctx, request)))
	}
	if err != nil {
		return err
	}
	id := Identity{SiteID: e.SiteId, OrgID: e.OrgId, AgentToken: e.AgentToken, EnrolledAt: a.now().UTC()}
	if e.CertificatePem != nil && e.CaPem != nil {
		id.CertificatePEM, id.CAPEM, id.KeyPEM = *e.CertificatePem, *e.CaPem, key
	}
	if err := id.check(); err != nil {
		return err
	}
	// Devices that belonged to another site before must be registered for this one.
	if err := a.twins.RegisterAll(ctx); err != nil {
		a.log.Warn("devices are not registered again", "error", err)
	}
	return a.keep(id)
}

// keep stores an identity that the control plane has just issued.
func (a *Agent) keep(id Identity) error {
	a.unkept = &id
	if err := a.withReserve(func() error { return a.identity.put(id) }); err != nil {
		return fmt.Errorf("site %s was enrolled, but its identity is not on disk yet: %w", id.SiteID, err)
	}
	a.unkept = nil
	a.log.Info("enrolled", "site", id.SiteID, "name", a.cfg.Name, "certificate_until", id.notAfterText())
	return nil
}

// withReserve writes a small file. If the disk is full, it releases space from the reserve.
func (a *Agent) withReserve(write func() error) error {
	err := write()
	for errors.Is(err, syscall.ENOSPC) && a.db.Give() {
		err = write()
	}
	return err
}

func (id *Identity) notAfterText() string {
	k := *id
	if k.prepare() != nil || k.certificate == nil {
		return "none"
	}
	return k.notAfter().Format(time.RFC3339)
}

// renew replaces key and certificate. The old ones stay valid, so a lost response does no harm.
func (a *Agent) renew(ctx context.Context, s *session) error {
	key, csr, err := newKey(s.site())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := answer.Decode[edgeapi.IssuedCertificate](
		answer.Read(s.api.RotateCertificate(ctx, s.site(), edgeapi.RotateRequest{CsrPem: csr})),
	)
	if err != nil {
		return err
	}
	id := *s.id
	id.CertificatePEM, id.KeyPEM, id.CAPEM = c.CertificatePem, key, c.CaPem
	if err := id.check(); err != nil {
		return err
	}
	if err := a.withReserve(func() error { return a.identity.put(id) }); err != nil {
		return err
	}
	a.log.Info("certificate renewed", "site", id.SiteID, "until", id.notAfterText())
	return nil
}
