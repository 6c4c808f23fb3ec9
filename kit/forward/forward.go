// Package forward passes a request of a caller on to another service of Mainstay, and its answer back.
// Both ways, bodies are streamed.
//
// The forwarding service has identified and admitted the caller, and checked the request. The other service
// gets its credentials, not the caller's.
//
// # Invariants
//
//   - Only known headers pass, both ways: the others concern one of the two connections, or are secrets.
//   - The answer is not trusted: only media types pass that no browser runs, redirects are not followed, and
//     a socket opens only if the caller asked for one. A link to the next page leads to the forwarding
//     service.
//   - Either the answer begins, or the caller gets an error: never both.
//
// It imports fault, list and rest.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Headers that are forwarded.
var (
	requestHeaders = []string{
		"Accept", "Content-Type", "Expect", "Idempotency-Key", "Last-Event-Id", "Traceparent", "Tracestate",
	}
	handshakeHeaders = []string{
		"Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol",
	}
	answerHeaders = []string{
		"Cache-Control", "Content-Disposition", "Content-Length", "Content-Type", "Retry-After", "X-File-Mode",
		"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
	}
)

// answerTypes are the media types of answers. No browser runs what has one of these.
var answerTypes = []string{
	"application/json", "application/octet-stream", "application/x-ndjson", "text/event-stream",
}

// maxCursor is the length of the longest cursor that is passed on, in bytes.
const maxCursor = 512

// Target is where a request is forwarded to.
type Target struct {
	URL       *url.URL
	Header    http.Header // the forwarding service's credentials, and for whom it asks
	Transport http.RoundTripper
	// Socket says that the request is a valid handshake of a WebSocket.
	Socket bool
	// Refused returns the error of an answer with a status of 400 or more, which it may read. Nil: such
	// answers are passed on.
	Refused func(*http.Response) error
}

// StatusError is an answer with a status that is not a service's of Mainstay.
type StatusError int

func (s StatusError) Error() string {
	return fmt.Sprintf("it answers %d, and not as a daemon does", int(s))
}

// Garbage is an answer that no service of Mainstay would give. It says why.
type Garbage string

func (g Garbage) Error() string { return string(g) }

// Serve forwards a request, and writes the answer. It ends with the request's context. It returns the status
// that was answered, or an error if nothing was: StatusError, Garbage, context.Canceled if the caller has
// left, a fault TooLarge if its body is too large, or the transport's error.
func Serve(w http.ResponseWriter, r *http.Request, to Target) (status int, err error) {
	var failed error
	proxy := httputil.ReverseProxy{
		Transport:     to.Transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // what can be said is in the answer
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host, p.Out.Header = to.URL, "", to.headers(p.In.Header)
		},
		ModifyResponse: func(res *http.Response) error { return to.check(res, r.URL) },
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	out := &answer{ResponseWriter: w, header: http.Header{}}
	proxy.ServeHTTP(out, r)
	switch {
	case failed == nil || out.status != 0:
		return out.status, nil
	case errors.Is(r.Context().Err(), context.Canceled):
		return 0, context.Canceled // the caller has left, or may not ask any longer
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(failed, &tooLarge) {
		return 0, fault.Wrap(fault.TooLarge, failed, "the request body is larger than %d bytes", tooLarge.Limit)
	}
	return 0, failed
}

// headers returns the headers of the forwarded request.
func (to *Target) headers(in http.Header) http.Header {
	names := requestHeaders
	if to.Socket {
		names = slices.Concat(requestHeaders, handshakeHeaders)
	}
	out := http.Header{}
	for _, name := range names {
		if values := in.Values(name); len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	maps.Copy(out, to.Header)
	return out
}

// check returns an error unless an answer has the form of a service's. It removes headers that are not
// passed on, and makes a link to the next page lead to here, the caller's own address of the page.
func (to *Target) check(res *http.Response, here *url.URL) error {
	next := rest.NextCursor(res.Header)
	maps.DeleteFunc(res.Header, func(name string, _ []string) bool { return !slices.Contains(answerHeaders, name) })
	res.Trailer = nil
	if next != "" && len(next) <= maxCursor {
		res.Header.Set("Link", list.NextLink(here, next))
	}
	res.Header.Set("X-Content-Type-Options", "nosniff")
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		if !to.Socket {
			return Garbage("it opens a socket that nobody asked for")
		}
		return nil
	case res.StatusCode == http.StatusNoContent:
		res.Header.Del("Content-Type")
		return nil
	case res.StatusCode >= http.StatusBadRequest && to.Refused != nil:
		return to.Refused(res)
	case res.StatusCode == http.StatusUnauthorized,
		res.StatusCode >= http.StatusMultipleChoices && res.StatusCode < http.StatusBadRequest,
		res.StatusCode < http.StatusOK:
		return StatusError(res.StatusCode)
	case res.StatusCode >= http.StatusBadRequest && kind != "application/json":
		return StatusError(res.StatusCode)
	case !slices.Contains(answerTypes, kind):
		return Garbage("its answer is not in the form of a daemon's")
	}
	if !to.Socket {
		res.Header.Del("Connection")
		res.Header.Del("Upgrade")
	}
	return nil
}

// answer is the writer of an answer. It keeps the other service's headers apart until the answer begins, so
// that interim answers (1xx) cannot change those that the forwarding service has set.
type answer struct {
	http.ResponseWriter
	header http.Header
	status int // 0: it has not begun
}

func (w *answer) Header() http.Header { return w.header }

func (w *answer) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	maps.Copy(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
