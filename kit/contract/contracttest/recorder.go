// Package contracttest verifies in tests that a service's responses match its contract. A Recorder
// wraps the service's handler, checks every response against the document and records which
// operations were exercised with which status.
package contracttest

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/contract"
)

// Recorder checks and counts responses. It is safe for concurrent use.
type Recorder struct {
	contract *contract.Contract
	basePath string
	mux      *http.ServeMux

	mu   sync.Mutex
	seen map[string]map[int]int // operation id -> status -> count
}

// New returns a Recorder for the contract.
func New(c *contract.Contract, basePath string) *Recorder {
	r := &Recorder{contract: c, basePath: basePath, mux: http.NewServeMux(), seen: map[string]map[int]int{}}
	for _, op := range c.Operations() {
		r.mux.HandleFunc(op.Pattern, func(http.ResponseWriter, *http.Request) {})
	}
	return r
}

// statusClientClosed is what services answer clients that have left.
const statusClientClosed = 499

// Wrap returns a handler that serves like next and fails t if a response does not match the
// contract. Streams (text/event-stream) and sockets are not checked.
func (rec *Recorder) Wrap(t testing.TB, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := rec.mux.Handler(r)
		op, known := rec.contract.Operation(pattern)
		if !known {
			next.ServeHTTP(w, r)
			return
		}
		if r.Header.Get("Accept") == "text/event-stream" || r.Header.Get("Upgrade") != "" {
			stream := &streamWriter{ResponseWriter: w, begun: func(status int) { rec.count(op.ID, status) }}
			next.ServeHTTP(stream, r)
			return
		}
		answer := httptest.NewRecorder()
		answer.Body = new(bytes.Buffer)
		next.ServeHTTP(answer, r)
		if answer.Code == statusClientClosed && r.Context().Err() != nil {
			return // the client has left: nobody gets this answer
		}
		rec.count(op.ID, answer.Code)
		if err := op.CheckResponse(
			withPathValues(r, rec.mux), answer.Code, answer.Header(), answer.Body.Bytes(),
		); err != nil {
			t.Errorf(
				"%s %s answered %d against the contract: %v\nbody: %s", r.Method, r.URL.Path, answer.Code, err,
				answer.Body,
			)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// streamWriter passes a stream through and records its status.
type streamWriter struct {
	http.ResponseWriter
	begun func(status int)
	wrote bool
}

func (w *streamWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote = true
		w.begun(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *streamWriter) Write(b []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Hijack gives the connection away. Proxies do that without a status: the connection is a socket.
func (w *streamWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !w.wrote {
		w.wrote = true
		w.begun(http.StatusSwitchingProtocols)
	}
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// withPathValues matches r, so that r.PathValue returns the same as in the handler.
func withPathValues(r *http.Request, mux *http.ServeMux) *http.Request {
	c := r.Clone(r.Context())
	c.Body = http.NoBody
	mux.ServeHTTP(httptest.NewRecorder(), c)
	return c
}

func (rec *Recorder) count(id string, status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.seen[id] == nil {
		rec.seen[id] = map[int]int{}
	}
	rec.seen[id][status]++
}

// Missing lists the outcomes that no request has produced yet: for every operation a success and,
// unless it is open, a 401 and a 403 (operations of class anyClass admit every token, so they
// cannot return 403).
func (rec *Recorder) Missing(openClass, anyClass string) []string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var missing []string
	for _, op := range rec.contract.Operations() {
		got := rec.seen[op.ID]
		success := false
		for status := range got {
			success = success || status < 400
		}
		if !success {
			missing = append(missing, fmt.Sprintf("%s: no success", op.ID))
		}
		if op.Access == openClass {
			continue
		}
		if got[http.StatusUnauthorized] == 0 {
			missing = append(missing, fmt.Sprintf("%s: no 401", op.ID))
		}
		if op.Access != anyClass && got[http.StatusForbidden] == 0 {
			missing = append(missing, fmt.Sprintf("%s: no 403", op.ID))
		}
	}
	slices.Sort(missing)
	return missing
}

// Report returns a line per operation with the statuses seen, for test logs.
func (rec *Recorder) Report() string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var b strings.Builder
	for _, op := range rec.contract.Operations() {
		fmt.Fprintf(&b, "%-24s %v\n", op.ID, rec.seen[op.ID])
	}
	return b.String()
}
