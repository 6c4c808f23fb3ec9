package edge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/edge"
)

const (
	adminToken      = "test-admin-token-0123456789abcdef"
	viewerToken     = "test-viewer-token-0123456789abcdef"
	enrollmentToken = "test-enrollment-token-0123456789abcdef"
)

// control is a running control plane, talked to over HTTP as its users would.
// Every answer is held against the contract.
type control struct {
	*testing.T
	url      string
	recorder *contracttest.Recorder
	contract *contract.Contract
	skew     *atomic.Int64 // nanoseconds that the service's clock is ahead
	stop     func()
	service  *edge.Service
}

// maintain does all periodic work now.
func (c *control) maintain() {
	c.Helper()
	if err := c.service.Maintain(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// engines runs a test on a control plane on SQLite and on one on PostgreSQL.
func engines(t *testing.T, test func(c *control)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(start(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url := dbtest.PostgresURL(t)
		test(start(t, func(cfg *edge.Config) { cfg.Database = url }))
	})
}

// defaults are the settings of the tests.
func defaults(t testing.TB, dir string) edge.Config {
	t.Helper()
	var cfg edge.Config
	if err := config.Load(&cfg, edge.EnvPrefix, config.Sources{}); err != nil {
		t.Fatal(err)
	}
	cfg.Data, cfg.AdminToken, cfg.ViewerToken, cfg.EnrollmentToken = dir, adminToken, viewerToken, enrollmentToken
	cfg.AdminUsername, cfg.AdminPassword = "operator", "correct horse"
	cfg.AllowPrivateTargets = true
	return cfg
}

// deps is what a control plane needs besides its settings.
func deps(t *testing.T) edge.Deps {
	return edge.Deps{
		Log:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Registry: prometheus.NewRegistry(),
		Now:      time.Now,
	}
}

// start runs a control plane until the test ends.
func start(t *testing.T, change ...func(*edge.Config)) *control {
	t.Helper()
	return startAt(t, 0, change...)
}

// startAt is start with a clock that is ahead.
func startAt(t *testing.T, skew time.Duration, change ...func(*edge.Config)) *control {
	t.Helper()
	cfg := defaults(t, t.TempDir())
	for _, f := range change {
		f(&cfg)
	}
	c := &control{T: t, skew: new(atomic.Int64)}
	c.ahead(skew)
	d := deps(t)
	d.Now = func() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }
	svc, err := edge.New(t.Context(), cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	if c.contract, err = edge.Contract(); err != nil {
		t.Fatal(err)
	}
	c.recorder = contracttest.New(c.contract, edgeapi.BasePath)
	server := httptest.NewServer(c.recorder.Wrap(t, svc.Handler()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	c.url, c.service = server.URL, svc
	c.stop = sync.OnceFunc(func() {
		server.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := svc.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// ahead moves the service's clock.
func (c *control) ahead(d time.Duration) { c.skew.Add(int64(d)) }

type answer = contracttest.Answer

// call sends a request. body is as Request.Body has it.
func (c *control) call(method, path, token string, body any) answer {
	c.Helper()
	return c.callWith(method, path, token, body, nil)
}

func (c *control) callWith(method, path, token string, body any, header map[string]string) answer {
	c.Helper()
	return contracttest.Send(c, nil, contracttest.Request{
		Method: method, URL: c.url + edgeapi.BasePath + path, Token: token, Body: body, Header: header,
	})
}

func ptr(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// object is a JSON object under construction.
type object = map[string]any

// site enrolls a site and returns its id and agent token.
func (c *control) site(name, enrollment string) (id, token string) {
	c.Helper()
	e := contracttest.As[edgeapi.Enrollment](
		c.call("POST", "/enroll", "", object{"name": name, "enrollment_token": enrollment}).Want(200),
	)
	return e.SiteId, e.AgentToken
}

// org makes an org.
func (c *control) org(name string) edgeapi.NewOrg {
	c.Helper()
	return contracttest.As[edgeapi.NewOrg](c.call("POST", "/orgs", adminToken, object{"name": name}).Want(201))
}

// device registers a device.
func (c *control) device(token, id string) {
	c.Helper()
	c.call("POST", "/devices/register", token, object{"device_id": id, "name": id, "labels": object{"line": "a"}}).Want(
		201,
	)
}

// streamed is an event of the stream.
type streamed struct{ id, data string }

// follow reads the stream until the test ends. It returns once the stream has
// begun, so that what happens next is in it.
func (c *control) follow(token, lastEventID string) <-chan streamed {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), "GET", c.url+edgeapi.BasePath+"/stream", nil)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	if res.StatusCode != 200 {
		c.Fatalf("stream: %d", res.StatusCode)
	}
	c.Cleanup(func() { _ = res.Body.Close() })
	lines := make(chan streamed, 100)
	go func() {
		defer close(lines)
		var e streamed
		for scanner := bufio.NewScanner(res.Body); scanner.Scan(); {
			switch line := scanner.Text(); {
			case strings.HasPrefix(line, "id: "):
				e.id = line[4:]
			case strings.HasPrefix(line, "data: "):
				e.data = line[6:]
			case line == "" && e.data != "":
				lines <- e
				e = streamed{}
			}
		}
	}()
	return lines
}

// next is the next event of a stream.
func (c *control) next(stream <-chan streamed) streamed {
	c.Helper()
	select {
	case e, open := <-stream:
		if !open {
			c.Fatal("the stream has ended")
		}
		return e
	case <-time.After(time.Minute):
		c.Fatal("nothing comes over the stream")
		return streamed{}
	}
}

// eventually waits for a condition that the control plane brings about by itself.
func (c *control) eventually(what string, ok func() bool) {
	c.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			c.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // it is another process's doing, as far as the test can see
	}
}

// target is an HTTP target of a route that keeps what it gets.
type target struct {
	url string

	mu       sync.Mutex
	answer   func(n int, r *http.Request, body []byte) int
	requests []received
}

type received struct {
	header http.Header
	method string
	body   []byte
	event  struct {
		EventID string          `json:"event_id"`
		SiteID  string          `json:"site_id"`
		Topic   string          `json:"topic"`
		Payload json.RawMessage `json:"payload"`
	}
}

// newTarget answers with what answer says; nil means 200.
func newTarget(t *testing.T, answer func(n int, r *http.Request, body []byte) int) *target {
	t.Helper()
	tg := &target{answer: answer}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		tg.mu.Lock()
		got := received{header: r.Header.Clone(), method: r.Method, body: body}
		if err := json.Unmarshal(body, &got.event); err != nil {
			t.Errorf("target got %s: %v", body, err)
		}
		tg.requests = append(tg.requests, got)
		n, answer := len(tg.requests), tg.answer
		tg.mu.Unlock()
		status := http.StatusOK
		if answer != nil {
			status = answer(n, r, body)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "answer %d", status)
	}))
	t.Cleanup(server.Close)
	tg.url = server.URL + "/hook"
	return tg
}

func (tg *target) got() []received {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return append([]received(nil), tg.requests...)
}

// ids are the event ids that the target got, in order.
func (tg *target) ids() []string {
	var ids []string
	for _, r := range tg.got() {
		ids = append(ids, r.event.EventID)
	}
	return ids
}
