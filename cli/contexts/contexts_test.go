package contexts_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/exit"
)

// shell runs commands of one person.
type shell struct {
	*testing.T
	config, dir string
	env         map[string]string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	return &shell{T: t, config: filepath.Join(t.TempDir(), "mainstay"), dir: t.TempDir()}
}

func (s *shell) run(args ...string) (code int, out, errs string) {
	s.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(s.Context(), args, cli.IO{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr, Dir: s.dir, ConfigDir: s.config,
		Getenv: func(name string) string { return s.env[name] },
	})
	return code, stdout.String(), stderr.String()
}

func (s *shell) ok(args ...string) string {
	s.Helper()
	code, out, errs := s.run(args...)
	if code != 0 {
		s.Fatalf("%v: %d: %s", args, code, errs)
	}
	return out
}

func (s *shell) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// asked returns a server that records the tokens that it is sent.
func asked(t *testing.T) (url string, tokens func() []string) {
	t.Helper()
	got := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"1"}`))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		var all []string
		for len(got) > 0 {
			all = append(all, strings.TrimPrefix(<-got, "Bearer "))
		}
		return all
	}
}

func TestTheCurrentContextNamesServerAndToken(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	prod, prodGot := asked(t)
	staging, stagingGot := asked(t)
	s.ok("context", "add", "prod", "edge="+prod, "--token-file", "edge="+s.file("p", "prod-token\n"))
	s.ok("context", "add", "staging", "edge="+staging, "--token-file", "edge="+s.file("s", "staging-token\n"))
	s.ok("edge", "whoami")
	s.ok("context", "use", "staging")
	s.ok("edge", "whoami")
	if p, st := prodGot(), stagingGot(); strings.Join(p, ",") != "prod-token" || strings.Join(st, ",") != "staging-token" {
		t.Errorf("prod was sent %v, staging %v", p, st)
	}
	out := s.ok("context", "list", "-o", "json")
	if strings.Contains(out, "-token\"") || !strings.Contains(out, prod) || !strings.Contains(out, `"current": true`) {
		t.Errorf("%s", out)
	}
	s.ok("context", "remove", "staging")
	if code, _, errs := s.run("context", "use", "staging"); code != exit.NotFound || !strings.Contains(errs, "context list") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestAContextsTokenIsSentOnlyToItsServer(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	other, got := asked(t)
	s.ok("context", "add", "prod", "edge=https://edge.example.com", "--token-file", "edge="+s.file("p", "secret"))
	s.ok("edge", "whoami", "--server", other)
	s.env = map[string]string{"EDGE_SERVER": other}
	s.ok("edge", "whoami")
	if tokens := got(); strings.Join(tokens, ",") != "," {
		t.Errorf("another server was sent %v", tokens)
	}
}

func TestFlagsComeBeforeTheEnvironmentBeforeTheDevelopersFileBeforeTheContext(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	url, got := asked(t)
	s.ok("context", "add", "c", "edge="+url, "--token-file", "edge="+s.file("c", "context"))
	s.ok("edge", "whoami")
	s.env = map[string]string{"EDGE_TOKEN": "environment"}
	s.ok("edge", "whoami")
	s.ok("edge", "whoami", "--token-file", s.file("f", "file"))
	s.ok("edge", "whoami", "--token", "flag")
	if tokens := strings.Join(got(), ","); tokens != "context,environment,file,flag" {
		t.Error(tokens)
	}
	// With what "mainstay dev" left, commands do not talk to the context's server.
	s.env = nil
	s.file(".mainstay/credentials.json", `{"edge":{"admin_token":"dev"}}`)
	if code, _, errs := s.run("edge", "whoami"); code != exit.Unavailable && code != 0 || len(got()) > 0 {
		t.Errorf("%d %s", code, errs)
	}
}

func TestTheFileOfContextsIsPrivate(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.ok("context", "add", "c", "edge=http://127.0.0.1:1", "--token-file", "edge="+s.file("c", "secret"))
	path := filepath.Join(s.config, "contexts.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := s.run("context", "list"); code == 0 || !strings.Contains(errs, "chmod 600") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestAContextThatCannotBeUsedIsNotAdded(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for name, args := range map[string][]string{
		"a bad name":         {"a/b", "edge=http://127.0.0.1:1"},
		"no URL":             {"a", "edge=example.com"},
		"an unknown service": {"a", "egde=http://127.0.0.1:1"},
		"no server":          {"a", "lb=http://127.0.0.1:1", "--ca-file", "edge=x.pem"},
		"no file":            {"a", "edge=http://127.0.0.1:1", "--token-file", "edge=/does/not/exist"},
	} {
		if code, _, errs := s.run(append([]string{"context", "add"}, args...)...); code == 0 || errs == "" {
			t.Errorf("%s: %d %s", name, code, errs)
		}
	}
	if out := s.ok("context", "list", "-q"); out != "" {
		t.Errorf("added: %s", out)
	}
}

func TestTheShellCompletesContexts(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.ok("context", "add", "prod", "edge=http://127.0.0.1:1")
	s.ok("context", "add", "staging", "edge=http://127.0.0.1:1")
	if out := s.ok("__complete", "context", "use", ""); !strings.HasPrefix(out, "prod\nstaging\n:") {
		t.Errorf("%s", out)
	}
}
