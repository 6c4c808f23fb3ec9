// Package daemontest is shared by the tests of the commands vm, image and fleet: a fake daemon that
// returns examples and validates requests and responses against the contract, and a way to run a
// command line.
package daemontest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// Contract loads the daemon's contract.
func Contract(t testing.TB) *contract.Contract {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// load reads the contract once: it takes long, and the contract is not modified.
var load = sync.OnceValues(func() (*contract.Contract, error) {
	return contract.Load(hypervisorapi.Document, hypervisorapi.BasePath, []string{"tenant", "admin", "node", "socket"})
})

// Server is a fake daemon that returns examples.
type Server struct {
	URL string

	mu    sync.Mutex
	calls []Request
}

// Request is a request to the fake daemon.
type Request struct {
	Operation     string
	Path, Query   string
	Body          string
	Authorization string
}

// Serve starts a fake daemon. handlers, by operation, replace examples; the body is unread when
// they are called.
func Serve(t testing.TB, handlers map[string]http.HandlerFunc) *Server {
	t.Helper()
	c := Contract(t)
	s := &Server{}
	mux := http.NewServeMux()
	for _, op := range c.Operations() {
		mux.HandleFunc(op.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if !op.HandlerValidates {
				if err := op.CheckRequest(r); err != nil {
					t.Errorf("%s: the request is against the contract: %v", op.ID, err)
				}
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("%s: %v", op.ID, err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			s.mu.Lock()
			s.calls = append(
				s.calls, Request{op.ID, r.URL.Path, r.URL.RawQuery, string(body), r.Header.Get("Authorization")},
			)
			s.mu.Unlock()
			if h := handlers[op.ID]; h != nil {
				h(w, r)
				return
			}
			example(w, op)
		})
	}
	// As a registry, it forwards to itself.
	mux.HandleFunc("/fleet/nodes/{node}/v1/", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/fleet/nodes/"+r.PathValue("node"))
		mux.ServeHTTP(w, r)
	})
	hs := httptest.NewServer(contracttest.New(c, hypervisorapi.BasePath).Wrap(t, mux))
	t.Cleanup(hs.Close)
	s.URL = hs.URL
	return s
}

func example(w http.ResponseWriter, op *contract.Operation) {
	status := op.Statuses[0]
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	contentType := "application/json"
	switch op.ID {
	case "Exec":
		contentType = "application/x-ndjson"
	case "GetFile", "ExportImage", "ExportBackup", "ReadTransfer":
		contentType = "application/octet-stream"
	case "GetVMLog":
		contentType = "text/plain"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, Examples()[op.ID]) // the client may have disconnected
}

// Answer returns a handler that sends this response.
func Answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may have disconnected
	}
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Called returns the operations so far, separated by spaces.
func (s *Server) Called() string {
	var ids []string
	for _, r := range s.Requests() {
		ids = append(ids, r.Operation)
	}
	return strings.Join(ids, " ")
}

// Last returns the latest request.
func (s *Server) Last() Request {
	all := s.Requests()
	return all[len(all)-1]
}

// Result is the result of a command line.
type Result struct {
	Code     int
	Out, Err string
}

// Run is the environment of a command line.
type Run struct {
	URL   string
	Stdin io.Reader
	Env   map[string]string
	Dir   string
	// Out and Err receive output as it is written. If nil, it is in the result.
	Out, Err io.Writer
}

// Do runs a command line.
func (r Run) Do(t testing.TB, ctx context.Context, args ...string) Result {
	t.Helper()
	if r.Dir == "" {
		r.Dir = t.TempDir()
	}
	var out, errs bytes.Buffer
	stdio := cli.IO{
		In:        r.Stdin,
		Out:       r.Out,
		Err:       r.Err,
		Dir:       r.Dir,
		ConfigDir: filepath.Join(r.Dir, "config"),
		Getenv:    func(name string) string { return r.Env[name] },
	}
	if stdio.In == nil {
		stdio.In = strings.NewReader("")
	}
	if stdio.Out == nil {
		stdio.Out = &out
	}
	if stdio.Err == nil {
		stdio.Err = &errs
	}
	if r.URL != "" {
		args = append([]string{"--url=" + r.URL}, args...)
	}
	code := cli.Main(ctx, args, stdio)
	return Result{code, out.String(), errs.String()}
}

// OK runs a command line that must succeed.
func (r Run) OK(t testing.TB, args ...string) Result {
	t.Helper()
	got := r.Do(t, t.Context(), args...)
	if got.Code != 0 {
		t.Fatalf("mainstay %s: exit code %d\n%s", strings.Join(args, " "), got.Code, got.Err)
	}
	return got
}

// EveryCommand runs command lines in every format. Each must call exactly its operations, as the
// contract requires, and succeed.
func EveryCommand(t *testing.T, lines map[string]string) {
	t.Helper()
	for line, operations := range lines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{"table", "json", "yaml"} {
				s := Serve(t, nil)
				got := Run{
					URL: s.URL,
					Dir: t.TempDir(),
				}.OK(t, append([]string{"--output=" + format}, strings.Fields(line)...)...)
				if s.Called() != operations {
					t.Errorf("called %q, want %q", s.Called(), operations)
				}
				if format == "table" && got.Out == "" && got.Err == "" {
					t.Error("printed nothing")
				}
				if strings.Contains(got.Out, "<nil>") || strings.Contains(got.Out, "0x") {
					t.Errorf("prints what is meant for programmers: %s", got.Out)
				}
			}
		})
	}
}
