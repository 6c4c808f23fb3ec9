package httpserve

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// ErrorRenderer writes err as the whole response. An error without a fault is
// Internal; its text is not shown.
type ErrorRenderer func(w http.ResponseWriter, r *http.Request, err error)

// statusClientClosed is recorded when the client left before the answer. It is
// nginx's convention and is never received by anyone, but it keeps impatient
// clients out of the count of server errors.
const statusClientClosed = 499

// JSONErrors is the renderer that services use unless their protocol has its own
// error body. It writes
//
//	{"error":{"code":"not_found","message":"…","field":"…","request_id":"…"}}
//
// with the fault's status, without field if there is none. It sends
// Cache-Control: no-store; Retry-After in whole seconds, rounded up, if the fault
// has one (RFC 9110 section 10.2.3); and WWW-Authenticate: Bearer on 401
// (section 11.6.1, RFC 6750), unless the handler has set a challenge.
//
// Internal and StorageFailed faults are logged with their cause at error level,
// Unavailable ones that have a cause at warn. If the header is out already,
// logging is all that it does.
func JSONErrors(log *slog.Logger) ErrorRenderer {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		f := fault.From(err)
		if f == nil {
			f = fault.New(fault.Internal, "internal error")
		}
		id, sent := "", false
		x := exchangeOf(r.Context())
		if x != nil {
			id, sent = x.id, x.status != 0
		}
		status := f.Kind.HTTPStatus()
		if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
			status = statusClientClosed
		}
		logFault(log, r, f, status, id)
		if sent {
			return
		}

		h := w.Header()
		h.Del("Content-Length") // it was for the body that failed
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		if f.RetryAfter > 0 {
			h.Set("Retry-After", strconv.FormatInt(int64((f.RetryAfter+time.Second-1)/time.Second), 10))
		}
		if status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
			h.Set("WWW-Authenticate", "Bearer")
		}
		w.WriteHeader(status)
		var body errorBody
		body.Error = errorDetail{Code: f.PublicCode(), Message: PublicMessage(r.Context(), f), Field: f.Field, RequestID: id}
		_ = json.NewEncoder(w).Encode(body) // the client may have left
	}
}

// PublicMessage is a fault's message as the caller of a request reads it. That of the
// server's own failure says under which request id the log has the details, which
// JSONErrors writes there.
func PublicMessage(ctx context.Context, f *fault.Error) string {
	id := RequestIDFrom(ctx)
	if f.Kind != fault.Internal || id == "" {
		return f.Message
	}
	return f.Message + "; the server's log has the details under request id " + id
}

type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Field     string `json:"field,omitempty"`
	RequestID string `json:"request_id"`
}

func logFault(log *slog.Logger, r *http.Request, f *fault.Error, status int, id string) {
	level := slog.LevelError
	switch {
	case status == statusClientClosed:
		level = slog.LevelDebug
	case f.Kind == fault.Internal, f.Kind == fault.StorageFailed:
	case f.Kind == fault.Unavailable && f.Unwrap() != nil:
		level = slog.LevelWarn
	default:
		return
	}
	log.LogAttrs(r.Context(), level, "request failed",
		slog.String("code", f.PublicCode()),
		slog.String("err", f.Error()),
		slog.String("method", r.Method),
		slog.String("route", RouteFrom(r.Context())),
		slog.String("request_id", id),
	)
}
