package session_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
)

// clock is a clock that is set manually.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// service is a service with sessions. Its tokens are names, and "/whoami" answers with the name.
type service struct {
	handler http.Handler
	clock   *clock
	revoked map[string]bool // tokens
	expires time.Time       // of all credentials; zero: never
	events  []string
}

func newService(t *testing.T, change func(*session.Config)) *service {
	t.Helper()
	s := &service{clock: &clock{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}, revoked: map[string]bool{}}
	sealer, err := auth.NewSealer([]byte(strings.Repeat("k", 32)), "console sessions")
	if err != nil {
		t.Fatal(err)
	}
	cfg := session.Config{
		Service: "toys", Title: "Toys", Sealer: sealer, Ended: session.InMemory(s.clock.now), Now: s.clock.now, Log: slog.New(slog.DiscardHandler),
		Password: func(_ context.Context, given session.Login) (string, error) {
			if given.Username != "ann" || given.Password != "secret" {
				return "", fault.New(fault.Unauthenticated, "unknown username or wrong password")
			}
			return "ann-by-password", nil
		},
		SignedIn: func(ctx context.Context, how string) error {
			s.events = append(s.events, nameIn(ctx)+" in by "+how)
			return nil
		},
		SignedOut: func(ctx context.Context) error {
			s.events = append(s.events, nameIn(ctx)+" out")
			return nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	m := session.New(cfg)
	mux := http.NewServeMux()
	fail := func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, fault.From(err).Message, fault.From(err).Kind.HTTPStatus())
	}
	m.Routes(mux.Handle, s.identify, fail, func(next http.Handler) http.Handler { return next })
	mux.HandleFunc("/whoami", func(w http.ResponseWriter, r *http.Request) {
		attached, over := m.Attach(r)
		_, who, err := s.identify(attached)
		if over != nil {
			err = over
		}
		if err != nil {
			fail(w, r, err)
			return
		}
		_, _ = io.WriteString(w, who.Name+attached.Header.Get("Cookie"))
	})
	mux.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) {
		attached, _ := m.Attach(r)
		<-attached.Context().Done()
	})
	s.handler = mux
	return s
}

type nameKey struct{}

func nameIn(ctx context.Context) string { name, _ := ctx.Value(nameKey{}).(string); return name }

func (s *service) identify(r *http.Request) (context.Context, session.Who, error) {
	name, ok := auth.Bearer(r)
	if id, signedOn := session.IdentityFrom(r.Context()); signedOn {
		name, ok = id.Email, true
	}
	if !ok || s.revoked[name] {
		return nil, session.Who{}, fault.New(fault.Unauthenticated, "who are you?")
	}
	role, _, _ := strings.Cut(name, "-")
	return context.WithValue(r.Context(), nameKey{}, name), session.Who{Name: name, Role: role, Expires: s.expires}, nil
}

// browser sends requests as a page of the console does, and keeps cookies.
type browser struct {
	t       *testing.T
	s       *service
	host    string
	cookies map[string]string
}

func (s *service) browser(t *testing.T) *browser {
	return &browser{t, s, "127.0.0.1:8080", map[string]string{}}
}

func (b *browser) send(method, path, body string, change ...func(*http.Request)) *http.Response {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, "http://"+b.host+path, strings.NewReader(body))
	r.Header.Set(session.Header, "toys")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	b.s.handler.ServeHTTP(w, r)
	answer := w.Result()
	for _, c := range answer.Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return answer
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// want fails the test unless a response has the status, and a text that contains part.
func want(t *testing.T, r *http.Response, status int, part string) {
	t.Helper()
	if got := text(t, r); r.StatusCode != status || !strings.Contains(got, part) {
		t.Errorf("%d %q, want %d and %q", r.StatusCode, got, status, part)
	}
}

// session adds the browser's session to a request to another host.
func (b *browser) session(host string) func(*http.Request) {
	return func(r *http.Request) {
		_, port, _ := net.SplitHostPort(host)
		r.AddCookie(&http.Cookie{Name: "mainstay_toys_" + port, Value: b.cookies["mainstay_toys_8080"]})
	}
}

func (b *browser) signIn(body string) *http.Response {
	b.t.Helper()
	return b.send("POST", "/console/session", body)
}

