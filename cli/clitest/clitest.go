// Package clitest runs command lines against fakes of services, for tests of commands.
package clitest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// Service is a fake of a service that returns examples and validates requests and responses against
// the contract.
type Service struct {
	URL string

	mu         sync.Mutex
	calls      []string // operation ids
	auth, body string
}

// Fake is what a fake answers.
type Fake struct {
	Contract *contract.Contract
	BasePath string
	// Examples are JSON, or text of the type in Types, by operation. Handlers take their place.
	Examples, Types map[string]string
	Handlers        map[string]http.HandlerFunc
	// Beside answers what is beside the API, by its path.
	Beside map[string]http.HandlerFunc
}

// Serve runs a fake until the test ends.
func Serve(t *testing.T, f *Fake) *Service {
	t.Helper()
	s := &Service{}
	mux := http.NewServeMux()
	for _, op := range f.Contract.Operations() {
		mux.HandleFunc(op.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := op.CheckRequest(r); err != nil && !op.HandlerValidates {
				t.Errorf("%s: the request is against the contract: %v", op.ID, err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("%s: %v", op.ID, err)
			}
			s.note(op.ID, r, body)
			if h := f.Handlers[op.ID]; h != nil {
				h(w, r)
				return
			}
			status := op.Statuses[0]
			if status == http.StatusNoContent {
				w.WriteHeader(status)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if kind := f.Types[op.ID]; kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, f.Examples[op.ID]) // the client may have disconnected
		})
	}
	for path, h := range f.Beside {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			s.note(path, r, nil)
			h(w, r)
		})
	}
	hs := httptest.NewServer(contracttest.New(f.Contract, f.BasePath).Wrap(t, mux))
	t.Cleanup(hs.Close)
	s.URL = hs.URL
	return s
}

func (s *Service) note(call string, r *http.Request, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.auth = append(s.calls, call), r.Header.Get("Authorization")
	if len(body) > 0 {
		s.body = string(body)
	}
}

// Called returns the ids of the operations that were called, separated by spaces, or the paths of what is beside the
// API.
func (s *Service) Called() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.calls, " ")
}

// Auth returns the last request's Authorization header.
func (s *Service) Auth() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.auth
}

// Body returns the last body that a request had.
func (s *Service) Body() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body
}

// Run runs a command line in a folder, and returns its exit code and what it prints.
func Run(t *testing.T, dir, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Main(t.Context(), args, cli.IO{
		In: strings.NewReader(stdin), Out: &o, Err: &e, Dir: dir, ConfigDir: "/nonexistent",
		Getenv: func(string) string { return "" },
	})
	return code, o.String(), e.String()
}
