package pki_test

import (
	"crypto/x509"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/pki"
	"github.com/mainstay-infra/mainstay/kit/require"
)

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenSSLAcceptsGoodAndRefusesRevokedCertificates(t *testing.T) {
	t.Parallel()
	openssl := require.Program(t, "openssl", "openssl")
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), openssl, args...).CombinedOutput()
		return string(out), err
	}
	a := authority(t)
	good := issue(t, a, plainCSR(t), pki.Subject{ID: "site_good", OrgID: "org_1"}, now, day)
	bad := issue(t, a, greedyCSR(t), pki.Subject{ID: "site_bad"}, now, day)
	der, err := a.CRL(
		big.NewInt(7), now.Add(-time.Minute), now.Add(day),
		[]pki.Revoked{{Serial: bad.Serial, At: now.Add(-time.Minute), Reason: 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca := write(t, dir, "ca.pem", a.CertificatePEM())
	crl := write(t, dir, "crl.pem", pki.CRLPEM(der))
	goodFile, badFile := write(t, dir, "good.pem", good.PEM), write(t, dir, "bad.pem", bad.PEM)

	out, err := run("crl", "-inform", "DER", "-in", write(t, dir, "crl.der", string(der)), "-noout", "-text")
	serial := strings.ToUpper(strings.TrimLeft(bad.Serial, "0"))
	if err != nil || !strings.Contains(out, serial) || !strings.Contains(out, "Key Compromise") ||
		!strings.Contains(out, "X509v3 CRL Number") {
		t.Errorf("crl -text: %v\n%s", err, out)
	}
	if out, err := run("crl", "-in", crl, "-noout", "-CAfile", ca); err != nil || !strings.Contains(out, "verify OK") {
		t.Errorf("crl -CAfile: %v\n%s", err, out)
	}
	verify := func(file string) (string, error) {
		return run(
			"verify", "-x509_strict", "-purpose", "sslclient", "-crl_check", "-CAfile", ca, "-CRLfile", crl, file,
		)
	}
	if out, err := verify(goodFile); err != nil {
		t.Errorf("the good certificate: %v\n%s", err, out)
	}
	if out, err := verify(badFile); err == nil || !strings.Contains(out, "certificate revoked") {
		t.Errorf("the revoked certificate: %v\n%s", err, out)
	}
	out, err = run("x509", "-in", badFile, "-noout", "-text")
	if err != nil || strings.Contains(out, "CA:TRUE") || strings.Contains(out, "DNS:") ||
		!strings.Contains(out, "URI:spiffe://mainstay/site/site_bad") {
		t.Errorf("x509 -text: %v\n%s", err, out)
	}
}

func TestOpenSSLRequestsAreAccepted(t *testing.T) {
	t.Parallel()
	openssl := require.Program(t, "openssl", "openssl")
	for _, alg := range [][]string{{"ec", "-pkeyopt", "ec_paramgen_curve:P-256"}, {"ed25519"}, {"rsa:2048"}} {
		args := append(
			[]string{
				"req", "-new", "-nodes", "-subj", "/CN=site", "-keyout", filepath.Join(t.TempDir(), "key"),
				"-newkey",
			},
			alg...)
		out, err := exec.CommandContext(t.Context(), openssl, args...).Output()
		if err != nil {
			t.Fatalf("%v: %v", alg, err)
		}
		if _, err := pki.ParseCSR(string(out)); err != nil {
			t.Errorf("%v: %v", alg, err)
		}
	}
}

func TestACRLHoldsWhatWasRevokedAndIsSigned(t *testing.T) {
	t.Parallel()
	a := authority(t)
	at := now.Add(-time.Hour).Truncate(time.Second)
	der, err := a.CRL(
		big.NewInt(1), now, now.Add(day),
		[]pki.Revoked{{Serial: "0A", At: at}, {Serial: strings.Repeat("f", 32), At: at, Reason: 4}},
	)
	if err != nil {
		t.Fatal(err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	if err := list.CheckSignatureFrom(parseCert(t, a.CertificatePEM())); err != nil {
		t.Error(err)
	}
	e := list.RevokedCertificateEntries
	if len(e) != 2 || e[0].SerialNumber.Int64() != 10 || !e[0].RevocationTime.Equal(at) || e[0].ReasonCode != 0 ||
		e[1].ReasonCode != 4 {
		t.Errorf("%+v", e)
	}
	if _, err := a.CRL(big.NewInt(2), now, now.Add(day), nil); err != nil {
		t.Errorf("an empty list: %v", err)
	}
}

func TestCRLRefusesMalformedInput(t *testing.T) {
	t.Parallel()
	a := authority(t)
	one, next := big.NewInt(1), now.Add(day)
	for name, c := range map[string]struct {
		number  *big.Int
		next    time.Time
		revoked []pki.Revoked
		field   string
	}{
		"no number":       {nil, next, nil, "number"},
		"negative number": {big.NewInt(-1), next, nil, "number"},
		"long number":     {new(big.Int).Lsh(one, 160), next, nil, "number"},
		"empty period":    {one, now, nil, "next_update"},
		"no serial":       {one, next, []pki.Revoked{{}}, "revoked[0].serial"},
		"serial not hex":  {one, next, []pki.Revoked{{Serial: "0x1"}}, "revoked[0].serial"},
		"signed serial":   {one, next, []pki.Revoked{{Serial: "-1"}}, "revoked[0].serial"},
		"zero serial":     {one, next, []pki.Revoked{{Serial: "00"}}, "revoked[0].serial"},
		"long serial":     {one, next, []pki.Revoked{{Serial: strings.Repeat("1", 41)}}, "revoked[0].serial"},
		"twice":           {one, next, []pki.Revoked{{Serial: "a"}, {Serial: "0A"}}, "revoked[1].serial"},
		"reason 7":        {one, next, []pki.Revoked{{Serial: "a", Reason: 7}}, "revoked[0].reason"},
		"reason 8":        {one, next, []pki.Revoked{{Serial: "a", Reason: 8}}, "revoked[0].reason"},
		"reason 11":       {one, next, []pki.Revoked{{Serial: "a", Reason: 11}}, "revoked[0].reason"},
	} {
		_, err := a.CRL(c.number, now, c.next, c.revoked)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A revocation list of another authority must not pass for this one's.
func TestAnotherAuthoritysListDoesNotVerify(t *testing.T) {
	t.Parallel()
	der, err := authority(t).CRL(big.NewInt(1), now, now.Add(day), nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	if list.CheckSignatureFrom(parseCert(t, authority(t).CertificatePEM())) == nil {
		t.Error("verified")
	}
}
