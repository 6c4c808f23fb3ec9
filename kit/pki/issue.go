package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	trustDomain = "mainstay"
	serialBytes = 16
)

// Subject is the subject of a certificate. Both ids are 1 to 64 letters, digits, hyphens,
// underscores and full stops, the alphabet of SPIFFE path segments.
type Subject struct {
	ID    string // of the site
	OrgID string // of its organisation; may be empty
}

// Certificate is an issued certificate.
type Certificate struct {
	PEM       string
	Serial    string // in the form of SerialString
	NotBefore time.Time
	NotAfter  time.Time
}

// SiteURI returns the SPIFFE id of a site, the URI name in its certificate.
func SiteURI(id string) string { return siteURL(id).String() }

func siteURL(id string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/site/" + id}
}

// SerialString returns the text form of a serial number: 32 lower-case hex digits, with leading
// zeros.
func SerialString(serial *big.Int) string { return fmt.Sprintf("%0*x", 2*serialBytes, serial) }

// newSerial returns 128 random bits, more than the 64 that the CA/Browser Forum requires and less
// than the 20 octets that RFC 5280, 4.1.2.2 allows.
func newSerial() *big.Int {
	var b [serialBytes]byte
	for {
		_, _ = rand.Read(b[:]) // never returns an error
		// RFC 5280 requires a positive number.
		if n := new(big.Int).SetBytes(b[:]); n.Sign() > 0 {
			return n
		}
	}
}

// Issue issues a client certificate for subject and the key in csr, which must come from ParseCSR.
// Everything else in csr is ignored: the certificate has the site as common name, the organisation
// as O if there is one, SiteURI as its only subject alternative name, digital signature as key
// usage and client authentication as extended key usage.
//
// It is valid from five minutes before notBefore, for slow clocks, until validity after notBefore,
// but never outside the authority's own validity. Times are in whole seconds, UTC. Faults are of
// kind Invalid, or Unavailable if the authority has expired.
func (a *Authority) Issue(
	csr *x509.CertificateRequest, subject Subject, notBefore time.Time, validity time.Duration,
) (Certificate, error) {
	if err := checkCSR(csr); err != nil {
		return Certificate{}, err
	}
	if err := checkSubject(subject); err != nil {
		return Certificate{}, err
	}
	from, until, err := a.period(notBefore, validity)
	if err != nil {
		return Certificate{}, err
	}
	name := pkix.Name{CommonName: subject.ID}
	if subject.OrgID != "" {
		name.Organization = []string{subject.OrgID}
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               name,
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{siteURL(subject.ID)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, csr.PublicKey, a.key)
	if err != nil {
		return Certificate{}, fmt.Errorf("pki: sign the certificate: %w", err)
	}
	return Certificate{
		PEM:       encodePEM(typeCert, der),
		Serial:    SerialString(template.SerialNumber),
		NotBefore: from,
		NotAfter:  until,
	}, nil
}

func (a *Authority) period(notBefore time.Time, validity time.Duration) (from, until time.Time, err error) {
	if validity < time.Second {
		return from, until, fault.InvalidField("validity", "must be at least one second, not %s", validity)
	}
	from = notBefore.Add(-backdate).UTC().Truncate(time.Second)
	until = notBefore.Add(validity).UTC().Truncate(time.Second)
	if from.Before(a.cert.NotBefore) {
		from = a.cert.NotBefore
	}
	if until.After(a.cert.NotAfter) {
		until = a.cert.NotAfter
	}
	if !notBefore.Before(a.cert.NotAfter) {
		return from, until, fault.New(
			fault.Unavailable, "the certificate authority expires at %s and cannot issue for later times",
			a.cert.NotAfter.Format(time.RFC3339),
		)
	}
	if !from.Before(until) {
		return from, until, fault.InvalidField("not_before", "lies before the certificate authority's own time")
	}
	return from, until, nil
}

func checkSubject(s Subject) error {
	if !validID(s.ID) {
		return fault.InvalidField(
			"id", "must be 1 to %d letters, digits, hyphens, underscores or full stops", maxNameBytes,
		)
	}
	if s.OrgID != "" && !validID(s.OrgID) {
		return fault.InvalidField(
			"org_id", "must be at most %d letters, digits, hyphens, underscores or full stops", maxNameBytes,
		)
	}
	return nil
}

func validID(id string) bool {
	// SPIFFE forbids the path segments that mean "here" and "up".
	if id == "" || len(id) > maxNameBytes || id == "." || id == ".." {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}
