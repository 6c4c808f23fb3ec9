package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/oapi-codegen/runtime"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Mux registers a contract's operations. The pattern is one of http.ServeMux:
// "GET /api/v1/sites/{id}".
type Mux interface {
	HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request))
}

// Serve returns the handler of an operation: bind decodes the request, call serves it, and write
// sends the response. fail sends errors; once the response's header was sent, it can only log them.
func Serve[Q, A any](
	fail httpserve.ErrorRenderer, bind func(*Input, *Q), call func(context.Context, Q) (A, error),
	write func(A, http.ResponseWriter) error,
) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		in, request := Input{r: r}, *new(Q)
		if bind(&in, &request); in.err != nil {
			fail(w, r, in.err)
			return
		}
		answer, err := call(r.Context(), request)
		switch {
		case err != nil:
		case any(answer) == nil:
			err = errors.New("the operation has no answer")
		default:
			err = write(answer, w)
		}
		if err != nil {
			fail(w, r, err)
		}
	}
}

// Input decodes a request. It keeps its first error, which ends the request.
type Input struct {
	r     *http.Request
	query url.Values
	err   error
}

// Path decodes a path parameter into to, a pointer.
func (in *Input) Path(name string, to any) {
	in.keep(name, runtime.BindStyledParameterWithOptions("simple", name, in.r.PathValue(name), to,
		runtime.BindStyledParameterOptions{
			ParamLocation: runtime.ParamLocationPath, Required: true, ValueIsUnescaped: true,
		}))
}

// Query decodes a query parameter into to, a pointer. A list is sent by repeating the parameter.
func (in *Input) Query(name string, required bool, to any) {
	if in.query == nil {
		in.query = in.r.URL.Query()
	}
	in.keep(name, runtime.BindQueryParameterWithOptions("form", true, required, name, in.query, to,
		runtime.BindQueryParameterOptions{}))
}

// Header decodes a header into to, a pointer. The header must not be sent more than once.
func (in *Input) Header(name string, required bool, to any) {
	switch values := in.r.Header.Values(name); {
	case len(values) == 1:
		in.keep(name, runtime.BindStyledParameterWithOptions("simple", name, values[0], to,
			runtime.BindStyledParameterOptions{ParamLocation: runtime.ParamLocationHeader, Required: required}))
	case len(values) > 1:
		in.keep(name, fmt.Errorf("sent %d times", len(values)))
	case required:
		in.keep(name, errors.New("missing"))
	}
}

// Cookie decodes a cookie into to, a pointer.
func (in *Input) Cookie(name string, required bool, to any) {
	cookie, err := in.r.Cookie(name)
	switch {
	case err == nil:
		in.keep(name, runtime.BindStyledParameterWithOptions("simple", name, cookie.Value, to,
			runtime.BindStyledParameterOptions{ParamLocation: runtime.ParamLocationCookie, Required: required}))
	case required:
		in.keep(name, errors.New("missing"))
	}
}

func (in *Input) keep(name string, err error) {
	if err == nil || in.err != nil {
		return
	}
	f := fault.Wrap(fault.Invalid, err, "%s: not a valid value", name)
	f.Field = name
	in.err = f
}

// Is reports whether the body has this media type. Operations that accept several types use it to
// choose.
func (in *Input) Is(mediaType string) bool {
	return strings.HasPrefix(in.ContentType(), mediaType)
}

// ContentType returns the Content-Type header.
func (in *Input) ContentType() string { return in.r.Header.Get("Content-Type") }

// Multipart returns a reader for the parts of a multipart/form-data body.
func (in *Input) Multipart() *multipart.Reader {
	parts, err := in.r.MultipartReader()
	if err != nil && in.err == nil {
		in.err = fault.Wrap(fault.Invalid, err, "the request body is not a valid form of several parts")
	}
	return parts
}

// Body returns the raw body. SizeOf returns its length.
func (in *Input) Body() io.Reader { return sized{in.r.Body, in.r.ContentLength} }

type sized struct {
	io.Reader
	size int64
}

