package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/oapi-codegen/runtime"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

// Doer sends requests. *http.Client implements it.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Editor changes a request before it is sent, for example to add a credential. If it fails, the
// request is not sent and returns its error.
type Editor func(context.Context, *http.Request) error

// Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	server  *url.URL
	http    Doer
	editors []Editor
}

// Option configures a Client.
type Option func(*Client)

// WithHTTPClient returns an option that sends requests through d instead of a new http.Client.
func WithHTTPClient(d Doer) Option { return func(c *Client) { c.http = d } }

// WithEditor returns an option that applies e to every request.
func WithEditor(e Editor) Option {
	return func(c *Client) { c.editors = append(c.editors, e) }
}

// NewClient returns a Client for the server at a base URL, which may have a path.
func NewClient(server string, options ...Option) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(server, "/") + "/")
	if err != nil {
		return nil, err
	}
	c := &Client{server: base, http: &http.Client{}}
	for _, o := range options {
		o(c)
	}
	return c, nil
}

// Send sends a request. The caller must close the response's body; Do and Read do so.
func (c *Client) Send(ctx context.Context, out *Output, editors []Editor) (*http.Response, error) {
	if out.err != nil {
		return nil, out.err
	}
	target, err := c.server.Parse("." + out.path)
	if err != nil {
		return nil, err
	}
	target.RawQuery = strings.Join(out.query, "&")
	r, err := http.NewRequestWithContext(ctx, out.method, target.String(), out.body)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, out.header)
	for _, list := range [][]Editor{c.editors, editors} {
		for _, edit := range list {
			if err := edit(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	return c.http.Do(r)
}

// Output is a request to be sent. It keeps its first error, which Send returns.
type Output struct {
	method, path string
	query        []string
	header       http.Header
	body         io.Reader
	err          error
}

// To starts a request to a path of the contract, such as /sites/{id}.
func To(method, path string) *Output {
	return &Output{method: method, path: path, header: http.Header{}}
}

// Path sets a path parameter.
func (out *Output) Path(name string, value any) *Output {
	text, err := style("simple", false, name, value, runtime.ParamLocationPath)
	out.keep(err)
	out.path = strings.Replace(out.path, "{"+name+"}", text, 1)
	return out
}

// Query adds a query parameter. A nil pointer adds none; a list adds one parameter per item.
func (out *Output) Query(name string, value any) {
	if v, ok := deref(value); ok {
		text, err := style("form", true, name, v, runtime.ParamLocationQuery)
		out.keep(err)
		out.query = append(out.query, text)
	}
}

// Header sets a header. A nil pointer sets none.
func (out *Output) Header(name string, value any) {
	if v, ok := deref(value); ok {
		text, err := style("simple", false, name, v, runtime.ParamLocationHeader)
		out.keep(err)
		out.header.Set(name, text)
	}
}

// Cookie adds a cookie. A nil pointer adds none.
func (out *Output) Cookie(name string, value any) {
	if v, ok := deref(value); ok {
		text, err := style("simple", false, name, v, runtime.ParamLocationCookie)
		out.keep(err)
		out.header.Add("Cookie", (&http.Cookie{Name: name, Value: text}).String())
	}
}

// Body sets the body and its content type.
func (out *Output) Body(contentType string, body io.Reader) *Output {
	out.header.Set("Content-Type", contentType)
	out.body = body
	return out
}

// JSON sets a JSON body.
func (out *Output) JSON(contentType string, body any) *Output {
	text, err := json.Marshal(body)
	out.keep(err)
	return out.Body(contentType, bytes.NewReader(text))
}

// Form sets a body of type application/x-www-form-urlencoded.
func (out *Output) Form(body any) *Output {
	values, err := runtime.MarshalForm(body, nil)
	out.keep(err)
	return out.Body("application/x-www-form-urlencoded", strings.NewReader(values.Encode()))
}

func (out *Output) keep(err error) {
	if out.err == nil {
		out.err = err
	}
}

func style(style string, explode bool, name string, value any, in runtime.ParamLocation) (string, error) {
	return runtime.StyleParamWithOptions(style, explode, name, value, runtime.StyleParamOptions{ParamLocation: in})
}

// deref follows a pointer. ok is false if it is nil.
func deref(value any) (any, bool) {
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid():
		return nil, false
	case v.Kind() != reflect.Pointer:
		return value, true
	case v.IsNil():
		return nil, false
	}
	return v.Elem().Interface(), true
}

// maxAnswer limits what Do and Read read, in bytes. The VMs of a large fleet fit.
const maxAnswer = 256 << 20

// Refusal is a response other than a success. The problem is empty if the response is not a
// contract error, for example a proxy's error page.
type Refusal struct {
	problem.Problem
	Status int
	Header http.Header
}

func (r *Refusal) Error() string {
	if r.Message == "" {
		return fmt.Sprintf("the server answered %d without an error of its contract", r.Status)
	}
	return fmt.Sprintf("the server answered %d %s: %s", r.Status, r.Code, r.Message)
}

// Do decodes a JSON response. It takes the results of a generated client's method. If the response
// is not a success, the error is a *Refusal.
func Do[T any](r *http.Response, err error) (T, error) {
	var v T
	body, err := Read(r, err)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(body, &v); err != nil {
		if path, cause, ok := locate(body, reflect.TypeFor[T]()); ok && path != "" {
			err = httpserve.FieldError(path, cause) // in the contract's words rather than in Go's
		}
		return v, fmt.Errorf("the server's answer is not as the contract says: %w", err)
	}
	return v, nil
}

// Read returns the body of a successful response. It takes the results of a generated client's
// method. If the response is not a success, the error is a *Refusal.
func Read(r *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }() // read only
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server's answer ends too early: %w", err)
	case len(body) > maxAnswer:
		return nil, errors.New("the server's answer is larger than 256 MiB")
	case r.StatusCode < 200 || r.StatusCode > 299:
		return nil, refusal(r, body)
	}
	return body, nil
}

func refusal(r *http.Response, body []byte) error {
	p, _ := problem.Parse(body)
	for _, text := range []*string{&p.Code, &p.Message, &p.Field, &p.Limit, &p.RequestID} {
		*text = clip(*text)
	}
	return &Refusal{Problem: p, Status: r.StatusCode, Header: r.Header}
}

// maxText limits each text of a refusal, in bytes, since callers log and store them.
const maxText = 4 << 10

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// NextCursor returns the cursor in the Link header's rel="next" (RFC 8288), or "" on the last page.
// The rest of the link equals the client's own request.
func NextCursor(h http.Header) string {
	for _, line := range h.Values("Link") {
		for link := range strings.SplitSeq(line, ",") {
			target, params, _ := strings.Cut(strings.TrimSpace(link), ">")
			if !strings.Contains(params, `rel="next"`) && !strings.Contains(params, "rel=next") {
				continue
			}
			if u, err := url.Parse(strings.TrimPrefix(target, "<")); err == nil {
				return u.Query().Get("cursor")
			}
		}
	}
	return ""
}
