package httpserve

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Recover converts a panic of a handler to a logged stack and an Internal fault. If the header was
// already sent, it aborts the connection instead, so that the client cannot mistake half a response
// for a whole one. http.ErrAbortHandler passes through, as net/http requires.
func Recover(render ErrorRenderer, log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x, w, r := track(w, r)
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if p == http.ErrAbortHandler {
					panic(p)
				}
				routine.Panics.WithLabelValues("http handler").Inc()
				log.ErrorContext(r.Context(), "panic in handler", "panic", fmt.Sprint(p), "method", r.Method,
					"route", x.route(), "request_id", x.id, "stack", string(debug.Stack()))
				if x.status != 0 {
					panic(http.ErrAbortHandler)
				}
				// A panic inside the ServeMux itself must not leave swallowing enabled.
				x.unmatched, x.swallowed = false, 0
				render(w, r, fault.New(fault.Internal, "internal error"))
			}()
			next.ServeHTTP(w, r)
		})
	}
}