// Read converts errors with BodyError, so that an incomplete body is the client's fault.
func (b sized) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = httpserve.BodyError(err)
	}
	return n, err
}

// SizeOf returns the length of an operation's body in bytes, or -1 if the client did not send it.
func SizeOf(body io.Reader) int64 {
	if s, ok := body.(sized); ok {
		return s.size
	}
	return -1
}

// JSON decodes a JSON body. It returns nil if there is no body and none is required.
func JSON[T any](in *Input, required bool) *T {
	body := new(T)
	switch err := json.NewDecoder(in.r.Body).Decode(body); {
	case err == nil:
		return body
	case !required && errors.Is(err, io.EOF):
	case in.err == nil:
		in.err = in.bodyFault(err, reflect.TypeFor[T]())
	}
	return nil
}

// bodyFault converts an error from decoding a JSON body into a value of type t. It names the field
// if the body can be read again, as package contract leaves it.
func (in *Input) bodyFault(err error, t reflect.Type) error {
	body, ok := in.r.Body.(io.ReadSeeker)
	if !ok {
		return httpserve.BodyError(err)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return httpserve.BodyError(err)
	}
	raw, readErr := io.ReadAll(body)
	if readErr != nil || !json.Valid(raw) {
		return httpserve.BodyError(err)
	}
	if path, cause, ok := locate(raw, t); ok {
		return httpserve.FieldError(path, cause)
	}
	return httpserve.BodyError(err)
}

// Text reads a text body. It returns nil if there is no body and none is required.
func Text[T ~string](in *Input, required bool) *T {
	text, err := io.ReadAll(in.r.Body)
	if err != nil && in.err == nil {
		in.err = httpserve.BodyError(err)
	}
	if len(text) == 0 && !required {
		return nil
	}
	body := T(text)
	return &body
}

// Form decodes an application/x-www-form-urlencoded body.
func Form[T any](in *Input) *T {
	body := new(T)
	err := in.r.ParseForm()
	if err == nil {
		err = runtime.BindForm(body, in.r.PostForm, nil, nil)
	}
	if err != nil && in.err == nil {
		in.err = fault.Wrap(fault.Invalid, err, "the request body is not a valid form")
	}
	return body
}

// Enveloper is a ResponseWriter that wraps response bodies in an envelope, such as
// {"success": true, "data": …}.
type Enveloper interface {
	http.ResponseWriter
	// Envelope returns the value to send instead of body.
	Envelope(status int, body any) any
}

// WriteJSON sends body as JSON, wrapped by w's Envelope if w is an Enveloper. header alternates
// names and values; a nil pointer omits the header. Nothing is sent if body cannot be encoded.
func WriteJSON(w http.ResponseWriter, status int, contentType string, body any, header ...any) error {
	if e, ok := w.(Enveloper); ok {
		body = e.Envelope(status, body)
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(body); err != nil {
		return err
	}
	writeHead(w, status, contentType, header)
	_, err := text.WriteTo(w)
	return err
}

// WriteText sends text.
func WriteText(w http.ResponseWriter, status int, contentType, text string, header ...any) error {
	writeHead(w, status, contentType, header)
	_, err := io.WriteString(w, text)
	return err
}

// WriteStream sends body, which must have length bytes; 0 means unknown. It closes body if it is an
// io.Closer.
func WriteStream(
	w http.ResponseWriter, status int, contentType string, body io.Reader, length int64, header ...any,
) error {
	if c, ok := body.(io.Closer); ok {
		defer func() { _ = c.Close() }() // read only
	}
	if length != 0 {
		header = append(header, "Content-Length", length)
	}
	writeHead(w, status, contentType, header)
	_, err := io.Copy(w, body)
	return err
}

// WriteNothing sends a response without a body.
func WriteNothing(w http.ResponseWriter, status int, header ...any) error {
	writeHead(w, status, "", header)
	return nil
}

func writeHead(w http.ResponseWriter, status int, contentType string, header []any) {
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if value, ok := deref(header[i+1]); ok {
			w.Header().Set(fmt.Sprint(header[i]), fmt.Sprint(value))
		}
	}
	w.WriteHeader(status)
}