func TestASessionActsWithTheCredentialsThatOpenedIt(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	b := s.browser(t)
	want(t, b.send("GET", "/console/session", ""), 200, `"signed_in":false,"over":false`)
	in := b.signIn(`{"username":"ann","password":"secret"}`)
	want(t, in, 204, "")
	if len(in.Cookies()) != 1 {
		t.Fatalf("cookies: %v", in.Cookies())
	}
	c := in.Cookies()[0]
	if c.Name != "mainstay_toys_8080" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure ||
		strings.Contains(c.Value, "ann") || in.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("cookie %v", c)
	}
	want(t, b.send("GET", "/whoami", ""), 200, "ann-by-password")
	state := text(t, b.send("GET", "/console/session", ""))
	if !strings.Contains(state, `"signed_in":true`) || !strings.Contains(state, `"sign_out":true`) ||
		!strings.Contains(state, `"expires_at":"2030-01-02T15:04:05Z"`) || strings.Contains(state, c.Value) {
		t.Error(state)
	}
	if got := strings.Join(s.events, ", "); got != "ann-by-password in by password" {
		t.Error(got)
	}
}

func TestACookieCountsOnlyInRequestsOfTheConsole(t *testing.T) {
	t.Parallel()
	b := newService(t, nil).browser(t)
	want(t, b.signIn(`{"token":"ann"}`), 204, "")
	for _, c := range []struct {
		about  string
		method string
		change func(*http.Request)
		status int
		part   string
	}{
		{"a link or an image of another page", "GET", func(r *http.Request) { r.Header.Del(session.Header) }, 401, "who"},
		{"a WebSocket of another page", "GET", func(r *http.Request) {
			r.Header.Del(session.Header)
			r.Header.Set("Upgrade", "websocket")
		}, 401, "who"},
		{"a page of another port", "POST", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403, "console"},
		{"an old browser and another port", "POST", func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "http://127.0.0.1:9999")
		}, 403, "console"},
		{"an old browser and our page", "POST", func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "http://127.0.0.1:8080")
		}, 200, "ann"},
		{"a program with credentials of its own", "GET", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer bob")
		}, 200, "bob"},
		{"credentials that are not valid", "GET", func(r *http.Request) {
			r.Header.Set("Authorization", "Basic YTpi")
		}, 401, "who"},
		{"the service on another port", "GET", func(r *http.Request) { r.Host = "127.0.0.1:8081" }, 401, "who"},
		{"a cookie that somebody else made", "GET", func(r *http.Request) {
			r.Header.Set("Cookie", "mainstay_toys_8080=v2.0000000000000000.AAAA")
		}, 401, "who"},
		{"ours beside a cookie of the same name", "GET", func(r *http.Request) {
			r.Header.Set("Cookie", "mainstay_toys_8080=junk; "+r.Header.Get("Cookie"))
		}, 200, "ann"},
	} {
		t.Run(c.about, func(t *testing.T) {
			want(t, b.send(c.method, "/whoami", "", c.change), c.status, c.part)
		})
	}
}

func TestSigningInAndOutTakesTheConsole(t *testing.T) {
	t.Parallel()
	b := newService(t, nil).browser(t)
	for _, method := range []string{"POST", "DELETE"} {
		want(t, b.send(method, "/console/session", `{"token":"eve"}`, func(r *http.Request) {
			r.Header.Del(session.Header)
		}), 403, "X-Mainstay-Console")
		want(t, b.send(method, "/console/session", `{"token":"eve"}`, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-site")
		}), 403, "own console")
	}
	if len(b.cookies) != 0 {
		t.Errorf("a foreign page signed a browser in: %v", b.cookies)
	}
}

