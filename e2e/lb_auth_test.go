//go:build linux

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func TestLoadBalancerKeysRotateKeepTheirRoleAndLeaveAuditLines(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 1, "nat")
	n.backends[0].listen(80)
	d := newLB(
		t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, backends: n.backends}}), "--access-log",
		"all",
	)
	file := filepath.Join(filepath.Dir(d.file), "key")
	use := func(keys string) {
		t.Helper()
		n.must(os.WriteFile(file, []byte(keys+"\n"), 0o600))
		d.start()
	}
	d.env = []string{"LB_API_KEY_FILE=" + file, "LB_API_READONLY_KEY=id:console=" + lbReadonlyKey}
	drain := func(key string) answer { return ask(d.api(key).DrainBackend(t.Context(), "1", lbapi.Nothing{})) }
	read := func(key string) answer { return ask(d.api(key).ListBackends(t.Context())) }
	audited := func(user, role string, status int) string {
		return fmt.Sprintf(
			`msg="api change" service=lb user=%s role=%s method=POST path=/api/v1/backends/1/drain status=%d remote=127.0.0.1:\d+`,
			user,
			role,
			status,
		)
	}
	logged := func(pattern string, times int) {
		t.Helper()
		lines := func() int {
			return len(regexp.MustCompile(pattern).FindAllString(d.process.output.String(), -1))
		}
		eventually(t, "the log has "+pattern, func() bool { return lines() >= times }) // it follows the answer
		if lines() > times {
			t.Errorf("%d lines like %s, want %d", lines(), pattern, times)
		}
	}

	use(lbOtherKey)
	drain(lbOtherKey).is(t, 200)
	drain(lbAdminKey).is(t, 401)
	drain("").is(t, 401)
	read("").is(t, 401)
	read(lbReadonlyKey).is(t, 200)
	for range 3 {
		denied := drain(lbReadonlyKey).is(t, 403)
		if code, _, message := refusal(t, denied.body); code == "" ||
			!strings.Contains(message, "console may only read") {
			t.Errorf("%s %s", code, message)
		}
	}
	logged(audited("key-1", "admin", 200), 1)
	logged(audited("console", "readonly", 403), 3) // every one of them
	logged("api request without valid credentials", 1)
	for name, want := range map[string]float64{`lb_api_auth_failures_total{reason="unauthenticated"}`: 3, `lb_api_auth_failures_total{reason="forbidden"}`: 3,
		`lb_api_changes_total{code="403",user="console"}`: 3, `lb_api_changes_total{code="200",user="key-1"}`: 1} {
		if v := d.metric(name); v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml"} {
		status, text := d.get(lbAPI + page)
		if status != 200 {
			t.Errorf("%s without a key: %d", page, status)
		}
		for _, key := range []string{lbOtherKey, lbReadonlyKey} {
			if strings.Contains(text, key) {
				t.Errorf("%s shows a key", page)
			}
		}
	}
	d.process.stop()

	use("id:next=" + lbAdminKey + "," + lbOtherKey) // NEW,OLD
	drain(lbAdminKey).is(t, 200)
	drain(lbOtherKey).is(t, 200)
	logged(audited("next", "admin", 200), 1)
	logged(audited("key-2", "admin", 200), 1)
	d.process.stop()

	use(lbAdminKey)
	drain(lbAdminKey).is(t, 200)
	drain(lbOtherKey).is(t, 401)
	d.process.stop()
}

func TestLoadBalancerRefusesToStartWithKeysAndSettingsThatAreNoProtection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	document := filepath.Join(dir, "lb.yaml")
	if err := os.WriteFile(document, []byte("interface: lo\nvips: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env   []string
		args  []string
		names []string // what the message must contain
	}{
		"read-only key without an admin key": {env: []string{"LB_API_READONLY_KEY=" + lbReadonlyKey}, names: []string{"api-readonly-key", "api-key"}},
		"a key in both roles":                {env: []string{"LB_API_KEY=" + lbAdminKey, "LB_API_READONLY_KEY=id:x=" + lbAdminKey}, names: []string{"api-readonly-key", "one role"}},
		"a name used twice":                  {env: []string{"LB_API_KEY=id:x=" + lbAdminKey + ",id:x=" + lbOtherKey}, names: []string{"api-key", "the name x"}},
		"a name used in both roles":          {env: []string{"LB_API_KEY=id:x=" + lbAdminKey, "LB_API_READONLY_KEY=id:x=" + lbReadonlyKey}, names: []string{"api-readonly-key", "the name x"}},
		"no usable key":                      {env: []string{"LB_API_KEY=,  ,"}, names: []string{"api-key", "no key"}},
		"a file without a key":               {env: []string{"LB_API_KEY_FILE=" + empty}, names: []string{"api-key"}},
		"a file without a read-only key":     {env: []string{"LB_API_KEY=" + lbAdminKey, "LB_API_READONLY_KEY_FILE=" + empty}, names: []string{"api-readonly-key"}},
		"a key of blanks":                    {env: []string{"LB_API_KEY=  "}, names: []string{"api-key"}},
		"a file that is not there":           {env: []string{"LB_API_KEY_FILE=" + filepath.Join(dir, "none")}, names: []string{"LB_API_KEY_FILE", "none"}},
		"a key and a file":                   {env: []string{"LB_API_KEY=" + lbAdminKey, "LB_API_KEY_FILE=" + empty}, names: []string{"LB_API_KEY_FILE"}},
		"a key with spaces":                  {env: []string{"LB_API_KEY=" + lbAdminKey + " " + lbOtherKey}, names: []string{"api-key", "entry 1"}},
		"a name with a slash":                {env: []string{"LB_API_KEY=id:a/b=" + lbAdminKey}, names: []string{"api-key", "entry 1"}},
		"a name that is too long":            {env: []string{"LB_API_KEY=id:" + strings.Repeat("n", 65) + "=" + lbAdminKey}, names: []string{"api-key", "entry 1"}},
		"certificate without key":            {args: []string{"--tls-cert", document}, names: []string{"tls-key"}},
		"client authority without TLS":       {args: []string{"--tls-client-ca", document}, names: []string{"tls-client-ca"}},
		"client authority of no certificate": {args: []string{"--tls-self-signed", "--tls-client-ca", document}, names: []string{"tls-client-ca"}},
		"client certificates of nobody":      {args: []string{"--tls-self-signed", "--tls-client-required"}, names: []string{"tls-client-required", "tls-client-ca"}},
		"admins of no authority":             {env: []string{"LB_API_CERT_ADMIN_CNS=root"}, names: []string{"api-cert-admin-cns", "tls-client-ca"}},
		"an unknown setting":                 {env: []string{"LB_API_KEYS=" + lbAdminKey}, names: []string{"LB_API_KEYS"}},
		"a bad second address":               {args: []string{"--metrics-listen", "9871"}, names: []string{"metrics-listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, output := run(
				t,
				c.env,
				append(
					[]string{"serve", "lb", "--config", document, "--listen", "127.0.0.1:0", "--metrics-listen", ""},
					c.args...)...)
			if code == 0 || strings.Contains(output, "goroutine ") {
				t.Errorf("exit code %d: %s", code, output)
			}
			for _, name := range c.names {
				if !strings.Contains(output, name) {
					t.Errorf("the message does not name %s: %s", name, output)
				}
			}
		})
	}
}

