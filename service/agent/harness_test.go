package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/agent"
	"github.com/mainstay-infra/mainstay/service/edge"
)

const (
	adminToken      = "admin-token-of-the-tests"
	enrollmentToken = "enrollment-token-of-the-tests"
)

// clock is the time of a test.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// plane is a real control plane, whose requests can be tampered with.
type plane struct {
	t     testing.TB
	url   string
	clock clock
	// tamper may answer a request in the control plane's place; true: it did.
	tamper atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func newPlane(t testing.TB, change ...func(*edge.Config)) *plane {
	t.Helper()
	p := &plane{t: t}
	var cfg edge.Config
	if err := config.Load(&cfg, "EDGE_TEST", config.Sources{}); err != nil {
		t.Fatal(err)
	}
	cfg.Data, cfg.AdminToken, cfg.EnrollmentToken, cfg.HeartbeatInterval = t.TempDir(), adminToken, enrollmentToken, time.Second
	for _, f := range change {
		f(&cfg)
	}
	service, err := edge.New(
		t.Context(), cfg,
		edge.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: p.clock.now},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := service.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	handler := service.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := p.tamper.Load(); f == nil || !(*f)(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		server.Close()
		stop()
		work.Wait()
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	p.url = server.URL
	return p
}

// get reads an object of the control plane as its admin.
func get[T any](p *plane, path string) T {
	p.t.Helper()
	return call[T](p, http.MethodGet, path, nil)
}

func call[T any](p *plane, method, path string, body any) (v T) {
	p.t.Helper()
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(body); err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+edgeapi.BasePath+path, &text)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode > 299 {
		p.t.Fatalf("%s %s: %d %v %s", method, path, res.StatusCode, err, raw)
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &v); err != nil {
			p.t.Fatal(err)
		}
	}
	return v
}

// eventIDs are the ids of the stored events, oldest first.
func (p *plane) eventIDs(query string) []string {
	p.t.Helper()
	events := get[[]edgeapi.Event](p, "/events?limit=1000"+query)
	ids := []string{}
	for i := len(events) - 1; i >= 0; i-- {
		ids = append(ids, events[i].EventId)
	}
	return ids
}

// site is an agent in this process, on a folder of its own.
type site struct {
	t     testing.TB
	cfg   agent.Config
	now   func() time.Time
	retry time.Duration // the shortest wait after a failed request; 0: as in production
	log   slog.Handler
	stop  func()
	local *agentapi.Client
	http  *http.Client
}

func newSite(t testing.TB, server string, change ...func(*agent.Config)) *site {
	t.Helper()
	s := &site{t: t, now: time.Now, log: slog.DiscardHandler}
	if err := config.Load(&s.cfg, "AGENT_TEST", config.Sources{}); err != nil {
		t.Fatal(err)
	}
	s.cfg.Server, s.cfg.Name, s.cfg.EnrollmentToken, s.cfg.Data = server, "site of the test", enrollmentToken, t.TempDir()
	s.cfg.Listen, s.cfg.PodmanSocket, s.cfg.RetryMax = "", "", time.Second
	for _, f := range change {
		f(&s.cfg)
	}
	return s
}

func (s *site) start() *site {
	s.t.Helper()
	a, err := agent.New(s.t.Context(), s.cfg, agent.Deps{
		Log:      slog.New(s.log),
		Registry: prometheus.NewRegistry(),
		Now:      s.now,
		RetryMin: s.retry,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- a.Serve(ctx, func([]string) { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		s.t.Fatal(err)
	}
	socket := filepath.Join(s.cfg.Data, agentapi.Socket)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	s.http = &http.Client{Transport: transport}
	if s.local, err = agentapi.NewClient(
		"http://localhost"+agentapi.BasePath,
		rest.WithHTTPClient(s.http),
	); err != nil {
		s.t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		if err := a.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
	return s
}

func (s *site) status() agentapi.Status {
	s.t.Helper()
	status, err := rest.Do[agentapi.Status](s.local.GetStatus(s.t.Context()))
	if err != nil {
		s.t.Fatalf("status: %v", err)
	}
	return status
}

func (s *site) send(id string) {
	s.t.Helper()
	in := agentapi.EventInput{EventId: &id, Topic: "t", Payload: json.RawMessage(`{"id":"` + id + `"}`)}
	if _, err := rest.Read(s.local.SendEvent(s.t.Context(), in)); err != nil {
		s.t.Fatalf("send %s: %v", id, err)
	}
}

// eventually waits for what the agent brings about; there is no signal for it.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func (s *site) online() {
	s.t.Helper()
	eventually(s.t, "a link", func() bool { return s.status().Link.State == agentapi.LinkStateOnline })
}
