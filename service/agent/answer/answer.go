// Package answer reads the control plane's responses. Between a site and its control plane there
// may be a captive portal, a maintenance page, or a proxy that truncates bodies. So a success
// counts only if its body matches the contract, and a refusal counts as the control plane's own
// only if it has an error code.
package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// maxRetryAfter limits the values of Retry-After that are read. Package backoff applies the
// effective limit.
const maxRetryAfter = 24 * time.Hour

// maxBytes is the maximum size of a response body.
const maxBytes = 4 << 20

// Refusal is a response other than success.
type Refusal struct {
	Status int
	// Code is empty if the response is not an error as the contract describes it.
	Code, Field, Message string
	RetryAfter           time.Duration // 0: the server did not ask for a wait
}

func (r *Refusal) Error() string {
	switch {
	case r.Code != "":
		return fmt.Sprintf("the server answered %d %s: %s", r.Status, r.Code, r.Message)
	case r.Status >= 300 && r.Status < 400:
		return fmt.Sprintf("the server answered %d, a redirect, which the agent does not follow; "+
			"is --server right, or is a login page in between?", r.Status)
	}
	return fmt.Sprintf(
		"the server answered %d without an error code of the control plane; is a proxy in between?",
		r.Status,
	)
}

// EndsSite reports whether the control plane has revoked the site. Only this error code means that:
// a control plane that was restored from an old backup answers 401 for a while, and a proxy can
// answer anything.
func (r *Refusal) EndsSite() bool {
	return (r.Status == http.StatusForbidden || r.Status == http.StatusUnauthorized) && r.Code == "site_revoked"
}

// Final reports whether the same request would always be refused. Only responses of the control
// plane itself can be final.
func (r *Refusal) Final() bool {
	switch r.Status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return r.Code != "" && !r.EndsSite()
	}
	return false
}

// LinkError is returned if there was no response, or only part of one.
type LinkError struct{ Err error }

func (e *LinkError) Error() string { return e.Err.Error() }
func (e *LinkError) Unwrap() error { return e.Err }

// Invalid is a success whose body does not match the contract. Treat the data that was sent as not
// received.
type Invalid struct{ Reason string }

func (e *Invalid) Error() string { return e.Reason }

// NewInvalid returns an Invalid with the problem of a response.
func NewInvalid(format string, args ...any) *Invalid {
	return &Invalid{"the server's answer is not as the contract says: " + fmt.Sprintf(format, args...)}
}

// Body is the body of a success, with the response's header.
type Body struct {
	Text   []byte
	Header http.Header
}

// Read takes the results of a method of the generated client, and returns the body of a success. It
// returns a *Refusal for other responses, and a *LinkError if there is no complete response.
func Read(res *http.Response, err error) (Body, error) {
	if err != nil {
		return Body{}, &LinkError{err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBytes+1))
	if err != nil {
		return Body{}, &LinkError{fmt.Errorf("the server's answer ends too early: %w", err)}
	}
	if len(text) > maxBytes {
		return Body{}, NewInvalid("it is larger than %d bytes", maxBytes)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return Body{text, res.Header}, nil
	}
	r := &Refusal{Status: res.StatusCode}
	r.RetryAfter, _ = webhook.RetryAfter(res.Header, time.Now(), maxRetryAfter)
	if p, ok := problem.Parse(text); ok {
		r.Code, r.Message, r.Field = p.Code, p.Message, p.Field
	}
	return Body{}, r
}

// Decode decodes the body of a success. It returns an error if a field is missing that the contract
// requires.
func Decode[T any](body Body, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if !json.Valid(body.Text) {
		kind := body.Header.Get("Content-Type")
		if looksLikeHTML(body.Text) {
			kind = "a web page"
		}
		if kind == "" {
			kind = "of an unknown type"
		}
		return v, NewInvalid("it is not JSON (%.64s); is a proxy, a login page or a maintenance page in between?", kind)
	}
	if err := required[T](body.Text); err != nil {
		return v, err
	}
	if err := json.Unmarshal(body.Text, &v); err != nil {
		return v, NewInvalid("%v", err)
	}
	return v, nil
}

func looksLikeHTML(text []byte) bool {
	return strings.HasPrefix(strings.ToLower(string(bytes.TrimSpace(text[:min(len(text), 64)]))), "<")
}

// RetryAfter returns the wait that the server requested with an error, or 0.
func RetryAfter(err error) time.Duration {
	var r *Refusal
	if errors.As(err, &r) {
		return r.RetryAfter
	}
	return 0
}
