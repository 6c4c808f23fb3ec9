package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Service is what commands know of the service that they ask: its credential, and the errors
// that they end with.
type Service struct {
	// Unit is its name in the table of package app, and in the credentials of dev mode.
	Unit string
	// Credential is the name of the one that dev mode leaves for commands; empty: they need none.
	Credential string
	// Name is what it is called: "the load balancer".
	Name string
	// Flag is the flag that says where it is: "--server".
	Flag string
	// Start is the commands that start it on this machine, quoted.
	Start string
	// Hints tells what to do next, by the status of a refusal.
	Hints map[int]string
	// CodeHints tells what to do next, by the code of a refusal.
	CodeHints map[string]string
}

// DevCredential is the secret that dev mode left for commands that ask the service there.
func (s *Service) DevCredential(env Environment, server *url.URL) (string, error) {
	return env.DevCredential(server, s.Unit, s.Credential)
}

// Answer is a success.
type Answer struct {
	Header http.Header
	Body   []byte
}

// Read reads the answer to a request; it takes what a method of a generated client
// returns. The error is one that a command ends with.
func (s *Service) Read(r *http.Response, err error) (Answer, error) {
	body, err := rest.Read(r, err)
	if err != nil {
		return Answer{}, s.Explain(err)
	}
	return Answer{r.Header, body}, nil
}

// Open is Read for an answer that the caller reads piece by piece, and closes.
func (s *Service) Open(r *http.Response, err error) (*http.Response, error) {
	if err == nil && r.StatusCode < 400 {
		return r, nil
	}
	_, err = s.Read(r, err)
	return nil, err
}

// Decode makes a value of an answer of the service.
func Decode[T any](s *Service, a Answer, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		return v, exit.Hinted(fmt.Errorf("the answer is not as the API's contract says: %w", err),
			fmt.Sprintf("is %s %s, and of this version?", s.Flag, s.Name))
	}
	return v, nil
}

// Explain makes of an error of package rest one that a command ends with.
func (s *Service) Explain(err error) error {
	var r *rest.Refusal
	if !errors.As(err, &r) {
		return s.failure(err)
	}
	e := &exit.Error{Code: exit.Failure, Err: &refused{r, refusalText(r)}}
	switch r.Status {
	case http.StatusNotFound:
		e.Code = exit.NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Code = exit.Denied
	}
	after := ""
	if text := r.Header.Get("Retry-After"); text != "" {
		after = fmt.Sprintf("try again in %s s", output.Escape(text))
	}
	e.Hint = cmp.Or(s.CodeHints[r.Code], after, s.Hints[r.Status])
	return e
}

// refused is a refusal with the text that people read.
type refused struct {
	refusal *rest.Refusal
	text    string
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.refusal }

// requestIDHeader carries the id under which the server has logged a request.
const requestIDHeader = "X-Request-Id"

// refusalText is what the server says, with code, field, limit and request id, unless
// what it says has the id already. An answer that is none of the service's, as a
// proxy's, has no message; its status stands for it.
func refusalText(r *rest.Refusal) string {
	message := r.Message
	if message == "" {
		message = fmt.Sprintf("the server answered %d %s", r.Status, http.StatusText(r.Status))
	}
	var details []string
	for _, d := range []struct{ name, value string }{{"code", r.Code}, {"field", r.Field}, {"limit", r.Limit}} {
		if d.value != "" {
			details = append(details, d.name+" "+d.value)
		}
	}
	if id := cmp.Or(r.RequestID, r.Header.Get(requestIDHeader)); id != "" && !strings.Contains(message, id) {
		details = append(details, "request id "+id)
	}
	if len(details) > 0 {
		message = fmt.Sprintf("%s (%s)", message, strings.Join(details, ", "))
	}
	return output.Escape(message)
}
