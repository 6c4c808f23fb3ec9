package httpserve

import (
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Mux serves mux and replaces its two plain-text errors: an unknown path becomes a NotFound fault,
// a wrong method a NotAllowed fault with the Allow header that RFC 9110 section 15.5.6 requires. It
// also records the matched pattern for AccessLog, Metrics and RouteFrom, so wrap every ServeMux,
// including nested ones, in exactly one Mux.
//
// A matched request costs one more type assertion than mux alone, because the route is not looked
// up twice. Instead, Mux relies on the fact that the first error written while the request has no
// pattern is the ServeMux's own.
func Mux(mux *http.ServeMux, render ErrorRenderer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := w.(*exchange)
		if !ok {
			// There is no outer middleware of ours, or a foreign one has wrapped the writer. A
			// foreign one must not see the swallowed error, hence an inner exchange; the outer one
			// still gets the route.
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
		// The pattern is still empty while rendering, so swallowing must be off, also for an
		// enclosing Mux.
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

// clip limits what is echoed to a client.
func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
