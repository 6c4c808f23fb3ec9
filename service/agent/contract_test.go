package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/fault"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/service/agent"
)

// handler is the local API of an agent without a link.
func handler(t testing.TB, change ...func(*agent.Config)) http.Handler {
	t.Helper()
	s := newSite(t, "http://127.0.0.1:1", change...)
	a, err := agent.New(
		t.Context(), s.cfg,
		agent.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		work.Wait()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a.Handler()
}

func request(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestEveryOperationAnswersAsTheContractSays(t *testing.T) {
	t.Parallel()
	c, err := agent.Contract()
	if err != nil {
		t.Fatal(err)
	}
	recorder := contracttest.New(c, agentapi.BasePath)
	h := recorder.Wrap(t, handler(t))
	many := `{"events":[` + strings.Repeat(`{"topic":"t","payload":1},`, 1000) + `{"topic":"t","payload":1}]}`
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/events", `{"topic":"a/b","payload":null,"event_id":"e1","headers":{"X-A":"b"},"event_time":"2026-01-02T03:04:05Z"}`, 202, `"duplicate":false`},
		{"POST", "/v1/events", `{"topic":"a/b","payload":{},"event_id":"e1"}`, 202, `"duplicate":true`},
		{"POST", "/v1/events", `{"topic":"a/b"}`, 400, `"field":"payload"`},
		{"POST", "/v1/events", `{"topic":5,"payload":1}`, 400, `"field":"topic"`},
		{"POST", "/v1/events", `{"topic":"a/b","payload":1,"event_time":"yesterday"}`, 400, `"invalid"`},
		{"POST", "/v1/events", `{"topic":"a/b","payload":1`, 400, `"invalid"`},
		{"POST", "/v1/events", ``, 400, `"invalid"`},
		{"POST", "/v1/events", `{"topic":"t","payload":1}{"topic":"u","payload":1}`, 400, `has more after its JSON`},
		{"POST", "/v1/events", `{"topic":"t","payload":1} garbage`, 400, `has more after its JSON`},
		{"POST", "/v1/events", `{"Topic":"t","payload":1}`, 400, `did you mean topic`},
		{"POST", "/v1/events", `{"topic":"t","topic":"u","payload":1}`, 400, `"field":"topic"`},
		{"POST", "/v1/events", `{"topic":"t","payload":{"a":1,"A":2,"a":3},"other":1}`, 202, `event_id`},
		{"POST", "/v1/events", "{\"topic\":\"a\xffb\",\"payload\":1}", 400, `not valid UTF-8`},
		{"POST", "/v1/events", `{"topic":"t","payload":1,"event_id":"\ud800"}`, 400, `"field":"event_id"`},
		{"POST", "/v1/events", `{"topic":"t","payload":1,"event_time":"0001-01-01T00:00:00+23:59"}`, 400, `"field":"event_time"`},
		{"POST", "/v1/events", `{"topic":"t","payload":1,"event_time":"9999-12-31T23:59:59-00:01"}`, 400, `"field":"event_time"`},
		{"POST", "/v1/events", `{"topic":"t","payload":1,"event_time":"9999-12-31T23:59:59Z"}`, 202, `event_id`},
		{"POST", "/v1/events/batch", `{"events":[{"topic":"t","payload":1},{"topic":"t","Payload":1}]}`, 400, `did you mean payload`},
		{"POST", "/v1/events/batch", `{"Events":[{"topic":"t","payload":1}]}`, 400, `did you mean events`},
		{"POST", "/v1/events/batch", `{"events":[{"topic":"t","payload":1}]}[]`, 400, `has more after its JSON`},
		{"PUT", "/v1/devices/pump-1", `{"MODEL":"` + strings.Repeat("x", 200) + `"}`, 400, `did you mean model`},
		{"POST", "/v1/events", `{"topic":"a/b","payload":"` + strings.Repeat("x", 1<<20) + `"}`, 413, `"too_large"`},
		{"POST", "/v1/events", `{"topic":"a/b","payload":"` + strings.Repeat("x", 2<<20) + `"}`, 413, `"too_large"`},
		{"POST", "/v1/events/batch", `{"events":[{"topic":"t","payload":1},{"topic":"t","payload":"<&>"}]}`, 202, `[{`},
		{"POST", "/v1/events/batch", `{"events":[{"topic":"t","payload":1},{"topic":"","payload":1}]}`, 400, `"field":"events.1.topic"`},
		{"POST", "/v1/events/batch", `{"events":[null]}`, 400, `"field":"events.0.topic"`},
		{"POST", "/v1/events/batch", `{"events":[]}`, 400, `"field":"events"`},
		{"POST", "/v1/events/batch", many, 400, `"field":"events"`},
		{"PUT", "/v1/devices/pump-1", `{"model":"P","labels":{"a":"b"},"extra":1}`, 202, ``},
		{"PUT", "/v1/devices/pump-2", `{}`, 202, ``},
		{"PUT", "/v1/devices/-", `{}`, 400, `"field":"device"`},
		{"PUT", "/v1/devices/pump-1", `{"model":1}`, 400, `"field":"model"`},
		{"PUT", "/v1/devices/pump-1", `{"name":"a\u0007"}`, 400, `"field":"name"`},
		{"GET", "/v1/twins?limit=1", ``, 200, `"pump-1"`},
		{"GET", "/v1/twins?limit=0", ``, 400, `"field":"limit"`},
		{"GET", "/v1/twins?cursor=%00", ``, 400, `"field":"cursor"`},
		{"GET", "/v1/twins/pump-1", ``, 200, `"pending":true`},
		{"GET", "/v1/twins/nobody", ``, 404, `"not_found"`},
		{"PATCH", "/v1/twins/pump-1/reported", `{"a":{"b":null}}`, 202, ``},
		{"PATCH", "/v1/twins/nobody/reported", `{}`, 404, `"not_found"`},
		{"PATCH", "/v1/twins/pump-1/reported", `[]`, 400, `"invalid"`},
		{"PATCH", "/v1/twins/pump-1/reported", `{"a":1}{"b":2}`, 400, `has more after its JSON`},
		{"PATCH", "/v1/twins/pump-1/reported", "{\"a\":\"\xff\"}", 400, `not valid UTF-8`},
		{"PATCH", "/v1/twins/pump-1/reported", `{"a":"` + strings.Repeat("x", 33<<10) + `"}`, 413, `"too_large"`},
		{"GET", "/v1/events/refused?limit=1", ``, 200, `[]`},
		{"GET", "/v1/events/refused?limit=0", ``, 400, `"field":"limit"`},
		{"GET", "/v1/events/refused?cursor=eA", ``, 400, `"field":"cursor"`},
		{"POST", "/v1/events/refused/retry", `{"all":true}`, 200, `"events":0`},
		{"POST", "/v1/events/refused/retry", `{}`, 400, `"field":"event_ids"`},
		{"POST", "/v1/events/refused/retry", `{"all":true,"event_ids":["a"]}`, 400, `"field":"event_ids"`},
		{"POST", "/v1/events/refused/retry", `{"event_ids":["a"]}`, 404, `"not_found"`},
		{"POST", "/v1/events/refused/discard", `{"all":true}`, 200, `"events":0`},
		{"POST", "/v1/events/refused/discard", `{"event_ids":["a"]}`, 404, `"not_found"`},
		{"POST", "/v1/events/refused/discard", `{"event_ids":[]}`, 400, `"field":"event_ids"`},
		{"GET", "/v1/status", ``, 200, `"enrolling"`},
	} {
		w := request(h, c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %.80s: %d %.300s", c.method, c.path, c.body, w.Code, w.Body)
		}
	}
	for _, missing := range recorder.Missing(agent.AccessLocal, "") {
		t.Error(missing)
	}
	for path, status := range map[string]int{"/healthz": 200, "/metrics": 200, "/openapi.yaml": 200, "/docs/": 200, "/v1/nothing": 404} {
		if w := request(h, "GET", path, ""); w.Code != status {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := request(h, "DELETE", "/v1/twins", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE /v1/twins: %d", w.Code)
	}
}

func TestWebPagesAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	h := handler(t)
	for _, path := range []string{"/v1/status", "/v1/twins", "/metrics", "/healthz", "/docs/"} {
		for _, origin := range []string{"https://evil.example", "http://localhost:8081", "null", ""} {
			if w := request(h, "GET", path, "", "Origin", origin); w.Code != http.StatusForbidden ||
				!strings.Contains(w.Body.String(), "browser") {
				t.Errorf("%s with Origin %q: %d", path, origin, w.Code)
			}
		}
	}
	if w := request(
		h,
		"POST",
		"/v1/events",
		`{"topic":"t","payload":1}`,
		"Origin",
		"null",
	); w.Code != http.StatusForbidden {
		t.Errorf("an event of a web page: %d", w.Code)
	}
}

func TestTheLoopbackAddressAnswersToNamesOfThisMachineOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, "http://127.0.0.1:1", func(c *agent.Config) { c.Listen = "127.0.0.1:0" })
	a, err := agent.New(
		t.Context(), s.cfg,
		agent.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	at, done := make(chan []string, 1), make(chan error, 1)
	go func() { done <- a.Serve(ctx, func(names []string) { at <- names }) }()
	names := <-at
	for host, status := range map[string]int{"localhost": 200, "LOCALHOST:1234": 200, "127.0.0.1:8081": 200, "127.5.5.5": 200, "[::1]:80": 200, "edge.localhost": 200,
		"evil.example": 403, "localhost.evil.example": 403, "10.0.0.1": 403, "0.0.0.0": 403, "127.0.0.1.evil.example": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, names[1]+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body) // only the status counts
		_ = res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("Host %s: %d, want %d", host, res.StatusCode, status)
		}
	}
	info, err := os.Stat(filepath.Join(s.cfg.Data, agentapi.Socket))
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestSettingsThatWouldBeUnsafeOrMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*agent.Config)
		field  string
	}{
		"no server":                 {func(c *agent.Config) { c.Server = "" }, "server"},
		"no URL":                    {func(c *agent.Config) { c.Server = "edge.example.com" }, "server"},
		"secret in the URL":         {func(c *agent.Config) { c.Server = "https://u:p@edge.example.com" }, "server"},
		"plain HTTP":                {func(c *agent.Config) { c.Server = "http://edge.example.com" }, "server"},
		"open API":                  {func(c *agent.Config) { c.Listen = "0.0.0.0:8081" }, "listen"},
		"open API, no host":         {func(c *agent.Config) { c.Listen = ":8081" }, "listen"},
		"no address":                {func(c *agent.Config) { c.Listen = "localhost" }, "listen"},
		"full":                      {func(c *agent.Config) { c.OutboxFull = "panic" }, "outbox-full"},
		"name":                      {func(c *agent.Config) { c.Name = strings.Repeat("x", 129) }, "name"},
		"newline in the name":       {func(c *agent.Config) { c.Name = "oslo\n1" }, "name"},
		"escape in the name":        {func(c *agent.Config) { c.Name = "\x1b[31moslo" }, "name"},
		"relative socket of Podman": {func(c *agent.Config) { c.PodmanSocket = "podman.sock" }, "podman-socket"},
		"missing hook":              {func(c *agent.Config) { c.OTAHook = filepath.Join(c.Data, "nothing") }, "ota-hook"},
		"relative hook":             {func(c *agent.Config) { c.OTAHook = "hook.sh" }, "ota-hook"},
		"hook is a folder":          {func(c *agent.Config) { c.OTAHook = c.Data }, "ota-hook"},
		"no token":                  {func(c *agent.Config) { c.EnrollmentToken = "" }, "enrollment-token"},
		"authority missing":         {func(c *agent.Config) { c.CA = "/does/not/exist" }, "ca"},
		"damaged identity":          {func(c *agent.Config) { write(t, c.Data, `{"site_id":`) }, ""},
		"identity of nobody":        {func(c *agent.Config) { write(t, c.Data, `{}`) }, ""},
		"key of another": {func(c *agent.Config) {
			write(t, c.Data, `{"site_id":"s","agent_token":"t","certificate_pem":"x","key_pem":"y"}`)
		}, ""},
	} {
		s := newSite(t, "http://127.0.0.1:1", c.change)
		a, err := agent.New(
			t.Context(), s.cfg,
			agent.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
		)
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Field != c.field {
			t.Errorf("%s: %v", name, err)
			if a != nil {
				_ = a.Close() // the test has failed already
			}
		}
	}
}

