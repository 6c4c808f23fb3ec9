package shell_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

type toyServer struct {
	*testing.T
	toys    *toys
	handler http.Handler
}

func start(t *testing.T, change ...func(*shell.Config[person])) *toyServer {
	t.Helper()
	service, err := newToys(slog.New(slog.DiscardHandler), func(c *shell.Config[person]) {
		for _, f := range change {
			f(c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &toyServer{t, service, service.shell.Handler()}
}

// ask sends a request. header alternates names and values.
func (s *toyServer) ask(method, path, token, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(s.Context(), method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func (s *toyServer) want(w *httptest.ResponseRecorder, status int, says string) {
	s.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), says) {
		s.Errorf("answered %d %s; want %d with %q", w.Code, w.Body, status, says)
	}
}

func TestAServiceInAHundredLinesHasEverything(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	s := start(t, func(c *shell.Config[person]) { c.Tracer = trace.NewTracerProvider(trace.WithSyncer(spans)) })
	for _, name := range []string{"ball", "car", "doll"} {
		s.want(s.ask("POST", "/v1/toys", "parent", `{"name":"`+name+`"}`), 201, "")
	}
	page := s.ask("GET", "/v1/toys", "child", "")
	s.want(page, 200, `["ball","car"]`)
	s.want(s.ask("GET", "/v1/toys?cursor="+rest.NextCursor(page.Header()), "child", ""), 200, `["doll"]`)
	s.want(s.ask("GET", "/v1/stream", "child", ""), 200, "a child")
	s.want(s.ask("GET", "/healthz", "", ""), 200, "ok\n")
	s.want(s.ask("GET", "/readyz", "", ""), 200, "ready: a wooden box\n")
	s.want(s.ask("GET", "/readyz?verbose", "", ""), 200, "[+] box ok a wooden box\nready\n")
	s.want(s.ask("GET", "/metrics", "", ""), 200, `route="GET /v1/toys",service="toys"} 2`)
	s.want(s.ask("GET", "/openapi.yaml", "", ""), 200, "title: Toys")
	s.want(s.ask("GET", "/docs/", "", ""), 200, "Toys")
	s.want(s.ask("GET", "/", "", ""), 302, "")
	s.want(s.ask("GET", "/nowhere", "", ""), 404, `"not_found"`)
	s.want(s.ask("DELETE", "/v1/toys", "parent", ""), 405, `"method_not_allowed"`)
	if n := len(spans.GetSpans()); n == 0 {
		t.Error("no request left a span")
	}
	if id := page.Header().Get("X-Request-Id"); id == "" {
		t.Errorf("no request id: %v", page.Header())
	}
}

func TestWhoMayNotCallLearnsNothingOfWhatIsValid(t *testing.T) {
	t.Parallel()
	s := start(t)
	const wrong = `{"nom": 1}`
	s.want(s.ask("POST", "/v1/toys", "", wrong), 401, `"unauthenticated"`)
	s.want(s.ask("POST", "/v1/toys", "child", wrong), 403, "a child may not do this")
	s.want(s.ask("POST", "/v1/toys", "parent", wrong), 400, `"invalid"`)
	s.want(s.ask("POST", "/v1/toys", "parent", `{"name":"`+strings.Repeat("x", 64)+`"}`), 413, `"too_large"`)
	if len(s.toys.names) != 0 {
		t.Errorf("%v", s.toys.names)
	}
}

func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		s.want(s.ask("POST", "/v1/toys", "parent", `{"name":"bomb"}`, header...), 403, `"browser"`)
	}
	s.want(s.ask("POST", "/v1/toys", "parent", `{"name":"ball"}`, "Sec-Fetch-Site", "same-origin"), 201, "")
	s.want(s.ask("GET", "/v1/toys", "parent", "", "Sec-Fetch-Site", "cross-site"), 200, `["ball"]`)
}

func TestAServiceThatIsNotReadySaysWhy(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.toys.broken = fault.New(fault.Unavailable, "the lid is stuck").WithCode("stuck")
	s.want(s.ask("GET", "/readyz", "", ""), 503, `"code":"stuck","message":"the lid is stuck"`)
	s.want(s.ask("GET", "/readyz?verbose", "", ""), 503, "[-] box failed: the lid is stuck\nnot ready\n")
	s.toys.broken = errors.New("open /var/lib/toys: no such file")
	w := s.ask("GET", "/readyz", "", "")
	s.want(w, 503, `"code":"not_ready","message":"the box does not work"`)
	if strings.Contains(w.Body.String(), "/var/lib") {
		t.Errorf("a path is told to everybody: %s", w.Body)
	}
	s.want(s.ask("GET", "/healthz", "", ""), 200, "ok")
}

func TestTheServicesOwnHooksStandWhereTheyShould(t *testing.T) {
	t.Parallel()
	var steps []string
	note := func(step string) func(*contract.Operation, http.Handler) http.Handler {
		return func(_ *contract.Operation, next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, known := shell.Caller[person](r.Context())
				if steps = append(steps, step); known {
					steps = append(steps, "known")
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	s := start(t, func(c *shell.Config[person]) { c.Around, c.Body = note("around"), note("body") })
	for _, c := range []struct{ token, body, want string }{
		{"", "{}", "around"},
		{"child", "{}", "around known"},
		{"parent", "{}", "around known body known"},
	} {
		steps = nil
		s.ask("POST", "/v1/toys", c.token, c.body)
		if got := strings.Join(steps, " "); got != c.want {
			t.Errorf("%q: %s; want %s", c.token, got, c.want)
		}
	}
}

func TestMetricsMayBeGuarded(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *shell.Config[person]) {
		c.GuardMetrics = true
		c.Admit = func(_ *http.Request, op *contract.Operation, p person) error {
			if op == shell.Metrics && p.class != "parent" {
				return fault.New(fault.Denied, "metrics are for parents")
			}
			return nil
		}
	})
	s.want(s.ask("GET", "/metrics", "", ""), 401, "who are you?")
	s.want(s.ask("GET", "/metrics", "child", ""), 403, "metrics are for parents")
	s.want(s.ask("GET", "/metrics", "parent", ""), 200, "go_goroutines")
	s.want(s.ask("GET", "/readyz", "", ""), 200, "ready")
}

func TestACheckThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(c *shell.Config[person]) {
			c.Ready = []shell.Check{{Name: "box", Run: func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", fault.Wrap(fault.Unavailable, ctx.Err(), "the box does not answer")
			}}}
		})
		s.want(s.ask("GET", "/readyz", "", ""), 503, "the box does not answer")
	})
}

func TestProbesAnswerOnAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.handler = s.toys.shell.Probes()
	s.want(s.ask("GET", "/readyz", "", ""), 200, "ready")
	s.want(s.ask("GET", "/metrics", "", ""), 200, "go_goroutines")
	s.want(s.ask("GET", "/v1/toys", "parent", ""), 404, "not_found")
}

func TestTheConsoleIsAtEveryPathThatNothingElseHas(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *shell.Config[person]) {
		c.Console = fstest.MapFS{"index.html": {Data: []byte("<title>Toys</title>")}}
	})
	s.want(s.ask("GET", "/some/page", "", "", "Accept", "text/html"), 200, "<title>Toys</title>")
	s.want(s.ask("GET", "/v1/toys", "child", ""), 200, "[]")
}

func TestAnOperationWithoutAHandlerIsADefect(t *testing.T) {
	t.Parallel()
	c, err := contract.Load(toyDocument, "/v1", access.Classes())
	if err != nil {
		t.Fatal(err)
	}
	s, err := shell.New(shell.Config[person]{
		Name:     "toys",
		Contract: c,
		Log:      slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(),
		Rates:    map[string]shell.Rate{"seldom": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "no handler for") {
			t.Errorf("%q", said)
		}
	}()
	s.Handler()
}

func TestACallerActsForWorkThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	if who, known := shell.Caller[person](t.Context()); known || who != (person{}) {
		t.Errorf("%+v", who)
	}
	ctx := shell.As(t.Context(), person{name: "the cat"})
	if who, known := shell.Caller[person](ctx); !known || who.name != "the cat" || shell.PeerOf(ctx) != (shell.Peer{}) {
		t.Errorf("%+v %v", who, known)
	}
}

func TestEachClassOfOperationsHasARateOfItsOwnForEachCaller(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := start(t, func(c *shell.Config[person]) {
		c.Rates = map[string]shell.Rate{"": {PerSecond: 1, Burst: 3}, "seldom": {PerSecond: 0.1, Burst: 1}}
		c.Whom = func(p person, _ shell.Peer) string {
			if p.name == "a parent" {
				return ""
			}
			return p.name
		}
		c.Now = func() time.Time { return now }
	})
	s.want(s.ask("GET", "/v1/stream", "child", ""), 200, "")
	refused := s.ask("GET", "/v1/stream", "child", "")
	s.want(refused, 429, `"too_many_requests"`)
	if got := refused.Header().Get("Retry-After"); got != "10" {
		t.Errorf("Retry-After is %q, want 10 s", got)
	}
	for range 3 {
		s.want(s.ask("GET", "/v1/toys", "child", ""), 200, "")
	}
	s.want(s.ask("GET", "/v1/toys", "child", ""), 429, "")
	for range 5 { // Whom counts no parent
		s.want(s.ask("GET", "/v1/toys", "parent", ""), 200, "")
	}
	for range 3 { // strangers are counted by their network
		s.want(s.ask("GET", "/v1/toys", "nobody", ""), 401, "")
	}
	s.want(s.ask("GET", "/v1/toys", "someone", ""), 429, "")
	now = now.Add(time.Second)
	s.want(s.ask("GET", "/v1/toys", "child", ""), 200, "")
	s.want(s.ask("GET", "/v1/stream", "child", ""), 429, "")
}

func TestAClassWithoutARateIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	_, err := newToys(slog.New(slog.DiscardHandler), func(c *shell.Config[person]) { c.Rates = nil })
	if err == nil || !strings.Contains(err.Error(), `x-rate "seldom"`) {
		t.Errorf("got %v; want an error that names the class", err)
	}
}
