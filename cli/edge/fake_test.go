package edge_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func loadContract(t *testing.T) *contract.Contract {
	t.Helper()
	classes := []string{"open", "any", "viewer", "admin", "global-viewer", "global-admin", "agent", "ingest"}
	c, err := contract.Load(edgeapi.Document, edgeapi.BasePath, classes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// server is a fake control plane that validates requests and its own responses against the
// contract.
type server struct {
	URL string

	mu    sync.Mutex
	calls []string // operation ids
	auth  string   // the last Authorization header
	last  *http.Request
	body  string // the last request's
}

// serve starts a server. handlers replace the example responses.
func serve(t *testing.T, c *contract.Contract, handlers map[string]http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	mux := http.NewServeMux()
	for _, op := range c.Operations() {
		mux.HandleFunc(op.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := op.CheckRequest(r); err != nil {
				t.Errorf("%s: the request is against the contract: %v", op.ID, err)
			}
			var body bytes.Buffer
			_, _ = body.ReadFrom(r.Body)
			s.mu.Lock()
			s.calls, s.auth, s.last, s.body = append(s.calls, op.ID), r.Header.Get("Authorization"), r, body.String()
			s.mu.Unlock()
			if h := handlers[op.ID]; h != nil {
				h(w, r)
				return
			}
			answerExample(w, op)
		})
	}
	hs := httptest.NewServer(contracttest.New(c, edgeapi.BasePath).Wrap(t, mux))
	t.Cleanup(hs.Close)
	s.URL = hs.URL
	return s
}

func answerExample(w http.ResponseWriter, op *contract.Operation) {
	status := op.Statuses[0]
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	contentType := "application/json"
	if op.ID == "GetCRL" {
		contentType = "application/pkix-crl"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(examples()[op.ID]))
}

func (s *server) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// result is the result of a command line.
type result struct {
	code     int
	out, err string
}

// run is a command line in its own directory.
type run struct {
	server string
	stdin  string
	env    map[string]string
	dir    string
}

func (r run) do(t *testing.T, args ...string) result {
	t.Helper()
	return r.doContext(t, t.Context(), args...)
}

func (r run) doContext(t *testing.T, ctx context.Context, args ...string) result {
	t.Helper()
	if r.dir == "" {
		r.dir = t.TempDir()
	}
	args = append([]string{"edge"}, args...)
	if r.server != "" {
		args = append(args, "--server", r.server)
	}
	return r.main(ctx, args)
}

// completes runs what a shell runs to complete the last word.
func (r run) completes(t *testing.T, words ...string) result {
	t.Helper()
	r.dir = t.TempDir()
	return r.main(t.Context(), append([]string{"__complete", "edge"}, words...))
}

func (r run) main(ctx context.Context, args []string) result {
	var out, errOut bytes.Buffer
	code := cli.Main(ctx, args, cli.IO{In: strings.NewReader(r.stdin), Out: &out, Err: &errOut, Dir: r.dir, ConfigDir: "/nonexistent",
		Getenv: func(name string) string { return r.env[name] }})
	return result{code, out.String(), errOut.String()}
}

// ok runs a command line that must succeed.
func (r run) ok(t *testing.T, args ...string) result {
	t.Helper()
	got := r.do(t, args...)
	if got.code != 0 {
		t.Fatalf("mainstay edge %s: exit code %d\n%s", strings.Join(args, " "), got.code, got.err)
	}
	return got
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
