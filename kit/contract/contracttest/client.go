package contracttest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/problem"
)

// Request is a request for Send.
type Request struct {
	Method, URL string
	Token       string // bearer token; empty: none
	// Body is sent unchanged if it is a string or bytes, otherwise as JSON. Nil means no body.
	Body any
	// Header adds to or replaces the headers that Token and Body imply. A header with an empty
	// value is not sent.
	Header map[string]string
}

// Answer is a complete response. Its methods fail the test that sent the request.
type Answer struct {
	testing.TB
	What   string // method and URL
	Status int
	Header http.Header
	Body   string
}

// sendLimit is how long Send waits for the complete response.
const sendLimit = 3 * time.Minute

// Send sends a request and reads the response. It does not follow redirects. A nil client means
// http.DefaultClient. Send also works during test cleanup, when the test's context has ended.
func Send(t testing.TB, client *http.Client, r Request) Answer {
	t.Helper()
	var body io.Reader
	kind := "application/json"
	switch b := r.Body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	case []byte:
		body, kind = bytes.NewReader(b), "application/octet-stream"
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(encoded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), sendLimit)
	defer cancel()
	if t.Context().Err() == nil {
		stop := context.AfterFunc(t.Context(), cancel)
		defer stop()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	for name, value := range r.Header {
		if value == "" {
			req.Header.Del(name)
			continue
		}
		req.Header.Set(name, value)
	}
	what := r.Method + " " + r.URL
	if client == nil {
		client = http.DefaultClient
	}
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := direct.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return Answer{t, what, res.StatusCode, res.Header, string(raw)}
}

// Want ends the test unless the response has the status.
func (a Answer) Want(status int) Answer {
	a.Helper()
	if a.Status != status {
		a.Fatalf("%s: answered %d, want %d: %s", a.What, a.Status, status, a.Body)
	}
	return a
}

// Refused fails the test unless the response is an error with this status, code and field. field is
// empty for an error that is not about a field.
func (a Answer) Refused(status int, code, field string) Answer {
	a.Helper()
	a.Want(status)
	if p := a.Problem(); p.Code != code || p.Field != field {
		a.Errorf("%s: answered code %q, field %q; want code %q, field %q: %s",
			a.What, p.Code, p.Field, code, field, a.Body)
	}
	return a
}

// Limited is like Refused, for an error that names a limit.
func (a Answer) Limited(status int, code, field, limit string) Answer {
	a.Helper()
	a.Refused(status, code, field)
	if p := a.Problem(); p.Limit != limit {
		a.Errorf("%s: answered limit %q, want %q: %s", a.What, p.Limit, limit, a.Body)
	}
	return a
}

// Problem returns the error in the response. It must have a message and, where the contract's error
// bodies have a code, the request's id.
func (a Answer) Problem() problem.Problem {
	a.Helper()
	p, ok := problem.Parse([]byte(a.Body))
	if !ok || p.Message == "" || p.Code != "" && p.RequestID == "" {
		a.Errorf("%s: this is not a whole error: %s", a.What, a.Body)
	}
	return p
}

// As decodes a JSON response.
func As[T any](a Answer) T {
	a.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil {
		a.Fatalf("%s: %v: %s", a.What, err, a.Body)
	}
	return v
}