func TestASessionThatWasSignedOutIsOverEverywhere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, dbtest.Migrations{"session": session.Migrations()}, func(t *testing.T, d *db.DB) {
		share := func(c *session.Config) { c.Ended = session.InDatabase(d, c.Now) }
		s, replica := newService(t, share), newService(t, share)
		b := s.browser(t)
		want(t, b.signIn(`{"token":"ann"}`), 204, "")
		stolen := replica.browser(t)
		stolen.cookies = map[string]string{"mainstay_toys_8080": b.cookies["mainstay_toys_8080"]}
		want(t, stolen.send("GET", "/whoami", ""), 200, "ann")
		want(t, b.send("DELETE", "/console/session", ""), 204, "")
		if len(b.cookies) != 0 {
			t.Errorf("the cookie was not deleted: %v", b.cookies)
		}
		want(t, b.send("GET", "/whoami", ""), 401, "who")
		want(t, stolen.send("GET", "/whoami", ""), 401, "the session is over")
		want(t, stolen.send("GET", "/console/session", ""), 200, `"signed_in":false,"over":true`)
		if got := strings.Join(s.events, ", "); got != "ann in by token, ann out" {
			t.Error(got)
		}
		// Ended sessions are forgotten once they would be over anyway, and stay over.
		for _, each := range []*service{s, replica} {
			each.clock.pass(session.Life)
		}
		want(t, b.signIn(`{"token":"ann"}`), 204, "")
		want(t, b.send("DELETE", "/console/session", ""), 204, "")
		var n int
		if err := d.Get(t.Context(), &n, "SELECT COUNT(*) FROM ended_sessions"); err != nil || n > 2 {
			t.Errorf("%d ended sessions are kept, %v", n, err)
		}
		want(t, stolen.send("GET", "/whoami", ""), 401, "the session is over")
		want(t, b.send("DELETE", "/console/session", ""), 204, "") // twice is no error
	})
}

func TestASessionEndsWithItsTimeAndWithItsCredentials(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	b := s.browser(t)
	want(t, b.signIn(`{"token":"ann"}`), 204, "")
	s.clock.pass(session.Life - time.Second)
	want(t, b.send("GET", "/whoami", ""), 200, "ann")
	s.revoked["ann"] = true
	want(t, b.send("GET", "/whoami", ""), 401, "who")
	want(t, b.send("GET", "/console/session", ""), 200, `"signed_in":false,"over":true`)
	s.revoked["ann"] = false
	s.clock.pass(time.Second)
	want(t, b.send("GET", "/whoami", ""), 401, "the session is over")
	want(t, b.send("GET", "/console/session", ""), 200, `"signed_in":false,"over":true`)
}

func TestALongRequestEndsWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		b := s.browser(t)
		want(t, b.signIn(`{"token":"ann"}`), 204, "")
		stream := s.browser(t)
		stream.cookies = maps.Clone(b.cookies)
		ended := make(chan struct{})
		go func() {
			stream.send("GET", "/wait", "")
			close(ended)
		}()
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Fatal("the request ended before its session")
		default:
		}
		want(t, b.send("DELETE", "/console/session", ""), 204, "")
		begin := time.Now()
		<-ended
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWhoeverSignsInAgainLeavesNoSessionBehind(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	b := s.browser(t)
	want(t, b.signIn(`{"token":"ann"}`), 204, "")
	before := b.cookies["mainstay_toys_8080"]
	want(t, b.signIn(`{"token":"bob"}`), 204, "")
	want(t, b.send("GET", "/whoami", ""), 200, "bob")
	b.cookies["mainstay_toys_8080"] = before
	want(t, b.send("GET", "/whoami", ""), 401, "the session is over")
}

func TestABadSignInChangesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.revoked["gone"] = true
	b := s.browser(t)
	for body, part := range map[string]string{
		``:                                      "application/json",
		` `:                                     "empty",
		`{"Token":"ann"}`:                       "Token",
		`{"token":"eve","token":"ann"}`:         "twice",
		`{"token":"ann"} {}`:                    "more",
		`{"token":"ann"`:                        "ends before",
		`["ann"]`:                               "object",
		`{"token":["ann"]}`:                     "token",
		`{"token":null}`:                        "token",
		`{"token":"a\u0000b"}`:                  "NUL",
		"{\"token\":\"a\xff\"}":                 "UTF-8",
		`{}`:                                    "one of them is required",
		`null`:                                  "object",
		`{"username":"ann"}`:                    "one of them is required",
		`{"token":"ann","password":"x"}`:        "only one",
		`{"token":"ann","ticket":"x"}`:          "only one",
		`{"token":""}`:                          "token",
		`{"token":"a b"}`:                       "token",
		`{"token":"ann\r\nX-Other: 1"}`:         "token",
		`{"token":"gone"}`:                      "who are you",
		`{"token":7}`:                           "token",
		`{"ticket":"x"}`:                        "tickets",
		`{"user":"ann"}`:                        "user",
		`{"username":"ann","password":"no"}`:    "wrong password",
		`{"token":"` + long(3500, "a") + `"}`:   "too long",
		`{"token":"` + long(20_000, "a") + `"}`: "larger than",
	} {
		got := b.signIn(body)
		if got.StatusCode/100 != 4 {
			t.Errorf("%.40s: %d", body, got.StatusCode)
		}
		if said := text(t, got); !strings.Contains(said, part) {
			t.Errorf("%.40s: %q, want %q", body, said, part)
		}
	}
	if len(b.cookies) != 0 {
		t.Errorf("cookies %v", b.cookies)
	}
}

