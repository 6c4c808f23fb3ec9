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

// Service describes a service to its commands: its credential, and hints for errors.
type Service struct {
	// Unit is its name in the table of package app and in the credentials of dev mode.
	Unit string
	// Credential is the name of the one that dev mode creates for commands; empty if they need
	// none.
	Credential string
	// Name is its name in sentences: "the load balancer".
	Name string
	// Kind is its name with the indefinite article, and Title the title of its contract.
	Kind, Title string
	// Flag is the flag that sets its address: "--server".
	Flag string
	// Start is a text with the commands that start it on this machine, in quotes.
	Start string
	// Hints maps the status of a refusal to a hint on what to do next.
	Hints map[int]string
	// CodeHints maps the code of a refusal to a hint on what to do next.
	CodeHints map[string]string
	// LimitHint is the hint for a refusal because of a quota. Empty: that of the status.
	LimitHint string
}

// DevCredential returns the secret that dev mode created for commands that talk to the service.
func (s *Service) DevCredential(env Environment, server *url.URL) (string, error) {
	return env.DevCredential(server, s.Unit, s.Credential)
}

// Answer is a successful response.
type Answer struct {
	Header http.Header
	Body   []byte
}

// Read reads a response. It takes the results of a generated client's method. The error has an exit
// code.
func (s *Service) Read(r *http.Response, err error) (Answer, error) {
	body, err := rest.Read(r, err)
	if err != nil {
		return Answer{}, s.Explain(err)
	}
	return Answer{r.Header, body}, nil
}

// Open is Read for a response whose body the caller reads and closes.
func (s *Service) Open(r *http.Response, err error) (*http.Response, error) {
	if err == nil && r.StatusCode < 400 {
		return r, nil
	}
	_, err = s.Read(r, err)
	return nil, err
}

// Decode decodes a response of the service.
func Decode[T any](s *Service, a Answer, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		return v, exit.Hinted(output.BadAnswer(err),
			fmt.Sprintf("is %s %s, and of this version?", s.Flag, s.Name))
	}
	return v, nil
}

// Explain converts an error of package rest to one with an exit code and a hint.
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
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Code = exit.Unavailable
	}
	after := ""
	if text := r.Header.Get("Retry-After"); text != "" {
		after = fmt.Sprintf("try again in %s s", output.Escape(text))
	}
	quota := ""
	if r.Limit != "" {
		quota = s.LimitHint
	}
	e.Hint = cmp.Or(s.CodeHints[r.Code], after, quota, s.Hints[r.Status])
	return e
}

// refused is a refusal with its text for people.
type refused struct {
	refusal *rest.Refusal
	text    string
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.refusal }

// requestIDHeader holds the id under which the server has logged a request.
const requestIDHeader = "X-Request-Id"

// refusalText returns the server's message with code, field, limit and request id, unless the
// message already contains the id. A response that does not come from the service, such as a
// proxy's, has no message; its status is used instead.
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
