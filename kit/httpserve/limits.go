package httpserve

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// LimitInFlight serves at most n requests at once and refuses the rest with an
// Unavailable fault that asks for a retry in one second. Long-lived streams count
// as well. To refuse early is what keeps an overloaded service answering.
func LimitInFlight(n int, render ErrorRenderer) func(http.Handler) http.Handler {
	overloaded := fault.New(fault.Unavailable, "too many requests are in progress; try again").
		WithCode("overloaded").WithRetryAfter(time.Second)
	return func(next http.Handler) http.Handler {
		var inFlight atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer inFlight.Add(-1)
			if inFlight.Add(1) > int64(n) {
				render(w, r, overloaded)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// LimitBody lets handlers read at most n bytes of a request's body; reading on
// gives the error that BodyError turns into TooLarge. A smaller limit inside a
// larger one wins.
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
