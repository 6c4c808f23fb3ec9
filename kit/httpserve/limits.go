package httpserve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// NewStreamSlots returns the slots of a server's streams: responses that last until the client disconnects.
func NewStreamSlots() *Slots { return NewSlots(maxStreams, maxStreamsOfCaller) }

// StreamKey returns the key that the streams of a request's caller are counted under.
func StreamKey(r *http.Request) string { return streamKey(r) }

// Limits on streams: responses that last until the client disconnects.
const (
	// maxStreamsOfCaller applies per caller: requests with the same credentials or, without
	// credentials, from the same network.
	maxStreamsOfCaller = 32
	maxStreams         = 2048
)

// Limits on requests that wait for something, such as the end of a job. A service that acts for many waits for more
// than a person does.
const (
	maxWaitsOfCaller = 256
	maxWaits         = 2048
)

// ErrOverloaded and ErrStreams refuse what is beyond the limits.
var (
	ErrOverloaded = fault.New(fault.Unavailable, "too many requests are in progress; try again").
			WithCode("overloaded").WithRetryAfter(time.Second)
	ErrStreams = fault.New(fault.TooMany, "too many streams are open; close some and try again").
			WithCode("too_many_streams").WithRetryAfter(5 * time.Second)
	// ErrWaits refuses requests that wait.
	ErrWaits = fault.New(fault.TooMany, "too many requests wait; ask without waiting, or try again").
			WithCode("too_many_streams").WithRetryAfter(5 * time.Second)
)

// LimitInFlight serves at most n requests at once and refuses the rest with an Unavailable fault
// that asks for a retry in one second. Refusing early keeps an overloaded service responsive.
//
// Probes (/healthz, /readyz) are never refused: an orchestrator that gets no response would restart
// a service that is merely busy. Streams, and requests that wait for something (BeginWait), count as
// requests until they begin to, and from then on against separate limits, in total and per caller.
func LimitInFlight(n int, render ErrorRenderer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		var inFlight atomic.Int64
		streams, waits := NewStreamSlots(), NewSlots(maxWaits, maxWaitsOfCaller)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isProbe(r) {
				next.ServeHTTP(w, r)
				return
			}
			x, w, r := track(w, r)
			if x.counted != nil { // by an outer limit
				next.ServeHTTP(w, r)
				return
			}
			x.counted, x.inFlight, x.streams, x.waits = r, &inFlight, streams, waits
			defer x.leave()
			defer func() {
				if x.reserved != nil {
					x.reserved() // the connection was not hijacked
				}
			}()
			if inFlight.Add(1) > int64(n) {
				render(w, r, ErrOverloaded)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// leave removes the request from the requests in flight.
func (x *exchange) leave() {
	if x.inFlight != nil {
		x.inFlight.Add(-1)
		x.inFlight = nil
	}
}

// asStream counts the request as a stream until end is called.
func (x *exchange) asStream() (end func(), err error) {
	x.stream = true
	if x.streams == nil {
		return func() {}, nil
	}
	end, ok := x.streams.Take(cmp.Or(x.owner, streamKey(x.counted)))
	if !ok {
		return nil, ErrStreams
	}
	x.leave()
	return end, nil
}

// StreamOwner has the streams of a request counted as owner's, instead of as those of its credentials.
// It is for credentials that act for many.
func StreamOwner(r *http.Request, owner string) {
	if x := exchangeOf(r.Context()); x != nil {
		x.owner = owner
	}
}

// ReserveStream counts a request as a stream before its connection is hijacked. WebSocket libraries
// hijack it only after they have responded, when it is too late to refuse. It returns a fault if
// there are too many streams.
func ReserveStream(r *http.Request) error {
	x := exchangeOf(r.Context())
	if x == nil || x.reserved != nil {
		return nil
	}
	end, err := x.asStream()
	if err != nil {
		return err
	}
	x.reserved = end
	return nil
}

// BeginWait counts the request of a context as one that waits for something, for at most limit, until end is called. It
// returns a fault if too many do. Otherwise, one caller could have all requests wait, and nobody else would be served.
// A limit of zero does not wait.
func BeginWait(ctx context.Context, limit time.Duration) (end func(), err error) {
	x := exchangeOf(ctx)
	if x == nil || x.waits == nil || limit <= 0 {
		return func() {}, nil
	}
	end, ok := x.waits.Take(cmp.Or(x.owner, streamKey(x.counted)))
	if !ok {
		return nil, ErrWaits
	}
	x.leave()
	return end, nil
}

func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }

// streamKey returns the key that a caller's streams are counted under.
func streamKey(r *http.Request) string {
	// Not by the cookie: a client could send another one with every stream.
	if credentials := r.Header.Get("Authorization"); credentials != "" {
		sum := sha256.Sum256([]byte(credentials))
		return hex.EncodeToString(sum[:])
	}
	return RemoteNetwork(r)
}

// LimitBody limits a request's body to n bytes; reading further returns the error that BodyError
// converts to TooLarge. A smaller limit inside a larger one wins.
func LimitBody(n int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body != nil && r.Body != http.NoBody {
				// In place, not in a copy of the request: the server keeps its own
				// reference to the body, and a copy would cost an allocation.
				// The server's own writer is needed for MaxBytesReader to close the
				// connection of a client that keeps sending.
				r.Body = http.MaxBytesReader(innermost(w), r.Body, n)
			}
			next.ServeHTTP(w, r)
		})
	}
}
