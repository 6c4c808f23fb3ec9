package httpserve

import (
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Mux serves mux and replaces its two plain-text errors: an unknown path becomes
// a NotFound fault, a wrong method a NotAllowed fault with the Allow header that
// RFC 9110 section 15.5.6 demands. It also records the matched pattern for
// AccessLog, Metrics and RouteFrom, so exactly one Mux belongs around every
// ServeMux, nested ones included.
//
// A matched request costs one type assertion more than mux alone: the route is
// not looked up a second time. Instead the first error that is written while the
// request still has no pattern is known to be the ServeMux's own.
func Mux(mux *http.ServeMux, render ErrorRenderer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := w.(*exchange)
		if !ok {
			// No middleware of ours is outside, or a foreign one has wrapped the
			// writer. That one must not see the swallowed error, hence an inner
			// exchange; the outer one still learns the route.
			x = &exchange{w: w, start: time.Now()}
			if outer := exchangeOf(r.Context()); outer != nil {
				outer.routed = r
			}
		}
		outerUnmatched := x.unmatched
		x.routed, x.unmatched = r, true
		mux.ServeHTTP(x, r)
		x.unmatched = outerUnmatched
		if x.swallowed == 0 {
			return
		}
		status := x.swallowed
		// Rendering happens with the pattern still empty, so nothing may be
		// swallowed any more, by an enclosing Mux either.
		x.unmatched, x.swallowed = false, 0
		render(x, r, unmatchedFault(status, r, w.Header().Get("Allow")))
	})
}

func unmatchedFault(status int, r *http.Request, allow string) error {
	switch status {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "no such path")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.NotAllowed, "this path does not answer %s, but %s", clip(r.Method, 32), allow)
	}
	return fault.New(fault.Invalid, "the request's target is not a path")
}

// clip bounds what is echoed to a client.
func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
