package login_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/client"
)

// edge is a control plane with one person, eve, whose password is "secret", and the token "fixed".
type edge struct {
	url string

	mu    sync.Mutex
	calls []string // METHOD PATH TOKEN
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{}
	refuse := func(w http.ResponseWriter, status int, code string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"code":"`+code+`","message":"no","request_id":"q"}}`)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		e.mu.Lock()
		e.calls = append(e.calls, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+token))
		e.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch body, _ := io.ReadAll(r.Body); r.URL.Path {
		case "/openapi.yaml":
			_, _ = io.WriteString(w, "info:\n  title: Mainstay edge control plane\n")
		case "/api/v1/auth/login":
			if string(bytes.TrimSpace(body)) != `{"password":"secret","username":"eve"}` {
				refuse(w, 401, "unauthenticated")
				return
			}
			_, _ = io.WriteString(w, `{"token":"session","token_type":"Bearer","role":"admin","expires_at":"2026-01-02T03:04:05Z"}`)
		case "/api/v1/auth/me":
			if token != "session" && token != "fixed" {
				refuse(w, 401, "unauthenticated")
				return
			}
			_, _ = io.WriteString(w, `{"subject":"eve\u001b[2J","kind":"user","role":"admin","org_id":"","site_id":"","expires_at":null}`)
		case "/api/v1/auth/logout":
			if token != "session" {
				refuse(w, 409, "conflict")
				return
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			refuse(w, 404, "not_found")
		}
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	return e
}

func (e *edge) called() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.calls, ", ")
}

// desk is where a person works.
type desk struct {
	*testing.T
	dir, config string
}

func newDesk(t *testing.T) *desk { return &desk{t, t.TempDir(), t.TempDir()} }

func (d *desk) run(in io.Reader, args ...string) (code int, out, errs string) {
	d.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(d.Context(), args, cli.IO{
		In: in, Out: &stdout, Err: &stderr, Dir: d.dir, ConfigDir: d.config, Getenv: func(string) string { return "" },
	})
	return code, stdout.String(), stderr.String()
}

// contexts returns what is stored.
func (d *desk) contexts() client.Contexts {
	d.Helper()
	var c client.Contexts
	raw, err := os.ReadFile(filepath.Join(d.config, "contexts.json"))
	if os.IsNotExist(err) {
		return c
	}
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		d.Fatal(err)
	}
	return c
}

func TestALoginStoresWhatTheServerHasAccepted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args, stdin, token, calls string
	}{
		"a token":    {"--token-file -", "fixed\n", "fixed", "GET /api/v1/auth/me fixed"},
		"a password": {"--username eve --password-file -", "secret", "session", "POST /api/v1/auth/login, GET /api/v1/auth/me session"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, d := newEdge(t), newDesk(t)
			code, out, errs := d.run(
				strings.NewReader(tt.stdin), append([]string{"login", "edge", "--server", e.url + "/"}, strings.Fields(tt.args)...)...,
			)
			if code != 0 || !strings.HasPrefix(out, "Logged in to the edge control plane at "+e.url+` as eve\x1b[2J, in the context default.`) {
				t.Fatalf("%d %q %s", code, out, errs)
			}
			if strings.Contains(out+errs, tt.token+"\n") || e.called() != tt.calls {
				t.Errorf("called %s", e.called())
			}
			c := d.contexts()
			if got := c.All["default"]["edge"]; c.Current != "default" || got != (client.Place{Server: e.url, Token: tt.token}) {
				t.Errorf("stored %+v", c)
			}
			if code, _, errs := d.run(strings.NewReader(""), "edge", "whoami"); code != 0 {
				t.Errorf("%d %s", code, errs)
			}
		})
	}
}

func TestARefusedCredentialIsNotStored(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	e := newEdge(t)
	for name, tt := range map[string]struct {
		args, stdin string
		code        int
		want        string
	}{
		"a wrong token":         {"edge --token-file - --server " + e.url, "nope", 4, "no (code unauthenticated"},
		"a wrong password":      {"edge -u eve --password-file - --server " + e.url, "nope", 4, "no (code unauthenticated"},
		"another server":        {"edge --token-file - --server " + other.URL, "fixed", 1, "answers, but is not an edge control plane"},
		"another service":       {"lb --token-file - --server " + e.url, "fixed", 1, "is not a load balancer\nhint: it says that it is the edge control plane"},
		"nothing":               {"edge --token-file - --server " + e.url, "\n", 2, "the token is empty"},
		"nobody to ask":         {"edge --server " + e.url, "fixed", 2, "--token-file or --password-file is missing, and nobody is there"},
		"no service":            {"--token-file - --server " + e.url, "fixed", 2, "SERVICE is missing"},
		"no server":             {"edge --token-file -", "fixed", 2, "--server is missing"},
		"an unknown service":    {"egde --server " + e.url, "", 2, "SERVICE must be edge, hypervisor, vm, lb"},
		"no URL":                {"edge --token-file - --server x", "fixed", 2, "--server must be a URL"},
		"no name of a context":  {"edge --context a/b --token-file - --server " + e.url, "fixed", 2, "NAME must be"},
		"a service without any": {"lb -u eve --password-file - --server " + e.url, "x", 2, "the load balancer has no passwords"},
	} {
		d := newDesk(t)
		code, out, errs := d.run(strings.NewReader(tt.stdin), append([]string{"login"}, strings.Fields(tt.args)...)...)
		if code != tt.code || out != "" || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: %d %s%s", name, code, out, errs)
		}
		if c := d.contexts(); len(c.All) > 0 {
			t.Errorf("%s: stored %+v", name, c)
		}
	}
}

func TestALogoutEndsTheSessionAndKeepsTheServer(t *testing.T) {
	t.Parallel()
	e, d := newEdge(t), newDesk(t)
	for _, login := range []string{"edge -u eve --password-file -", "edge -u eve --password-file - --context other"} {
		if code, _, errs := d.run(
			strings.NewReader("secret"), append(strings.Fields("login "+login), "--server", e.url)...,
		); code != 0 {
			t.Fatal(errs)
		}
	}
	code, out, errs := d.run(strings.NewReader(""), "logout")
	if code != 0 || out != "Logged out of edge.\n" || errs != "" || !strings.HasSuffix(e.called(), "POST /api/v1/auth/logout session") {
		t.Errorf("%d %s%s; called %s", code, out, errs, e.called())
	}
	c := d.contexts()
	if c.All["default"]["edge"] != (client.Place{Server: e.url}) || c.All["other"]["edge"].Token != "session" {
		t.Errorf("stored %+v", c)
	}
	if code, _, errs := d.run(strings.NewReader(""), "logout"); code != 3 || !strings.Contains(errs, "no credential to forget") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestALogoutForgetsTheCredentialAlsoWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	path := filepath.Join(d.dir, "t")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := d.run(
		strings.NewReader(""), "context", "add", "c", "edge=http://127.0.0.1:1", "--token-file", "edge="+path,
	); code != 0 {
		t.Fatal(errs)
	}
	code, _, errs := d.run(strings.NewReader(""), "logout", "edge")
	if code != 0 || !strings.Contains(errs, "The session stays valid until it expires") || d.contexts().All["c"]["edge"].Token != "" {
		t.Errorf("%d %s %+v", code, errs, d.contexts())
	}
}

func TestALoginTellsThatTheDevelopersFileComesFirst(t *testing.T) {
	t.Parallel()
	e, d := newEdge(t), newDesk(t)
	if err := os.Mkdir(filepath.Join(d.dir, ".mainstay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(d.dir, ".mainstay", "credentials.json"), []byte(`{"edge":{"admin_token":"x"}}`), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := d.run(
		strings.NewReader("fixed"), "login", "edge", "--server", e.url, "--token-file", "-",
	); code != 0 || !strings.Contains(errs, "commands still talk to http://127.0.0.1:8080") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestARedirectGetsNoCredentials(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.Header.Get("Authorization") + " " + string(body)
	}))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		lying := httptest.NewServer(http.RedirectHandler(other.URL+"/api/v1/auth/me", status))
		t.Cleanup(lying.Close)
		for _, args := range []string{"login edge -u eve --password-file -", "login edge --token-file -", "login lb --token-file -", "edge site list --token secret"} {
			d := newDesk(t)
			code, _, errs := d.run(strings.NewReader("secret"), append(strings.Fields(args), "--server", lying.URL)...)
			if code != 1 || !strings.Contains(errs, "redirects to "+other.URL) || strings.Contains(errs, "secret") {
				t.Errorf("%s, %d: %d %s", args, status, code, errs)
			}
			if c := d.contexts(); len(c.All) > 0 {
				t.Errorf("%s: stored %+v", args, c)
			}
		}
	}
	select {
	case request := <-got:
		if strings.Contains(request, "secret") {
			t.Errorf("the other server got %s", request)
		}
	default:
	}
}

func TestAnEmptyAnswerAcceptsNoCredential(t *testing.T) {
	t.Parallel()
	anything := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(anything.Close)
	for _, service := range []string{"edge", "hypervisor", "lb"} {
		d := newDesk(t)
		code, _, errs := d.run(strings.NewReader("t"), "login", service, "--token-file", "-", "--server", anything.URL)
		if code != 1 || !strings.Contains(errs, "not as the API's contract says") || len(d.contexts().All) > 0 {
			t.Errorf("%s: %d %s %+v", service, code, errs, d.contexts())
		}
	}
}

func TestManyLoginsAtOnceAreAllStored(t *testing.T) {
	t.Parallel()
	e, d := newEdge(t), newDesk(t)
	// A process that was killed left this.
	left := filepath.Join(d.config, ".tmp-123")
	if err := os.WriteFile(left, []byte("a token"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if code, _, errs := d.run(
				strings.NewReader("fixed"), "login", "edge", "--token-file", "-", "--server", e.url, "--context", fmt.Sprintf("c%d", i),
			); code != 0 {
				t.Error(errs)
			}
		})
	}
	all.Wait()
	if c := d.contexts(); len(c.All) != 20 {
		t.Errorf("%d of 20 are stored", len(c.All))
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
}
