package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// farSite makes a network namespace, joined to this one by a pair of virtual
// interfaces, and returns its name and the address of our end.
func farSite(t *testing.T) (namespace, address string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make network namespaces")
	}
	ip := require.Program(t, "ip", "iproute2")
	n := os.Getpid() % 250
	namespace = fmt.Sprintf("mainstay-%d", os.Getpid())
	if out, err := exec.Command(ip, "netns", "add", namespace).CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v: %s", err, strings.TrimSpace(string(out)))
	}
	near := fmt.Sprintf("ms%d", os.Getpid())
	t.Cleanup(func() { command(t, ip, "netns", "del", namespace) }) // with it goes the pair
	address = fmt.Sprintf("10.213.%d.1", n)
	for _, line := range []string{
		"link add " + near + " type veth peer name far netns " + namespace,
		"addr add " + address + "/30 dev " + near,
		"link set " + near + " up",
		"-n " + namespace + " addr add " + fmt.Sprintf("10.213.%d.2/30", n) + " dev far",
		"-n " + namespace + " link set far up",
		"-n " + namespace + " link set lo up",
	} {
		command(t, ip, strings.Fields(line)...)
	}
	return namespace, address
}

// certificate makes a certificate for an address, which is its own authority.
func certificate(t *testing.T, address string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "e2e"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses:           []net.IP{net.ParseIP(address)},
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// Not parallel: trusting the server's certificate is a change of the client that
// all tests share.
func TestAnAgentBehindABadLinkLosesNothingRepeatsNothingAndKeepsTheOrder(t *testing.T) {
	namespace, address := farSite(t)
	cert, key := certificate(t, address)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	shared := browserless.Transport
	browserless.Transport = &http.Transport{MaxIdleConnsPerHost: 64, TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(func() { browserless.Transport = shared })

	tg := newTarget(t, nil)
	e := startEdge(
		t, "--listen", address+":0", "--tls-cert", cert, "--tls-key", key, "--heartbeat-interval", "1s",
		"--allow-private-targets",
	)
	e.route("all", tg.url+"/all")
	bad := newBadLink(t, address+":0", e.url)
	a := newAgent(t, "https://"+bad.ln.Addr().String(), "--ca", cert)
	a.namespace = namespace
	a.start()
	p := startPrograms(a, 4)
	a.online()
	p.more(200)
	caughtUp := func(what string) {
		t.Helper()
		a.online()
		want := p.acks.Load()
		eventually(t, "what was accepted before has been sent "+what, func() bool {
			s := a.status()
			return s != nil && s.Outbox.Forwarded >= want
		})
	}
	link := func(state string) { command(t, "ip", "-n", namespace, "link", "set", "far", state) }

	link("down")
	// A cut that nobody reports: what is under way hangs until it is given up.
	bad.cut()
	eventually(t, "the agent notices the cut", func() bool { return a.is(agentapi.LinkStateOffline) })
	p.more(300)
	link("up")
	caughtUp("after the cut")

	for range 6 {
		link("down")
		p.more(20)
		link("up")
		p.more(20)
	}
	caughtUp("after the flapping")

	bad.rate.Store(96 << 10)
	bad.delay.Store(int64(20 * time.Millisecond))
	bad.losses.Store(64 << 10)
	bad.cut()
	p.more(500)
	caughtUp("over a slow link that breaks all the time")
	bad.rate.Store(0)
	bad.delay.Store(0)
	bad.losses.Store(0)

	e.stop()
	p.more(100)
	e.start()
	caughtUp("after a restart of the server")
	for range 3 {
		e.kill()
		p.more(50)
		e.start()
		p.more(50)
	}
	caughtUp("after the server was killed")
	p.end()
	p.check(e, tg, "/all", false)
	if n := len(list[edgeapi.Site](e, "/sites")); n != 1 {
		t.Errorf("%d sites", n)
	}
	t.Logf("%d events", p.acks.Load())
}

func TestAnAgentAndAControlPlaneWhoseClocksDifferUnderstandEachOther(t *testing.T) {
	t.Parallel()
	e := startEdge(t, "--heartbeat-interval", "1s")
	behind, err := url.Parse(e.url())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	const shift = 400 * 24 * time.Hour
	proxy.ModifyResponse = func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/heartbeat") || r.StatusCode != http.StatusOK {
			return nil
		}
		var reply edgeapi.HeartbeatReply
		if err := json.NewDecoder(r.Body).Decode(&reply); err != nil {
			return err
		}
		reply.ServerTime = reply.ServerTime.Add(-shift)
		body, err := json.Marshal(reply)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
		r.Header.Set("Content-Length", fmt.Sprint(len(body)))
		return err
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	a := startAgent(t, server.URL)
	a.online()
	p := startPrograms(a, 2)
	p.more(50)
	p.end()
	p.check(e, nil, "", false)
	if skew := a.status().ClockSkewSeconds; skew == nil || *skew > -shift.Seconds()+60 || *skew < -shift.Seconds()-60 {
		t.Errorf("skew %v", skew)
	}
	code, output := run(t, nil, "agent", "status", "--data", a.data)
	if code != 0 || !strings.Contains(output, "-9600h") || !strings.Contains(output, "online") {
		t.Errorf("%d %s", code, output)
	}
}
