package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/pki"
)

// The moment at which most tests take place. It is the real one, because openssl
// verifies against the real clock.
var now = time.Now()

func authority(t testing.TB) *pki.Authority {
	t.Helper()
	a, err := pki.LoadOrCreate(t.TempDir(), "Mainstay test CA", now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parseCert(t testing.TB, text string) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(rest) != 0 {
		t.Fatalf("not one PEM block: %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheAuthoritySurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "pki")
	first, err := pki.LoadOrCreate(dir, "Mainstay CA", now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := pki.LoadOrCreate(dir, "another name", now.AddDate(9, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if first.CertificatePEM() != second.CertificatePEM() {
		t.Error("the certificate changed")
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 2 {
		t.Errorf("files: %v", left)
	}
}

func TestTheAuthorityCertificateHasTheProfileOfRFC5280(t *testing.T) {
	t.Parallel()
	a := authority(t)
	c := parseCert(t, a.CertificatePEM())
	if !c.IsCA || !c.BasicConstraintsValid || c.MaxPathLen != 0 || !c.MaxPathLenZero {
		t.Error("basic constraints")
	}
	if c.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("key usage %b", c.KeyUsage)
	}
	if len(c.SubjectKeyId) == 0 || c.SerialNumber.Sign() <= 0 || c.Subject.CommonName != "Mainstay test CA" {
		t.Errorf("SKI %x, serial %d, subject %s", c.SubjectKeyId, c.SerialNumber, c.Subject)
	}
	if want := now.AddDate(10, 0, 0).Truncate(time.Second); !c.NotAfter.Equal(want) || !a.NotAfter().Equal(want) {
		t.Errorf("ends %s, want %s", c.NotAfter, want)
	}
}

func TestTheKeyIsPrivateAndALooserModeIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := pki.LoadOrCreate(dir, "CA", now); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "ca.key")
	info, err := os.Stat(key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o644} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		_, err := pki.LoadOrCreate(dir, "CA", now)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.From(err).Message, "chmod 600 "+key) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
}

func TestRacingProcessesAgreeOnOneAuthority(t *testing.T) {
	t.Parallel()
	for range 5 {
		dir := filepath.Join(t.TempDir(), "pki")
		const n = 8
		var wg sync.WaitGroup
		certs, errs := make([]string, n), make([]error, n)
		start := make(chan struct{})
		for i := range n {
			wg.Go(func() {
				<-start
				a, err := pki.LoadOrCreate(dir, "CA", now)
				if err != nil {
					errs[i] = err
					return
				}
				certs[i] = a.CertificatePEM()
			})
		}
		close(start)
		wg.Wait()
		for i := range n {
			if errs[i] != nil || certs[i] != certs[0] {
				t.Fatalf("caller %d: %v, same certificate: %t", i, errs[i], certs[i] == certs[0])
			}
		}
		if left, _ := os.ReadDir(dir); len(left) != 2 {
			t.Errorf("files: %v", left)
		}
	}
}

func TestADamagedDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	if _, err := pki.LoadOrCreate(other, "other CA", now); err != nil {
		t.Fatal(err)
	}
	read := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	leaf, err := pki.SelfSigned([]string{"localhost"}, now)
	if err != nil {
		t.Fatal(err)
	}
	leafPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})
	cases := map[string]struct {
		file    string
		content []byte // nil removes the file
		at      time.Time
	}{
		"key missing":   {"ca.key", nil, now},
		"key empty":     {"ca.key", []byte{}, now},
		"key of no PEM": {"ca.key", []byte("hello"), now},
		"key of no DER": {
			"ca.key",
			[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
			now,
		},
		"key of another":          {"ca.key", read(other, "ca.key"), now},
		"certificate of another":  {"ca.crt", read(other, "ca.crt"), now},
		"certificate of no PEM":   {"ca.crt", []byte("hello"), now},
		"certificate of a server": {"ca.crt", leafPEM, now},
		"certificate has run out": {"", nil, now.AddDate(10, 0, 1)},
		"certificate is of no DER": {
			"ca.crt",
			[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			now,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := pki.LoadOrCreate(dir, "CA", now); err != nil {
				t.Fatal(err)
			}
			if c.file != "" {
				path := filepath.Join(dir, c.file)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if c.content != nil {
					if err := os.WriteFile(path, c.content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			a, err := pki.LoadOrCreate(dir, "CA", c.at)
			if a != nil || !fault.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ca.key")); name == "key missing" && err == nil {
				t.Error("a new key took the place of the lost one")
			}
		})
	}
}

func TestACrashBetweenKeyAndCertificateIsMended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := pki.LoadOrCreate(dir, "CA", now); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadOrCreate(dir, "CA", now); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "ca.key")); string(after) != string(before) {
		t.Error("the key changed")
	}
}

func TestABadNameAndABadDirectoryAreFaults(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", strings.Repeat("n", 65)} {
		if _, err := pki.LoadOrCreate(t.TempDir(), name, now); fault.From(err).Field != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadOrCreate(filepath.Join(file, "pki"), "CA", now); !fault.Is(err, fault.StorageFailed) {
		t.Error(err)
	}
}