func long(n int, s string) string { return strings.Repeat(s, n) }

func TestOverHTTPSTheCookieIsTiedToItsHost(t *testing.T) {
	t.Parallel()
	b := newService(t, nil).browser(t)
	b.host = "edge.example.com"
	https := func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }
	got := b.send("POST", "/console/session", `{"token":"ann"}`, https).Cookies()
	if len(got) != 1 || got[0].Name != "__Host-mainstay_toys" || !got[0].Secure || got[0].Path != "/" || got[0].Domain != "" {
		t.Fatalf("%v", got)
	}
	want(t, b.send("GET", "/whoami", "", https), 200, "ann")
}

func TestASessionsOfOneServiceOpensNoOther(t *testing.T) {
	t.Parallel()
	b := newService(t, nil).browser(t)
	want(t, b.signIn(`{"token":"ann"}`), 204, "")
	other := newService(t, func(c *session.Config) { c.Service = "games" }).browser(t)
	other.cookies["mainstay_games_8080"] = b.cookies["mainstay_toys_8080"]
	want(t, other.send("GET", "/whoami", ""), 401, "who")
}

func TestEndedSessionsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Unix(1, 0)}
	ended := session.InMemory(c.now)
	var err error
	n := 0
	for ; err == nil && n < 1_000_000; n++ {
		err = ended.End(t.Context(), "session "+time.Duration(n).String(), c.now().Add(time.Hour))
	}
	if !fault.Is(err, fault.Unavailable) {
		t.Fatalf("%d sessions, %v", n, err)
	}
	c.pass(time.Hour)
	if err := ended.End(t.Context(), "another", c.now().Add(time.Hour)); err != nil {
		t.Errorf("after the others expired: %v", err)
	}
	if has, err := ended.Has(t.Context(), "another"); !has || err != nil {
		t.Errorf("%t, %v", has, err)
	}
}

func TestInARingOneSignInOpensEveryConsole(t *testing.T) {
	t.Parallel()
	var now clock
	ring := session.NewRing(now.now)
	join := func(name, role, token string) *service {
		s := newService(t, func(c *session.Config) { c.Service, c.Workspace = name, ring })
		ring.Join(session.Member{Name: name, Title: "The " + name, URL: "http://127.0.0.1:7", Tokens: map[string]session.Issue{role: session.Fixed(token)}})
		return s
	}
	toys, games := join("toys", "admin", "admin-of-toys"), join("games", "admin", "admin-of-games")
	ticket := func(b *browser, service string) (*http.Response, string) {
		answer := b.send("POST", "/console/tickets", `{"service":"`+service+`"}`)
		var got struct{ URL string }
		if answer.StatusCode == 200 {
			if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
		}
		_, word, _ := strings.Cut(got.URL, "/#ticket=")
		return answer, word
	}
	admin, viewer, nobody := toys.browser(t), toys.browser(t), toys.browser(t)
	want(t, admin.signIn(`{"token":"admin-of-toys"}`), 204, "")
	want(t, viewer.signIn(`{"token":"viewer-of-toys"}`), 204, "")
	refused, _ := ticket(nobody, "games")
	want(t, refused, 401, "")
	refused, _ = ticket(viewer, "games")
	want(t, refused, 404, "sign in there")
	refused, _ = ticket(admin, "chess")
	want(t, refused, 404, "no service")
	want(t, nobody.send("GET", "/console/services", ""), 401, "")

	_, word := ticket(admin, "games")
	if word == "" {
		t.Fatal("no ticket")
	}
	for host, at := range map[string]string{"localhost:8080": "http://localhost:7/", "[::1]:8080": "http://[::1]:7/"} {
		want(t, admin.send("POST", "/console/tickets", `{"service":"games"}`, func(r *http.Request) { r.Host = host },
			admin.session(host)), 200, at)
	}
	at := games.browser(t)
	want(t, at.signIn(`{"ticket":"`+word+`"}`), 204, "")
	want(t, at.send("GET", "/whoami", ""), 200, "admin-of-games")
	want(t, games.browser(t).signIn(`{"ticket":"`+word+`"}`), 401, "ticket")
	_, word = ticket(admin, "games")
	want(t, toys.browser(t).signIn(`{"ticket":"`+word+`"}`), 401, "ticket")
	want(t, games.browser(t).signIn(`{"ticket":"`+word+`"}`), 401, "ticket")
	if got := strings.Join(games.events, ", "); got != "admin-of-games in by ticket" {
		t.Error(got)
	}

	// Nobody stays signed in for longer by going from one service to the next.
	for _, s := range []*service{toys, games} {
		s.clock.pass(session.Life - time.Minute)
	}
	_, word = ticket(admin, "games")
	want(t, at.signIn(`{"ticket":"`+word+`"}`), 204, "")
	want(t, at.send("GET", "/console/session", ""), 200, `"expires_at":"2030-01-02T15:04:05Z"`)
	games.clock.pass(time.Minute)
	want(t, at.send("GET", "/whoami", ""), 401, "the session is over")
}