func write(t testing.TB, dir, identity string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "identity.json"), []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestASecondAgentOnTheSameFolderIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, "http://127.0.0.1:1").start()
	_, err := agent.New(
		t.Context(), s.cfg,
		agent.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
	)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
	s.send("e") // the first is none the worse
}

func TestTheDoctorNamesWhatIsWrongAndWhatToDo(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(t, p.url)
	verdicts := func(now func() time.Time) map[string]agent.Check {
		checks := map[string]agent.Check{}
		for _, c := range agent.Diagnose(t.Context(), s.cfg, now) {
			checks[c.Name] = c
			if (c.Verdict == agent.Good) != (c.Next == "") {
				t.Errorf("%+v", c)
			}
		}
		return checks
	}
	for name, c := range verdicts(time.Now) {
		if c.Verdict == agent.Problem {
			t.Errorf("%s: %+v", name, c)
		}
	}
	hook := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(hook, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.cfg.EnrollmentToken, s.cfg.OTAHook, s.cfg.PodmanSocket, s.cfg.OutboxMaxSize = "", hook, "/does/not/exist", 1<<60
	checks := verdicts(func() time.Time { return time.Now().Add(-time.Hour) })
	for name, want := range map[string]agent.Verdict{"identity": agent.Problem, "update hook": agent.Problem, "podman": agent.Warning, "disk space": agent.Warning, "clock": agent.Warning, "control plane": agent.Good} {
		if checks[name].Verdict != want {
			t.Errorf("%s: %+v", name, checks[name])
		}
	}
	s.cfg.Server = "https" + strings.TrimPrefix(p.url, "http")
	if c := verdicts(time.Now)["control plane"]; c.Verdict != agent.Problem {
		t.Errorf("%+v", c)
	}
	s.cfg.Server = "x"
	if c := verdicts(time.Now)["settings"]; c.Verdict != agent.Problem || !strings.Contains(c.Detail, "server") {
		t.Errorf("%+v", c)
	}
}

func TestAServerWhoseAuthorityIsUnknownIsNotTalkedTo(t *testing.T) {
	t.Parallel()
	var asked sync.Map
	server := httptest.NewTLSServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.Store(r.URL.Path, true) }),
	)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(server.Close)
	s := newSite(t, server.URL).start()
	eventually(t, "the reason is told", func() bool { return strings.Contains(s.status().Link.LastError, "--ca") })
	asked.Range(func(path, _ any) bool { t.Errorf("it asked for %v", path); return true })
	if c := fmt.Sprint(agent.Diagnose(t.Context(), s.cfg, time.Now)); !strings.Contains(c, "--ca") {
		t.Errorf("the doctor: %s", c)
	}
}
