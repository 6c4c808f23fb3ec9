package httpserve_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

func TestRequestIDKeepsASaneInboundIDAndReplacesOthers(t *testing.T) {
	t.Parallel()
	var seen string
	h := httpserve.RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = httpserve.RequestIDFrom(r.Context())
	}))
	for in, keep := range map[string]bool{
		"abc-1.2_X": true, "": false, "a b": false, "a\nb": false, strings.Repeat("a", 65): false, strings.Repeat("a", 64): true, "é": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Request-ID", in)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (seen == in) != keep {
			t.Errorf("inbound %q became %q", in, seen)
		}
		if !keep && len(seen) != 32 {
			t.Errorf("generated id %q", seen)
		}
		if got := w.Header().Get("X-Request-ID"); got != seen {
			t.Errorf("header %q, context %q", got, seen)
		}
	}
	if httpserve.RequestIDFrom(context.Background()) != "" {
		t.Error("an id without a request")
	}
}

func TestGeneratedRequestIDsDiffer(t *testing.T) {
	t.Parallel()
	h := httpserve.RequestID(http.NotFoundHandler())
	seen := map[string]bool{}
	for range 1000 {
		id := call(h, "GET", "/").Header().Get("X-Request-ID")
		if seen[id] {
			t.Fatalf("%s twice", id)
		}
		seen[id] = true
	}
}

func TestRecoverRendersAnInternalFaultAndLogsTheStack(t *testing.T) {
	t.Parallel()
	log, out := newLog()
	h := httpserve.Chain(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret detail") }),
		httpserve.RequestID, httpserve.Recover(httpserve.JSONErrors(log, problem.Nested), log))
	w := call(h, "GET", "/")
	e := decodeError(t, w)
	if w.Code != 500 || e.Error.Code != "internal" || e.Error.RequestID == "" ||
		strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, want := range []string{"secret detail", "middleware_test.go", e.Error.RequestID} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log lacks %q", want)
		}
	}
}

func TestAPanicAfterTheHeaderAbortsTheConnection(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"panic after header": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "half"); panic("x") },
		"ErrAbortHandler":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("%s: panic value %v", name, p)
				}
			}()
			call(httpserve.Recover(httpserve.JSONErrors(quiet(), problem.Nested), quiet())(handler), "GET", "/")
		}()
	}
}

func TestAccessLogShowsWhatItsModeSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   httpserve.LogMode
		status int
		level  string // empty: no line
	}{
		{httpserve.LogErrors, 200, ""}, {httpserve.LogErrors, 404, "INFO"}, {httpserve.LogErrors, 503, "WARN"}, {"", 404, "INFO"},
		{httpserve.LogAll, 200, "INFO"}, {httpserve.LogAll, 500, "WARN"}, {httpserve.LogOff, 500, ""},
	} {
		log, out := newLog()
		h := httpserve.AccessLog(log, c.mode)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, "12345")
		}))
		call(h, "GET", "/a?token=secret")
		got := out.String()
		if c.level == "" != (got == "") || !strings.Contains(got, c.level) {
			t.Errorf("%+v: %q", c, got)
		}
		if strings.Contains(got, "secret") {
			t.Errorf("the query was logged: %s", got)
		}
		if got != "" && !strings.Contains(got, "bytes=5") {
			t.Errorf("bytes missing: %s", got)
		}
	}
}

func TestAccessLogShowsSlowRequestsButNotStreams(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, out := newLog()
			h := httpserve.AccessLog(log, httpserve.LogErrors)(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if stream {
						s, err := httpserve.NewEventStream(w, r, 0)
						if err != nil {
							t.Fatal(err)
						}
						defer s.Close()
					}
					time.Sleep(2 * time.Second) // of the bubble's clock
				}),
			)
			call(h, "GET", "/")
			if logged := strings.Contains(out.String(), "duration=2s"); logged == stream {
				t.Errorf("stream %v: %q", stream, out)
			}
		})
	}
}

func TestParseLogModeRefusesOtherWords(t *testing.T) {
	t.Parallel()
	if m, err := httpserve.ParseLogMode(""); m != httpserve.LogErrors || err != nil {
		t.Error(m, err)
	}
	if m, err := httpserve.ParseLogMode("all"); m != httpserve.LogAll || err != nil {
		t.Error(m, err)
	}
	if _, err := httpserve.ParseLogMode("debug"); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

func TestAPanicIsCountedAndLoggedAs500WhateverTheOrder(t *testing.T) {
	t.Parallel()
	log, out := newLog()
	reg := prometheus.NewRegistry()
	h := httpserve.Chain(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("x") }),
		httpserve.Recover(httpserve.JSONErrors(quiet(), problem.Nested), quiet()), httpserve.AccessLog(log, ""),
		httpserve.Metrics(reg, "s"),
	)
	call(h, "GET", "/")
	if !strings.Contains(out.String(), "status=500") {
		t.Error(out)
	}
	if n := testutil.ToFloat64(collector{reg, "http_requests_total"}); n != 1 {
		t.Errorf("requests = %v", n)
	}
	if n := testutil.ToFloat64(collector{reg, "http_in_flight"}); n != 0 {
		t.Errorf("in flight = %v", n)
	}
}