func TestARequestDoesNotDecideWhichServiceIsChecked(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	at := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host }))
	t.Cleanup(at.Close)
	var now clock
	ring := session.NewRing(now.now)
	ring.Join(session.Member{Name: "games", Title: "Games", URL: at.URL})
	b := newService(t, func(c *session.Config) { c.Workspace = ring }).browser(t)
	want(t, b.signIn(`{"token":"ann"}`), 204, "")
	// The link is for the browser, which knows the machine by this name.
	want(t, b.send("GET", "/console/services", "", func(r *http.Request) { r.Host = "elsewhere.invalid:8080" }), 200,
		`"url":"http://elsewhere.invalid:`)
	if host := <-asked; "http://"+host != at.URL {
		t.Errorf("%s was asked", host)
	}
}

func TestTheSwitcherShowsWhichServicesAnswer(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || r.Header.Get("Cookie") != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(up.Close)
	elsewhere := httptest.NewServer(http.RedirectHandler(up.URL+"/healthz", http.StatusFound))
	t.Cleanup(elsewhere.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	path := filepath.Join(t.TempDir(), "services.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("services:\n- {title: This, url: 'http://127.0.0.1:8080'}\n- {title: Up, url: '" + up.URL +
		"'}\n- {title: Gone, url: '" + gone.URL + "'}\n- {title: Elsewhere, url: '" + elsewhere.URL + "'}\n")
	document, err := session.ReadDocument(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newService(t, func(c *session.Config) { c.Workspace = document }).browser(t)
	want(t, b.signIn(`{"token":"ann"}`), 204, "")
	var list []session.Service
	if err := json.NewDecoder(b.send("GET", "/console/services", "").Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		line := s.Title + " " + s.State
		if s.Current {
			line += " current"
		}
		got = append(got, line)
	}
	if strings.Join(got, ", ") != "This up current, Up up, Gone down, Elsewhere down" {
		t.Error(got)
	}
	want(t, b.send("POST", "/console/tickets", `{"service":"Up"}`), 404, "sign in there")
	want(t, b.signIn(`{"ticket":"x"}`), 401, "ticket")

	for text, part := range map[string]string{
		"services: [{title: A, url: 'ftp://a'}]":                                 "services[0].url",
		"services: [{title: A, url: 'https://user:pass@a'}]":                     "services[0].url",
		"services: [{title: A, url: 'javascript:alert(1)'}]":                     "services[0].url",
		"services: [{title: '', url: 'https://a'}]":                              "services[0].title",
		"services: [{title: A, url: 'https://a'}, {title: B, url: 'https://a'}]": "services[1].url",
		"services: [{title: A, address: 'https://a'}]":                           "address",
		"servers: []": "servers",
		"services: 7": "services",
	} {
		write(text)
		if _, err := session.ReadDocument(path); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %s", text, err, part)
		}
	}
}

func TestACallerThatSignsInAllTheTimeIsSlowedDownAndOthersAreNot(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	b := s.browser(t)
	for n := range 500 {
		if in := b.signIn(`{"token":"ann"}`); in.StatusCode != 204 {
			t.Fatalf("sign-in %d: %s", n, in.Status)
		}
	}
	want(t, b.signIn(`{"token":"ann"}`), 429, "ann signs in too often")
	want(t, b.send("GET", "/whoami", ""), 200, "ann") // in the session that there is
	want(t, s.browser(t).signIn(`{"token":"bob"}`), 204, "")
}
