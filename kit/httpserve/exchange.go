package httpserve

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// exchange records a request and its response. It is the ResponseWriter that handlers see, and it
// is in the request's context, so that all middlewares share it. It belongs to the goroutine that
// serves the request.
type exchange struct {
	w      http.ResponseWriter
	start  time.Time
	shared bool // it is in the request's context; false if only Mux uses it

	id      string
	idValue [1]string // backing of the response header, to save an allocation

	// routed is the request that the innermost Mux saw. ServeMux stores the pattern in exactly that
	// request, and outer middlewares no longer have it once anything in between has called
	// WithContext.
	routed *http.Request
	// unmatched makes WriteHeader swallow the ServeMux's own error response. swallowed then holds
	// its status.
	unmatched bool
	swallowed int

	lasting bool // Lasting was called
	http1   bool
	body    *leastRateBody // nil: there is no body, or the server has no deadlines
	client  netip.Addr     // the client, if a trusted proxy reports it
	// The request counts against LimitInFlight until it ends or becomes a stream.
	counted  *http.Request
	inFlight *atomic.Int64
	streams  *Slots
	waits    *Slots
	owner    string // of streams (StreamOwner); empty: whose credentials the request has
	reserved func() // releases what ReserveStream has taken; nil once the connection is hijacked

	status int   // 0 until the final header is written
	bytes  int64 // of the body
	stream bool  // lasts until the client disconnects, so its duration is meaningless
}

type exchangeKey struct{}

// track returns the exchange of the request, and the writer and request for the next handler. The
// first middleware creates the exchange.
func track(w http.ResponseWriter, r *http.Request) (*exchange, http.ResponseWriter, *http.Request) {
	x, ok := w.(*exchange)
	if ok && x.shared {
		return x, w, r
	}
	// A foreign middleware may have wrapped the writer again; its writes still reach the shared
	// exchange.
	if outer := exchangeOf(r.Context()); outer != nil {
		return outer, w, r
	}
	if !ok {
		x = &exchange{w: w, start: time.Now()}
	}
	x.shared = true
	return x, x, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// unmatchedRoute is the route of every request that no pattern matched, so that paths chosen by
// clients do not become labels.
const unmatchedRoute = "unmatched"

func (x *exchange) route() string {
	// For CONNECT, ServeMux may put the client's path where the pattern belongs.
	if x.routed == nil || x.routed.Pattern == "" || x.routed.Method == http.MethodConnect {
		return unmatchedRoute
	}
	return x.routed.Pattern
}

// finalStatus returns the status that the client saw. A handler that returned without writing sent
// 200; one that panicked before writing will become a 500.
func (x *exchange) finalStatus(returned bool) int {
	switch {
	case x.status != 0:
		return x.status
	case returned:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

// RouteFrom returns the ServeMux pattern that matched the request, for example
// "GET /v1/sites/{id}", or "unmatched". It is known only inside the Mux.
func RouteFrom(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.route()
	}
	return unmatchedRoute
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

func (x *exchange) Header() http.Header { return x.w.Header() }

// begin records the status of a response whose header is about to be sent.
func (x *exchange) begin(status int) {
	x.status = status
	if x.body != nil {
		x.body.unread(status)
	}
}

func (x *exchange) WriteHeader(status int) {
	if x.swallowed != 0 {
		return
	}
	if status >= 400 && x.unmatched && x.routed.Pattern == "" {
		x.swallowed = status
		return
	}
	// Informational responses precede the final one; 101 is final.
	if x.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		x.begin(status)
	}
	x.w.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.swallowed != 0 {
		return len(p), nil
	}
	if x.status == 0 {
		x.begin(http.StatusOK)
	}
	n, err := x.w.Write(p)
	x.bytes += int64(n)
	return n, err
}

// ReadFrom lets the server use sendfile for files.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	if x.swallowed != 0 {
		return io.Copy(io.Discard, src)
	}
	if x.status == 0 {
		x.begin(http.StatusOK)
	}
	n, err := io.Copy(x.w, src)
	x.bytes += n
	return n, err
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// FlushError sends the header if none was sent.
func (x *exchange) FlushError() error {
	if x.swallowed != 0 {
		return nil
	}
	if x.status == 0 {
		x.begin(http.StatusOK)
	}
	return http.NewResponseController(x.w).Flush()
}

// Hijack takes over the connection. No response can be written afterwards.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	end := x.reserved
	if end == nil {
		var err error
		if end, err = x.asStream(); err != nil {
			return nil, nil, err
		}
	}
	x.reserved = nil
	c, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		end()
		return nil, nil, err
	}
	if x.status == 0 {
		x.status = http.StatusSwitchingProtocols
	}
	return &streamConn{Conn: c, end: end}, rw, nil
}

// streamConn is a hijacked connection.
type streamConn struct {
	net.Conn
	end func()
}

func (c *streamConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// innermost returns the server's own writer, for functions of net/http that use its private
// methods.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// Chain wraps h in middlewares, the first one outermost.
func Chain(h http.Handler, middlewares ...func(http.Handler) http.Handler) http.Handler {
	for _, wrap := range slices.Backward(middlewares) {
		h = wrap(h)
	}
	return h
}
