package httpserve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

func TestValidateNamesTheWrongKey(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*httpserve.Config){
		"listen":              func(c *httpserve.Config) { c.Listen = "8080" },
		"tls-key":             func(c *httpserve.Config) { c.TLSCert = "a.pem" },
		"tls-cert":            func(c *httpserve.Config) { c.TLSKey = "a.pem" },
		"tls-self-signed":     func(c *httpserve.Config) { c.TLSCert, c.TLSKey, c.SelfSigned = "a", "b", true },
		"client-ca":           func(c *httpserve.Config) { c.ClientCA = "ca.pem" },
		"client-required":     func(c *httpserve.Config) { c.ClientRequired = true },
		"max-in-flight":       func(c *httpserve.Config) { c.MaxInFlight = -1 },
		"drain-timeout":       func(c *httpserve.Config) { c.DrainTimeout = -1 },
		"read-header-timeout": func(c *httpserve.Config) { c.ReadHeaderTimeout = -1 },
		"read-timeout":        func(c *httpserve.Config) { c.ReadTimeout = -1 },
		"write-timeout":       func(c *httpserve.Config) { c.WriteTimeout = -1 },
		"idle-timeout":        func(c *httpserve.Config) { c.IdleTimeout = -1 },
		"max-header-bytes":    func(c *httpserve.Config) { c.MaxHeaderBytes = 1 },
	} {
		c := httpserve.Config{Listen: ":8080"}
		c.Defaults()
		if err := c.Validate(); err != nil {
			t.Fatalf("defaults are invalid: %v", err)
		}
		change(&c)
		if err := c.Validate(); !fault.Is(err, fault.Invalid) || fault.From(err).Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestAPortThatIsTakenIsUnavailable(t *testing.T) {
	t.Parallel()
	first, err := httpserve.Listen(httpserve.Config{Listen: "127.0.0.1:0"}, http.NotFoundHandler(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = httpserve.Listen(httpserve.Config{Listen: first.Addr().String()}, http.NotFoundHandler(), quiet())
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}

func TestRunAfterCloseFails(t *testing.T) {
	t.Parallel()
	s, err := httpserve.Listen(httpserve.Config{Listen: ":0"}, http.NotFoundHandler(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("URL of a wildcard address = %s", s.URL())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("Run after Close succeeded")
	}
}

func TestDrainLetsRequestsFinishAndEndsStreams(t *testing.T) {
	t.Parallel()
	streaming, working, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		s, err := httpserve.NewEventStream(w, r, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		close(streaming)
		err = httpserve.Loop(
			r.Context(), s, nil, 0, func(context.Context, int64) ([]httpserve.Event, error) { return nil, nil },
		)
		if err != nil {
			t.Errorf("Loop = %v", err)
		}
		// The end of the stream shows that the drain has begun; only now may the other request
		// finish.
		close(release)
	})
	mux.HandleFunc("/work", func(w http.ResponseWriter, r *http.Request) {
		close(working)
		<-release
		if r.Context().Err() != nil {
			t.Error("the context of an ordinary request ended with the drain")
		}
		_, _ = io.WriteString(w, "done")
	})
	s, stop := running(t, httpserve.Config{}, mux)

	bodies := make(chan string, 2)
	get := func(path string) {
		resp, err := http.Get(s.URL() + path)
		if err != nil {
			bodies <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			b = []byte(err.Error())
		}
		bodies <- path + "=" + string(b)
	}
	go get("/stream")
	<-streaming
	go get("/work")
	<-working
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	got := map[string]bool{<-bodies: true, <-bodies: true}
	if !got["/stream="] || !got["/work=done"] {
		t.Errorf("responses: %v", got)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("a drained server still accepts")
	}
}

func TestRequestsThatOutlastTheDrainAreCutOff(t *testing.T) {
	t.Parallel()
	working := make(chan struct{})
	s, stop := running(t, httpserve.Config{DrainTimeout: time.Millisecond},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(working)
			<-r.Context().Done()
		}))
	failed := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.URL())
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-working
	if err := stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v", err)
	}
	<-failed //nolint:errcheck // that it ended is what counts
}

func TestSelfSignedServesTLS12AndHTTP2(t *testing.T) {
	t.Parallel()
	s, _ := running(
		t,
		httpserve.Config{SelfSigned: true},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto)
		}),
	)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "HTTP/2.0" {
		t.Errorf("protocol %s", b)
	}
	leaf := resp.TLS.PeerCertificates[0]
	if err := leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	if err := leaf.VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
	_, err = tls.Dial(
		"tcp", s.Addr().String(),
		&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
	)
	if err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

// writeCert creates a self-signed certificate with the given serial number, and stores it with its
// key.
func writeCert(t *testing.T, dir string, serial int64) (cert tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestReplacedTLSFilesAreUsedAndBrokenOnesAreNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile := filepath.Join(dir, "cert.pem")
	writeCert(t, dir, 1)
	s, _ := running(
		t, httpserve.Config{TLSCert: certFile, TLSKey: filepath.Join(dir, "key.pem")}, http.NotFoundHandler(),
	)
	serial := func() int64 {
		c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	// The file system's clock may be too coarse to distinguish two quick writes.
	touch := func(d time.Duration) {
		at := time.Now().Add(d)
		if err := os.Chtimes(certFile, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if got := serial(); got != 1 {
		t.Fatalf("serial %d", got)
	}
	writeCert(t, dir, 2)
	touch(time.Minute)
	if got := serial(); got != 2 {
		t.Errorf("after replacement: serial %d", got)
	}
	if err := os.WriteFile(certFile, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	touch(2 * time.Minute)
	if got := serial(); got != 2 {
		t.Errorf("after damage: serial %d", got)
	}
}

func TestAClientCertificateIsVerifiedIfGiven(t *testing.T) {
	t.Parallel()
	own, other := t.TempDir(), t.TempDir()
	trusted, stranger := writeCert(t, own, 1), writeCert(t, other, 2)
	s, _ := running(t, httpserve.Config{SelfSigned: true, ClientCA: filepath.Join(own, "cert.pem")},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.TLS.VerifiedChains) > 0 {
				_, _ = io.WriteString(w, "verified")
			}
		}))
	get := func(certs ...tls.Certificate) (string, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			// Unlike Certificates, this sends a certificate that the server did not ask for.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &certs[0], nil
			},
		}}}
		defer client.CloseIdleConnections()
		resp, err := client.Get(s.URL())
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	if got, err := get(); err != nil || got != "" {
		t.Errorf("without certificate: %q, %v", got, err)
	}
	if got, err := get(trusted); err != nil || got != "verified" {
		t.Errorf("with a trusted one: %q, %v", got, err)
	}
	if got, err := get(stranger); err == nil {
		t.Errorf("with a stranger's: %q", got)
	}
}

func TestUnreadableTLSFilesStopTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for field, cfg := range map[string]httpserve.Config{
		"tls-cert":  {TLSCert: filepath.Join(dir, "no"), TLSKey: filepath.Join(dir, "no")},
		"client-ca": {SelfSigned: true, ClientCA: filepath.Join(dir, "no")},
	} {
		cfg.Listen = "127.0.0.1:0"
		_, err := httpserve.Listen(cfg, http.NotFoundHandler(), quiet())
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