func TestMetricsUseTheRouteOfTheInnerRequest(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	render := httpserve.JSONErrors(quiet(), problem.Nested)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sites/{id}", func(w http.ResponseWriter, r *http.Request) {
		if got := httpserve.RouteFrom(r.Context()); got != "GET /v1/sites/{id}" {
			t.Errorf("RouteFrom = %q", got)
		}
	})
	mux.HandleFunc("/tree/{x}/", func(http.ResponseWriter, *http.Request) {})
	type key struct{}
	copying := func(next http.Handler) http.Handler { // hides the request that the mux marks
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, 1)))
		})
	}
	h := httpserve.Chain(httpserve.Mux(mux, render), httpserve.Metrics(reg, "demo"), copying)
	call(h, "GET", "/v1/sites/7")
	call(h, "GET", "/v1/sites/8")
	call(h, "POST", "/v1/sites/8")
	call(h, "GET", "/made/up/by/a/client")
	call(h, "BREW", "/made/up")
	connect := httptest.NewRequest("CONNECT", "/tree/made-up", nil)
	h.ServeHTTP(httptest.NewRecorder(), connect)
	want := `
# HELP http_requests_total HTTP requests answered.
# TYPE http_requests_total counter
http_requests_total{code="200",method="GET",route="GET /v1/sites/{id}",service="demo"} 2
http_requests_total{code="307",method="CONNECT",route="unmatched",service="demo"} 1
http_requests_total{code="404",method="GET",route="unmatched",service="demo"} 1
http_requests_total{code="404",method="OTHER",route="unmatched",service="demo"} 1
http_requests_total{code="405",method="POST",route="unmatched",service="demo"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "http_requests_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "http_request_duration_seconds"); n != 2 || err != nil {
		t.Errorf("%d histograms, %v", n, err)
	}
}

func TestMetricsOfOneServiceMayBeMadeTwice(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 {
		call(httpserve.Metrics(reg, "s")(http.NotFoundHandler()), "GET", "/")
	}
	if n := testutil.ToFloat64(collector{reg, "http_requests_total"}); n != 2 {
		t.Errorf("requests = %v", n)
	}
}

// collector shows one metric family of a registry to testutil.
type collector struct {
	reg  *prometheus.Registry
	name string
}

func (c collector) Describe(chan<- *prometheus.Desc) {}
func (c collector) Collect(ch chan<- prometheus.Metric) {
	families, _ := c.reg.Gather()
	for _, f := range families {
		if f.GetName() == c.name {
			for _, m := range f.GetMetric() {
				v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
				ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(c.name, "", nil, nil), prometheus.UntypedValue, v)
			}
		}
	}
}

func TestMuxRendersUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "own", 404) })
	mux.HandleFunc("PUT /a", func(http.ResponseWriter, *http.Request) {})
	render := httpserve.JSONErrors(quiet(), problem.Nested)
	bare := httpserve.Mux(mux, render)
	for name, h := range map[string]http.Handler{
		"bare":  bare,
		"chain": httpserve.RequestID(bare),
		"foreign wrapper": httpserve.Chain(bare, httpserve.RequestID, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&onceWriter{ResponseWriter: w}, r) })
		}),
	} {
		if w := call(h, "GET", "/b"); w.Code != 404 || decodeError(t, w).Error.Code != "not_found" {
			t.Errorf("%s: unknown path: %d %s", name, w.Code, w.Body)
		}
		w := call(h, "POST", "/a")
		if w.Code != 405 || decodeError(t, w).Error.Code != "method_not_allowed" ||
			w.Header().Get("Allow") != "GET, HEAD, PUT" {
			t.Errorf("%s: wrong method: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
		if w := call(h, "GET", "/a"); w.Body.String() != "own\n" {
			t.Errorf("%s: a handler's own 404 was replaced: %s", name, w.Body)
		}
		if w := call(h, "GET", "//a"); w.Code != 307 {
			t.Errorf("%s: cleaning redirect: %d", name, w.Code)
		}
		r := httptest.NewRequest("OPTIONS", "/", nil)
		r.RequestURI = "*"
		star := httptest.NewRecorder()
		h.ServeHTTP(star, r)
		if star.Code != 400 || decodeError(t, star).Error.Code != "invalid" {
			t.Errorf("%s: asterisk form: %d %s", name, star.Code, star.Body)
		}
	}
}

// onceWriter passes on only the first header, like instrumentation libraries.
type onceWriter struct {
	http.ResponseWriter
	wrote bool
}

func (w *onceWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote = true
		w.ResponseWriter.WriteHeader(status)
	}
}

func TestNestedMuxesShareTheErrorBodyAndTheInnerRoute(t *testing.T) {
	t.Parallel()
	render := httpserve.JSONErrors(quiet(), problem.Nested)
	inner, outer := http.NewServeMux(), http.NewServeMux()
	var route string
	inner.HandleFunc("/in/x", func(w http.ResponseWriter, r *http.Request) { route = httpserve.RouteFrom(r.Context()) })
	outer.Handle("/in/", httpserve.Mux(inner, render))
	h := httpserve.RequestID(httpserve.Mux(outer, render))
	if call(h, "GET", "/in/x"); route != "/in/x" {
		t.Errorf("route %q", route)
	}
	for _, path := range []string{"/in/y", "/out"} {
		if w := call(h, "GET", path); w.Code != 404 || decodeError(t, w).Error.RequestID == "" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestMiddlewaresInsideABareMuxStillShareTheirRecord(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	var id, route string
	mux.Handle("/x", httpserve.RequestID(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id, route = httpserve.RequestIDFrom(r.Context()), httpserve.RouteFrom(r.Context())
	})))
	call(httpserve.Mux(mux, httpserve.JSONErrors(quiet(), problem.Nested)), "GET", "/x")
	if id == "" || route != "/x" {
		t.Errorf("id %q, route %q", id, route)
	}
}

func TestOverloadIsRefusedWithRetryAfter(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	h := httpserve.LimitInFlight(1, httpserve.JSONErrors(quiet(), problem.Nested))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-leave
		}),
	)
	first := make(chan int)
	go func() { first <- call(h, "GET", "/").Code }()
	<-entered
	if w := call(h, "GET", "/"); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	leave <- struct{}{}
	if code := <-first; code != 200 {
		t.Errorf("first: %d", code)
	}
	go func() { <-entered; leave <- struct{}{} }()
	if w := call(h, "GET", "/"); w.Code != 200 {
		t.Errorf("after the first ended: %d", w.Code)
	}
}

func TestRateLimitIsPerKeyAndRecoversWithTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	h := httpserve.RateLimit(httpserve.RateLimits{
		Rate: 0.5, Burst: 2, MaxKeys: 2, Now: func() time.Time { return now },
		Key: func(r *http.Request) string { return r.URL.Query().Get("k") },
	}, httpserve.JSONErrors(quiet(), problem.Nested))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	codes := func(keys ...string) (got []int) {
		for _, k := range keys {
			got = append(got, call(h, "GET", "/?k="+k).Code)
		}
		return got
	}
	check := func(what string, got []int, want ...int) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
				return
			}
		}
	}
	check("burst", codes("a", "a", "a", "b"), 200, 200, 429, 200)
	if w := call(h, "GET", "/?k=a"); w.Header().Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
	}
	now = now.Add(2 * time.Second)
	check("one token later", codes("a", "a"), 200, 429)
	check("no key", codes("", "", "", ""), 200, 200, 200, 200)
	check("a third key displaces b, not a", codes("c", "c", "c", "a"), 200, 200, 429, 429)
}

func TestRemoteIPHasNoPort(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"10.0.0.1:99": "10.0.0.1", "[::1]:99": "::1", "pipe": "pipe"} {
		if got := httpserve.RemoteIP(&http.Request{RemoteAddr: addr}); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

func TestTheWriterKeepsTheServersAbilities(t *testing.T) {
	t.Parallel()
	flushed := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.(http.Flusher).Flush()
		<-flushed
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, strings.NewReader("rest")); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n")
		_ = rw.Flush()
	})
	log, out := newLog()
	logged := make(chan struct{}, 2) // a drain does not wait for hijacked connections
	signal := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			logged <- struct{}{}
		})
	}
	h := httpserve.Chain(mux, signal, httpserve.AccessLog(log, httpserve.LogAll), httpserve.RequestID)
	s, stop := running(t, httpserve.Config{}, h)
	resp, err := http.Get(s.URL() + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	close(flushed) // the header has arrived before the body was written
	body, err := bufio.NewReader(resp.Body).ReadString(0)
	resp.Body.Close()
	if body != "rest" || !errors.Is(err, io.EOF) {
		t.Errorf("%q %v", body, err)
	}
	resp, err = http.Get(s.URL() + "/hijack")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 418 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	<-logged
	<-logged
	for _, want := range []string{"status=200 bytes=4", "status=101"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, out)
		}
	}
}

// BenchmarkChain measures the cost of all middlewares around a handler that does nothing. The
// budget is 1 µs.
func BenchmarkChain(b *testing.B) {
	log, render := quiet(), httpserve.JSONErrors(quiet(), problem.Nested)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/ingest", func(http.ResponseWriter, *http.Request) {})
	for name, inner := range map[string]http.Handler{
		"noop":      http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"mux":       httpserve.Mux(mux, render),
		"plain mux": mux,
	} {
		h := inner
		if name != "plain mux" {
			h = httpserve.Chain(inner, httpserve.RequestID, httpserve.Recover(render, log),
				httpserve.AccessLog(log, httpserve.LogErrors), httpserve.Metrics(prometheus.NewRegistry(), "bench"),
				httpserve.LimitInFlight(4096, render))
		}
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/v1/ingest", nil)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