// lbAuthority signs certificates.
type lbAuthority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newLBAuthority(t *testing.T) *lbAuthority {
	t.Helper()
	a := &lbAuthority{T: t, file: filepath.Join(t.TempDir(), "ca.crt")}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "e2e authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate for a client.
func (a *lbAuthority) issue(commonName string) tls.Certificate {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestLoadBalancerTurnsClientsWithoutACertificateAwayAtTheHandshake(t *testing.T) {
	t.Parallel()
	ca, stranger := newLBAuthority(t), newLBAuthority(t)
	document := filepath.Join(t.TempDir(), "lb.yaml")
	// Nothing is attached for a VIP of an interface that is not there, and it can be
	// drained all the same.
	if err := os.WriteFile(
		document,
		[]byte(
			"interface: nowhere0\nvips: [{address: 198.51.100.1, port: 80, healthCheck: {type: none}, backends: [{address: 198.51.100.2}]}]\n",
		),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	p := launch(
		t, []string{"LB_TLS_CLIENT_CA=" + ca.file, "LB_TLS_CLIENT_REQUIRED=1", "LB_API_CERT_ADMIN_CNS=root,other"},
		"serve", "lb", "--config", document, "--listen", "127.0.0.1:0", "--metrics-listen", "", "--tls-self-signed",
		"--bpf-dir=",
	)
	m, ok := p.awaitOutput(lbListening)
	if !ok {
		t.Fatal("it did not start")
	}
	url := m[1]
	address, ok := strings.CutPrefix(url, "https://")
	if !ok {
		t.Fatalf("it calls itself %s", url)
	}
	config := func(version uint16, certificates ...tls.Certificate) *tls.Config {
		return &tls.Config{
			InsecureSkipVerify: true,
			MinVersion:         version,
			MaxVersion:         version,
			Certificates:       certificates,
		} //nolint:gosec // the server made its certificate itself
	}
	handshake := func(config *tls.Config) error {
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		// In TLS 1.3 the client is done before the server has looked at its certificate. One
		// that is turned away hears so instead of an answer.
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: lb\r\n\r\n"); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "a certificate of another authority": {stranger.issue("root")}} {
			if err := handshake(config(version, certificates...)); err == nil ||
				!strings.Contains(err.Error(), "remote error: tls:") {
				t.Errorf("%s, %s: %v, want an alert", tls.VersionName(version), name, err)
			}
		}
		if err := handshake(config(version, ca.issue("root"))); err != nil {
			t.Errorf("%s, a good certificate: %v", tls.VersionName(version), err)
		}
	}

	drain := func(commonName string) answer {
		t.Helper()
		client := &http.Client{
			Timeout:   patience,
			Transport: &http.Transport{TLSClientConfig: config(tls.VersionTLS13, ca.issue(commonName))},
		}
		t.Cleanup(client.CloseIdleConnections)
		api, err := lbapi.NewClient(url+lbapi.BasePath, rest.WithHTTPClient(client))
		if err != nil {
			t.Fatal(err)
		}
		ask(api.ListBackends(t.Context())).is(t, 200)
		res := ask(api.DrainBackend(t.Context(), "1", lbapi.Nothing{}))
		if res.err != nil {
			t.Fatal(res.err)
		}
		return res
	}
	if res := drain("other"); res.StatusCode != 200 {
		t.Errorf("an admin's certificate: %d %s", res.StatusCode, res.body)
	}
	if res := drain("guest"); res.StatusCode != 403 {
		t.Errorf("another certificate: %d %s", res.StatusCode, res.body)
	}
	for _, line := range []string{"user=other role=admin", "user=guest role=readonly"} {
		if _, ok := p.awaitOutput(regexp.MustCompile(line)); !ok {
			t.Errorf("no audit line with %s", line)
		}
	}
	p.stop()
}
