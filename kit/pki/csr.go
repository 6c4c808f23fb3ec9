package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// MaxCSRBytes is the largest PEM text that ParseCSR reads.
	MaxCSRBytes = 16 << 10

	typeCSR    = "CERTIFICATE REQUEST" // RFC 7468, section 7
	fieldCSR   = "csr_pem"
	minRSABits = 2048
	maxRSABits = 4096 // larger keys cost the server more than they gain
)

// ParseCSR parses a PKCS #10 certificate request (RFC 2986): exactly one PEM block CERTIFICATE
// REQUEST with only white space around it, at most MaxCSRBytes. Its key must be ECDSA P-256 or
// P-384, Ed25519, or RSA of 2048 to 4096 bits, and its signature must verify, which proves that the
// sender has the private key. Faults are of kind Invalid and name the field "csr_pem".
func ParseCSR(pemText string) (*x509.CertificateRequest, error) {
	if len(pemText) > MaxCSRBytes {
		return nil, fault.InvalidField(fieldCSR, "must be at most %d bytes, not %d", MaxCSRBytes, len(pemText))
	}
	text := strings.TrimSpace(pemText)
	// pem.Decode skips what it cannot read, so reject anything that it could skip.
	if !strings.HasPrefix(text, "-----BEGIN ") || strings.Count(text, "-----BEGIN ") != 1 {
		return nil, fault.InvalidField(fieldCSR, "must be exactly one PEM block and nothing else")
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(strings.TrimSpace(string(rest))) != 0 {
		return nil, fault.InvalidField(fieldCSR, "must be exactly one PEM block and nothing else")
	}
	if block.Type != typeCSR {
		return nil, fault.InvalidField(fieldCSR, "must be a PEM block %q, not %q", typeCSR, block.Type)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, invalidCSR(err, "is not a PKCS #10 certificate request")
	}
	if err := checkCSR(csr); err != nil {
		return nil, err
	}
	return csr, nil
}

func checkCSR(csr *x509.CertificateRequest) error {
	// Check the key first: verifying with an oversized key is itself an attack.
	if err := checkKey(csr.PublicKey); err != nil {
		return err
	}
	switch csr.SignatureAlgorithm {
	case x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1:
		return fault.InvalidField(fieldCSR, "must be signed with SHA-256 or better")
	}
	if err := csr.CheckSignature(); err != nil {
		return invalidCSR(err, "has a signature that does not verify with its own key")
	}
	return nil
}

func checkKey(pub any) error {
	switch key := pub.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSABits && bits <= maxRSABits {
			return nil
		}
	}
	return fault.InvalidField(
		fieldCSR, "must have a key that is ECDSA P-256 or P-384, Ed25519, or RSA of %d to %d bits", minRSABits,
		maxRSABits,
	)
}

func invalidCSR(cause error, why string) error {
	f := fault.Wrap(fault.Invalid, cause, "%s: %s", fieldCSR, why)
	f.Field = fieldCSR
	return f
}
