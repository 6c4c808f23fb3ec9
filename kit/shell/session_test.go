package shell_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// withSessions returns a service whose console takes the tokens of children and parents, and the
// password of a parent.
func withSessions(t *testing.T, now func() time.Time) http.Handler {
	t.Helper()
	sealer, err := auth.NewSealer([]byte(strings.Repeat("k", 32)), "console sessions")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	toys, err := newToys(log, func(c *shell.Config[person]) {
		c.Rates[shell.RateLogin] = shell.Rate{PerSecond: 0.001, Burst: 2}
		c.Who = func(p person) (session.Who, error) { return session.Who{Name: p.name}, nil }
		c.Sessions = session.New(session.Config{
			Service: "toys", Sealer: sealer, Ended: session.InMemory(now), Now: now, Log: log,
			Password: func(ctx context.Context, given session.Login) (string, error) {
				if shell.PeerOf(ctx).IP == "" {
					return "", fault.New(fault.Internal, "the peer is not known")
				}
				if given.Password != "secret" {
					return "", fault.New(fault.Unauthenticated, "wrong password")
				}
				return "parent", nil
			},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return toys.shell.Handler()
}

// console sends a request as a page of the console does.
func console(t *testing.T, h http.Handler, cookies []*http.Cookie, method, path, body string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set(session.Header, "toys")
	r.Header.Set("Content-Type", "application/json")
	for _, c := range cookies {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestASessionMayDoWhatItsCredentialsMay(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	h := withSessions(t, func() time.Time { return at })
	signIn := func(body string) []*http.Cookie {
		r := console(t, h, nil, "POST", "/console/session", body)
		if r.StatusCode != http.StatusNoContent {
			t.Fatalf("%s: %d", body, r.StatusCode)
		}
		return r.Cookies()
	}
	child, parent := signIn(`{"token":"child"}`), signIn(`{"username":"ann","password":"secret"}`)
	for _, c := range []struct {
		about  string
		who    []*http.Cookie
		method string
		want   int
	}{
		{"a child reads", child, "GET", 200}, {"a child adds", child, "POST", 403},
		{"a parent adds", parent, "POST", 201}, {"nobody reads", nil, "GET", 401},
	} {
		if r := console(t, h, c.who, c.method, "/v1/toys", `{"name":"bear"}`); r.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.about, r.StatusCode, c.want)
		}
	}
	at = at.Add(session.Life)
	over := console(t, h, child, "GET", "/v1/toys", "")
	var text [512]byte
	n, _ := over.Body.Read(text[:])
	if over.StatusCode != 401 || !strings.Contains(string(text[:n]), "session_over") {
		t.Errorf("%d %s", over.StatusCode, text[:n])
	}
}

func TestWhoeverTriesPasswordsKeepsNoTokenOut(t *testing.T) {
	t.Parallel()
	h := withSessions(t, time.Now)
	try := func(body string) int { return console(t, h, nil, "POST", "/console/session", body).StatusCode }
	got := []int{}
	for range 3 {
		got = append(got, try(`{"username":"ann","password":"guess"}`))
	}
	if got[0] != 401 || got[1] != 401 || got[2] != 429 {
		t.Errorf("passwords: %v", got)
	}
	for range 3 {
		if status := try(`{"token":"parent"}`); status != 204 {
			t.Errorf("a token: %d", status)
		}
	}
}
