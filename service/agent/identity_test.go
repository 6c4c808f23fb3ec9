package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

// authority makes an authority and a certificate of it for a key of newKey.
func authority(t *testing.T, csr string) (ca, certificate string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotBefore:             time.Now(),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(csr))
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, request.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return encode(rootDER), encode(leafDER)
}

func TestAnIdentityThatDoesNotFitTogetherIsNotTaken(t *testing.T) {
	t.Parallel()
	key, csr, err := newKey("x")
	if err != nil {
		t.Fatal(err)
	}
	otherKey, _, err := newKey("x")
	if err != nil {
		t.Fatal(err)
	}
	ca, certificate := authority(t, csr)
	otherCA, _ := authority(t, csr)
	good := Identity{SiteID: "s", AgentToken: "t", CertificatePEM: certificate, KeyPEM: key, CAPEM: ca}
	for name, id := range map[string]Identity{"with a certificate": good, "without": {SiteID: "s", AgentToken: "t"}} {
		if err := id.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Identity){
		"no site":                    func(id *Identity) { id.SiteID = "" },
		"no token":                   func(id *Identity) { id.AgentToken = "" },
		"token that is not a header": func(id *Identity) { id.AgentToken = "a\nb" },
		"token that is too long":     func(id *Identity) { id.AgentToken = strings.Repeat("a", 2000) },
		"another key's certificate":  func(id *Identity) { id.KeyPEM = otherKey },
		"no authority":               func(id *Identity) { id.CAPEM = "" },
		"authority is noise":         func(id *Identity) { id.CAPEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----" },
		"another authority":          func(id *Identity) { id.CAPEM = otherCA },
		"no certificate":             func(id *Identity) { id.CertificatePEM = "" },
		"certificate is noise":       func(id *Identity) { id.CertificatePEM = "x" },
	} {
		id := good
		change(&id)
		var invalid *answer.Invalid
		if err := id.check(); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeartbeatIntervalsStayWithinBounds(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]time.Duration{30: 30 * time.Second, 0: minInterval, -1: minInterval, 1 << 40: maxInterval, 1<<63 - 1: maxInterval, -1 << 63: minInterval} {
		if got := heartbeatInterval(seconds); got != want {
			t.Errorf("%d: %s", seconds, got)
		}
	}
}
