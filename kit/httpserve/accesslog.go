package httpserve

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// LogMode selects the requests that the access log shows.
type LogMode string

// The modes of the access log.
const (
	LogAll    LogMode = "all"
	LogErrors LogMode = "errors" // failed requests, and those slower than a second
	LogOff    LogMode = "off"
)

// ParseLogMode accepts the three modes; the empty string means LogErrors. Anything else is a fault
// of kind Invalid with the field "access-log".
func ParseLogMode(s string) (LogMode, error) {
	switch m := LogMode(s); m {
	case "":
		return LogErrors, nil
	case LogAll, LogErrors, LogOff:
		return m, nil
	}
	return "", fault.InvalidField("access-log", "must be all, errors or off, not %q", s)
}

const (
	slowRequest    = time.Second
	maxLoggedBytes = 512 // of a path, which a client may make as long as a header
)

// AccessLog writes one line per finished request: method, route, path, status, bytes of the body,
// duration, request id and remote address. Status 5xx is logged at warn, all else at info. Query
// strings and headers are never logged, because they may hold secrets. A mode other than LogAll and
// LogOff is treated as LogErrors.
func AccessLog(log *slog.Logger, mode LogMode) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if mode == LogOff {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x, w, r := track(w, r)
			// Handlers like http.StripPrefix work on copies, but a handler may change the URL it
			// was given.
			path := r.URL.Path
			returned := false
			defer func() {
				status, took := x.finalStatus(returned), time.Since(x.start)
				if mode != LogAll && status < 400 && (took <= slowRequest || x.stream) {
					return
				}
				level := slog.LevelInfo
				if status >= 500 {
					level = slog.LevelWarn
				}
				x.log(r.Context(), log, level, r, path, status, took)
			}()
			next.ServeHTTP(w, r)
			returned = true
		})
	}
}

func (x *exchange) log(
	ctx context.Context, log *slog.Logger, level slog.Level, r *http.Request, path string, status int,
	took time.Duration,
) {
	if len(path) > maxLoggedBytes {
		path = path[:maxLoggedBytes]
	}
	log.LogAttrs(ctx, level, "http request",
		slog.String("method", r.Method),
		slog.String("route", x.route()),
		slog.String("path", path),
		slog.Int("status", status),
		slog.Int64("bytes", x.bytes),
		slog.Duration("duration", took),
		slog.String("request_id", x.id),
		slog.String("remote", remote(r)),
	)
}

// remote returns the peer with its port, or the client that a trusted proxy reports.
func remote(r *http.Request) string {
	if x := exchangeOf(r.Context()); x != nil && x.client.IsValid() {
		return x.client.String()
	}
	return r.RemoteAddr
}
