package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/pki"
)

func csrPEM(t testing.TB, key crypto.Signer, template x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func ecKey(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func plainCSR(t testing.TB) string {
	t.Helper()
	return csrPEM(t, ecKey(t, elliptic.P256()), x509.CertificateRequest{Subject: pkix.Name{CommonName: "site"}})
}

func refusedCSR(t *testing.T, name, text string) {
	t.Helper()
	_, err := pki.ParseCSR(text)
	if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "csr_pem" {
		t.Errorf("%s: %v", name, err)
	}
}

func TestParseCSRAcceptsTheKeysOfTheListAndNoOthers(t *testing.T) {
	t.Parallel()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey := func(bits int) crypto.Signer {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for name, key := range map[string]crypto.Signer{
		"P-256": ecKey(t, elliptic.P256()), "P-384": ecKey(t, elliptic.P384()), "Ed25519": ed, "RSA 2048": rsaKey(2048),
	} {
		if _, err := pki.ParseCSR(csrPEM(t, key, x509.CertificateRequest{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, key := range map[string]crypto.Signer{
		"P-224": ecKey(t, elliptic.P224()), "P-521": ecKey(t, elliptic.P521()), "RSA 1024": rsaKey(1024),
	} {
		refusedCSR(t, name, csrPEM(t, key, x509.CertificateRequest{}))
	}
}

func TestParseCSRToleratesOnlyWhiteSpaceAround(t *testing.T) {
	t.Parallel()
	good := plainCSR(t)
	for _, text := range []string{good, "\n\t " + good + "\r\n\n", strings.ReplaceAll(good, "\n", "\r\n"), strings.TrimSpace(good)} {
		if _, err := pki.ParseCSR(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for name, text := range map[string]string{
		"empty":           "",
		"text":            "hello",
		"text before":     "Subject: me\n" + good,
		"text after":      good + "x",
		"two":             good + good,
		"cut off":         good[:len(good)/2],
		"another type":    strings.ReplaceAll(good, "CERTIFICATE REQUEST", "CERTIFICATE"),
		"the old type":    strings.ReplaceAll(good, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
		"not DER":         "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
		"empty block":     "-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n",
		"larger than cap": good + strings.Repeat("\n", pki.MaxCSRBytes),
	} {
		refusedCSR(t, name, text)
	}
}

func TestParseCSRRefusesASignatureThatDoesNotVerify(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		block, _ := pem.Decode([]byte(plainCSR(t)))
		der := block.Bytes
		der[len(der)-1-i] ^= 1 // the signature comes last
		refusedCSR(t, "broken signature", string(pem.EncodeToMemory(block)))
	}
	block, _ := pem.Decode([]byte(plainCSR(t)))
	text := strings.Replace(string(block.Bytes), "site", "cite", 1)
	block.Bytes = []byte(text)
	refusedCSR(t, "changed subject", string(pem.EncodeToMemory(block)))
}

func FuzzParseCSRReturnsARequestOrAFault(f *testing.F) {
	good := plainCSR(f)
	f.Add(good)
	f.Add(good + good)
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n")
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nA: b\n\nMAA=\n-----END CERTIFICATE REQUEST-----\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		csr, err := pki.ParseCSR(text)
		if err != nil {
			if csr != nil || !fault.Is(err, fault.Invalid) || fault.From(err).Field != "csr_pem" {
				t.Fatalf("%v, %v", csr, err)
			}
			return
		}
		if err := csr.CheckSignature(); err != nil {
			t.Fatal(err)
		}
	})
}
