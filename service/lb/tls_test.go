package lb

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// authority signs certificates for tests.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority of the tests"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) file(name, kind string, der []byte) string {
	a.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
	return path
}

// issue makes a certificate for clients and servers.
func (a *authority) issue(commonName string) tls.Certificate {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: commonName},
		DNSNames:     []string{"lb.test"},
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serve runs a whole service, listeners and all.
func serve(t *testing.T, change func(*Config)) (url string, log *logBuffer, registry *prometheus.Registry) {
	t.Helper()
	cfg := defaults(t, unchecked)
	change(&cfg)
	log, registry = &logBuffer{}, prometheus.NewRegistry()
	plane := newMemoryPlane()
	service, err := New(
		cfg,
		Deps{Log: slog.New(slog.NewTextHandler(log, nil)), Registry: registry, Now: time.Now, Speaker: &memorySpeaker{},
			Open: func(context.Context, PlaneOptions) (Plane, Hops, error) { return plane, plane, nil }},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- service.Serve(ctx, func(url string) { ready <- url })
		close(done) // so that there is no second wait
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case url = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	return url, log, registry
}

// client is a caller with a certificate, a key, both or neither.
type client struct {
	cert *tls.Certificate
	key  string
}

func (c client) do(t *testing.T, pool *x509.CertPool, method, url string) (int, error) {
	t.Helper()
	config := &tls.Config{RootCAs: pool, ServerName: "lb.test", MinVersion: tls.VersionTLS12}
	if pool == nil {
		config.InsecureSkipVerify = true //nolint:gosec // of a certificate that the server made itself
	}
	if c.cert != nil {
		config.Certificates = []tls.Certificate{*c.cert}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_ = res.Body.Close() // only the status counts
	return res.StatusCode, nil
}

func TestClientCertificatesAreCallersByTheirCommonName(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	server := ca.issue("lb.test")
	keyDER, err := x509.MarshalECPrivateKey(server.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := ca.file("server.pem", "CERTIFICATE", server.Certificate[0]), ca.file(
		"server.key", "EC PRIVATE KEY", keyDER,
	)
	authority := ca.file("ca.pem", "CERTIFICATE", ca.cert.Raw)
	settings := func(keys, required bool) func(*Config) {
		return func(c *Config) {
			c.TLSCert, c.TLSKey = certFile, keyFile
			c.TLSClientCA, c.CertAdminCNs, c.ClientRequired = authority, []string{"ops", "deploy"}, required
			if !keys {
				c.APIKey, c.APIReadonlyKey = "", ""
			}
		}
	}
	admin, reader, stranger := ca.issue("ops"), ca.issue("grafana"), foreign.issue("ops")
	const failed = 0 // no answer at all
	for _, tt := range []struct {
		what           string
		keys, required bool
		who            client
		read, change   int
		health         int
	}{
		{"an admin's certificate", false, false, client{cert: &admin}, 200, 200, 200},
		{"another certificate", false, false, client{cert: &reader}, 200, 403, 200},
		{"no certificate", false, false, client{}, 401, 401, 200},
		{"no certificate, but a key", true, false, client{key: longA}, 200, 200, 200},
		{"a key that says less than the certificate", true, false, client{cert: &admin, key: longB}, 200, 403, 200},
		{"a wrong key with a good certificate", true, false, client{cert: &admin, key: longC}, 401, 401, 200},
		{"a certificate of another authority", false, false, client{cert: &stranger}, failed, failed, failed},
		{"no certificate where one is required", true, true, client{key: longA}, failed, failed, failed},
		{"a certificate where one is required", true, true, client{cert: &admin}, 200, 200, 200},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			url, log, registry := serve(t, settings(tt.keys, tt.required))
			for _, call := range []struct {
				method, path string
				want         int
			}{{"GET", "/api/v1/vips", tt.read}, {"POST", "/api/v1/backends/1/drain", tt.change}, {"GET", "/healthz", tt.health}} {
				status, err := tt.who.do(t, ca.pool, call.method, url+call.path)
				if status != call.want || (err != nil) != (call.want == failed) {
					t.Errorf("%s %s: %d %v, want %d", call.method, call.path, status, err, call.want)
				}
			}
			if tt.who.cert == &reader {
				if lines := log.lines("api change"); len(lines) != 1 ||
					!strings.Contains(lines[0], "user=grafana role=readonly") {
					t.Errorf("%q", lines)
				}
				if n := counted(t, registry, "lb_api_changes_total", `code="403",user="certificate"`); n != 1 {
					t.Errorf("counted %v", n)
				}
			}
		})
	}
}

// counted is the value of one series.
func counted(t *testing.T, registry *prometheus.Registry, name, labels string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, l.GetName()+`="`+l.GetValue()+`"`)
			}
			if f.GetName() == name && strings.Join(pairs, ",") == labels {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestASelfSignedCertificateServesHTTPSAndTheSecondAddressPlainHTTP(t *testing.T) {
	t.Parallel()
	second := httptest.NewServer(nil) // for a free port
	address := second.Listener.Addr().String()
	second.Close()
	url, _, _ := serve(t, func(c *Config) { c.TLSSelfSigned, c.MetricsListen = true, address })
	if !strings.HasPrefix(url, "https://") {
		t.Fatal(url)
	}
	if status, err := (client{key: longB}).do(t, nil, "GET", url+"/api/v1/vips"); status != 200 {
		t.Errorf("%d %v", status, err)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/api/v1/vips": 404, "/": 404} {
		res, err := http.Get("http://" + address + path) //nolint:noctx // of this test's own server
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close() // only the status counts
		if res.StatusCode != want {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

func TestLogLinesAboutWrongKeysAreThrottledAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		cfg := Config{APIKey: longA}
		g, err := newGate(&cfg, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ops, err := Contract()
		if err != nil {
			t.Fatal(err)
		}
		op, _ := ops.Operation("POST /api/v1/backends/{id}/drain")
		try := func() {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/backends/1/drain", nil)
			if who, err := g.identify(r, op); !fault.Is(err, fault.Unauthenticated) {
				t.Errorf("%+v, %v", who, err)
			}
		}
		for range 30 {
			try()
			time.Sleep(time.Second)
		}
		lines := log.lines("without valid credentials")
		if len(lines) != 3 || !strings.Contains(lines[0], "omitted=0") || !strings.Contains(lines[1], "omitted=9") ||
			len(log.lines("api change")) != 0 {
			t.Errorf("%q", lines)
		}
		if n := testutil.ToFloat64(g.failures.WithLabelValues("unauthenticated")); n != 30 {
			t.Errorf("counted %v", n)
		}
	})
}

func TestAPanicInAChangeIsAudited(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	g, err := newGate(&Config{}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ops, err := Contract()
	if err != nil {
		t.Fatal(err)
	}
	op, _ := ops.Operation("POST /api/v1/backends/{id}/drain")
	handler := g.recordChanges(op, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	func() {
		defer func() { _ = recover() }() // it is the server's to deal with
		ctx := shell.As(t.Context(), anonymous)
		handler.ServeHTTP(
			httptest.NewRecorder(),
			httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/x", nil),
		)
	}()
	if lines := log.lines("api change"); len(lines) != 1 || !strings.Contains(lines[0], "status=500") {
		t.Errorf("%q", lines)
	}
}
