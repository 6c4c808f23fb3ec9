package httpserve

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Recover turns a panic of a handler into a logged stack and an Internal fault.
// If the header is out already, the connection is aborted instead, so that the
// client cannot take half a response for a whole one. http.ErrAbortHandler
// passes through, as net/http wants it.
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
				// A panic inside the ServeMux itself must not leave its swallowing on.
				x.unmatched, x.swallowed = false, 0
				render(w, r, fault.New(fault.Internal, "internal error"))
			}()
			next.ServeHTTP(w, r)
		})
	}
}
