//go:build linux

package hypervisor_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

func TestBeyondLoopbackCredentialsAreNeeded(t *testing.T) {
	t.Parallel()
	const certificate = "[[auth.client_certificates]]\ncommon_name = \"ops\"\n"
	const oidc = "[auth.oidc]\nissuer = \"https://id.example.com\"\naudience = \"mainstay\"\n"
	for name, tt := range map[string]struct {
		listen, document string
		change           func(*hypervisor.Config)
		wrong            string // a part of the fault; empty: it starts
	}{
		"all addresses":          {":7070", "", nil, "set HYPERVISOR_TOKEN or HYPERVISOR_TOKEN_FILE"},
		"all IPv4 addresses":     {"0.0.0.0:7070", "", nil, "--insecure starts all the same"},
		"all IPv6 addresses":     {"[::]:7070", "", nil, "others reach [::]:7070"},
		"one address":            {"192.0.2.1:7070", "", nil, "others reach"},
		"a name":                 {"host.example:7070", "", nil, "others reach"},
		"loopback":               {"127.0.0.1:7070", "", nil, ""},
		"another loopback":       {"127.1.2.3:7070", "", nil, ""},
		"IPv6 loopback":          {"[::1]:7070", "", nil, ""},
		"localhost":              {"localhost:7070", "", nil, ""},
		"a token":                {":7070", "", func(c *hypervisor.Config) { c.Token = adminToken }, ""},
		"a token of the fleet":   {":7070", "", func(c *hypervisor.Config) { c.FleetToken = fleetToken }, ""},
		"tokens of the document": {":7070", usualDocument, nil, ""},
		"OIDC":                   {":7070", oidc, nil, ""},
		"client certificates":    {":7070", certificate, func(c *hypervisor.Config) { c.TLSSelfSigned, c.TLSClientCA = true, "ca.pem" }, ""},
		"insecure":               {":7070", "", func(c *hypervisor.Config) { c.Insecure = true }, ""},
		"a short token":          {"127.0.0.1:7070", "", func(c *hypervisor.Config) { c.Token = "x" }, "token: must have at least 16"},
		"a short fleet token":    {"127.0.0.1:7070", "", func(c *hypervisor.Config) { c.FleetToken = "short" }, "fleet-token: must have at least 16"},
		"a token with a space":   {"127.0.0.1:7070", "", func(c *hypervisor.Config) { c.Token = adminToken + " " }, "token: must be at most"},
	} {
		cfg := settings(t, t.TempDir(), tt.document)
		cfg.Listen, cfg.Token, cfg.FleetToken = tt.listen, "", ""
		if tt.change != nil {
			tt.change(&cfg)
		}
		document, err := configfile.Parse([]byte(tt.document))
		if err != nil {
			t.Fatal(err)
		}
		err = cfg.Validate(document)
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// logText is a log that is read while it is written.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// served is what a daemon that listens by itself says: its log, GET /v1/me and /metrics.
func served(t *testing.T, change func(*hypervisor.Config)) (log, me, metrics string) {
	t.Helper()
	cfg := settings(t, t.TempDir(), "")
	cfg.Token, cfg.FleetToken = "", ""
	change(&cfg)
	text := &logText{}
	svc, err := hypervisor.New(t.Context(), cfg, hypervisor.Deps{
		Log:      slog.New(slog.NewTextHandler(text, nil)),
		Registry: prometheus.NewRegistry(),
		Now:      time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- svc.Serve(ctx, func(url string) { ready <- url }) }()
	var url string
	select {
	case url = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	get := func(path string) string {
		res, err := http.Get(url + path)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		return string(body)
	}
	me, metrics = get("/v1/me"), get("/metrics")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := svc.Close(); err != nil {
		t.Error(err)
	}
	return text.String(), me, metrics
}

func TestADaemonThatIsOpenToEverybodySaysSoEverywhere(t *testing.T) {
	t.Parallel()
	log, me, metrics := served(t, func(c *hypervisor.Config) { c.Listen, c.Insecure = "0.0.0.0:0", true })
	for _, want := range []string{", all addresses", "level=WARN msg=\"everybody who reaches this daemon is an admin"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log:\n%s", want, log)
		}
	}
	if !strings.Contains(me, `"insecure":true`) || !strings.Contains(metrics, "\nhypervisor_insecure 1\n") {
		t.Errorf("%s\n%s", me, metrics)
	}
	log, me, metrics = served(t, func(c *hypervisor.Config) { c.Listen, c.Insecure = "127.0.0.1:0", true })
	if strings.Contains(log, "all addresses") || strings.Contains(log, "everybody") ||
		!strings.Contains(log, "msg=\"listening on 127.0.0.1:") {
		t.Errorf("on loopback: %s", log)
	}
	if !strings.Contains(me, `"insecure":false`) || !strings.Contains(metrics, "\nhypervisor_insecure 0\n") {
		t.Errorf("on loopback: %s\n%s", me, metrics)
	}
}

func TestWithoutCredentialsPagesOfOthersMayNotAsk(t *testing.T) {
	t.Parallel()
	d := start(t, "", func(cfg *hypervisor.Config) { cfg.Token, cfg.FleetToken = "", "" })
	host := strings.TrimPrefix(d.url, "http://")
	for name, tt := range map[string]struct {
		host, origin, site string
		want               int
	}{
		"a program":           {host, "", "", 200},
		"its console":         {host, d.url, "same-origin", 200},
		"another page":        {host, "https://evil.example", "cross-site", 403},
		"a sandboxed page":    {host, "null", "", 403},
		"an image":            {host, "", "cross-site", 403},
		"rebinding":           {"evil.example", "", "", 403},
		"rebinding by a page": {"evil.example", "http://evil.example", "same-origin", 403},
		"the host's name":     {"HOST:7070", "", "", 200},
	} {
		for method, path := range map[string]string{"GET": "/v1/me", "DELETE": "/v1/vms/none"} {
			req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = tt.host
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			if tt.site != "" {
				req.Header.Set("Sec-Fetch-Site", tt.site)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if answered := res.StatusCode != 403; answered != (tt.want == 200) {
				t.Errorf("%s: %s %s: %d", name, method, path, res.StatusCode)
			}
		}
	}
}

func TestCredentialsAreReloaded(t *testing.T) {
	t.Parallel()
	const fresh = "test-fresh-token-000000000000000001"
	text, reload := &logText{}, make(chan struct{})
	d := &daemon{T: t, cfg: settings(t, t.TempDir(), usualDocument)}
	var mu sync.Mutex
	now := d.cfg
	d.deps = func(deps *hypervisor.Deps) {
		deps.Log, deps.Reload = slog.New(slog.NewTextHandler(text, nil)), reload
		deps.Settings = func() (hypervisor.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			return now, nil
		}
	}
	d.begin()
	write := func(document string) {
		t.Helper()
		if err := os.WriteFile(d.cfg.ConfigFile, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		reload <- struct{}{}
		reload <- struct{}{} // the first one is done when the second is taken
	}
	me := func(token string, want int) {
		t.Helper()
		d.call("GET", "/v1/me", token, nil).Want(want)
	}
	me(acmeToken, 200)
	me(fresh, 401)
	write("[[auth.tokens]]\nname = \"new\"\nsha256 = \"" + auth.HashToken(fresh) + "\"\n")
	me(acmeToken, 401)
	me(fresh, 200)
	me(adminToken, 200)
	me(fleetToken, 200)
	if log := text.String(); !strings.Contains(log, "credentials are reloaded") ||
		strings.Contains(log, "takes a restart") {
		t.Errorf("%s", log)
	}

	// What is wrong changes nothing.
	write("[auth")
	me(fresh, 200)
	if log := text.String(); !strings.Contains(log, "nothing is reloaded") {
		t.Errorf("%s", log)
	}

	// The setting, and what takes a restart.
	mu.Lock()
	now.Token, now.StopGrace = fresh+"2", time.Minute
	mu.Unlock()
	write(usualDocument + "[policy]\nmax_vcpus = 1\n")
	me(acmeToken, 200)
	me(adminToken, 401)
	me(fresh+"2", 200)
	if log := text.String(); !strings.Contains(log, `changed="stop-grace, table policy"`) {
		t.Errorf("%s", log)
	}
	if me := contracttest.As[hypervisorapi.Me](d.call("GET", "/v1/me", fresh+"2", nil).Want(200)); !me.Admin || me.Insecure {
		t.Errorf("%+v", me)
	}
	mu.Lock()
	now.Token = adminToken
	mu.Unlock()
	write(usualDocument) // for the end of the test
	me(adminToken, 200)
}

func TestAReloadThatLeavesNoCredentialsIsRefused(t *testing.T) {
	t.Parallel()
	text, reload := &logText{}, make(chan struct{})
	d := &daemon{T: t, cfg: settings(t, t.TempDir(), usualDocument)}
	d.cfg.FleetToken = ""
	without := d.cfg
	without.Token, without.ConfigFile = "", filepath.Join(t.TempDir(), "empty.toml")
	if err := os.WriteFile(without.ConfigFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.deps = func(deps *hypervisor.Deps) {
		deps.Log, deps.Reload = slog.New(slog.NewTextHandler(text, nil)), reload
		deps.Settings = func() (hypervisor.Config, error) { return without, nil }
	}
	d.begin()
	reload <- struct{}{}
	reload <- struct{}{}
	d.call("GET", "/v1/me", "", nil).Want(401)
	d.call("GET", "/v1/me", adminToken, nil).Want(200)
	if log := text.String(); !strings.Contains(log, "no credentials would be left") {
		t.Errorf("%s", log)
	}
}

func TestASecondDaemonIsToldThatTheFirstHasTheData(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	svc, err := hypervisor.New(
		t.Context(), d.cfg, hypervisor.Deps{Log: discard, Registry: prometheus.NewRegistry(), Now: time.Now},
	)
	if err == nil {
		_ = svc.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "another process uses "+d.cfg.Data) ||
		strings.Contains(err.Error(), "PostgreSQL") {
		t.Errorf("%v", err)
	}
}
