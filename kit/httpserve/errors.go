package httpserve

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

// ErrorRenderer writes err as the whole response. An error without a fault is
// Internal; its text is not shown.
type ErrorRenderer func(w http.ResponseWriter, r *http.Request, err error)

// statusClientClosed is recorded if the client disconnected before the response. It is nginx's
// convention. No client ever receives it, but it keeps such requests out of the count of server
// errors.
const statusClientClosed = 499

// JSONErrors returns an ErrorRenderer that writes errors as the contract's error body, with the
// fault's status. It sends Cache-Control: no-store; Retry-After in whole seconds, rounded up, if
// the fault has one (RFC 9110 section 10.2.3); and WWW-Authenticate: Bearer on 401 (section 11.6.1,
// RFC 6750), unless the handler has set a challenge. A 426 requests an upgrade to WebSocket
// (section 15.5.22, RFC 6455 section 4.2.2), the only other protocol that services have.
//
// Internal and StorageFailed faults are logged with their cause at error level, and Unavailable,
// Unreachable and Timeout faults that have a cause at warn. If the header was already sent,
// JSONErrors only logs.
func JSONErrors(log *slog.Logger, body problem.Body) ErrorRenderer {
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
		h.Del("Content-Length") // it belonged to the body that failed
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		if f.RetryAfter > 0 {
			h.Set("Retry-After", strconv.FormatInt(int64((f.RetryAfter+time.Second-1)/time.Second), 10))
		}
		if status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
			h.Set("WWW-Authenticate", "Bearer")
		}
		if status == http.StatusUpgradeRequired && r.ProtoMajor == 1 {
			h.Set("Upgrade", "websocket")
			h.Set("Connection", "Upgrade")
			h.Set("Sec-WebSocket-Version", "13")
		}
		w.WriteHeader(status)
		_ = body.Encode(w, problem.Problem{ // the client may have disconnected
			Code: f.PublicCode(), Message: PublicMessage(f, id), Field: f.Field, Limit: f.Limit, RequestID: id,
		})
	}
}

// PublicMessage returns the message of a fault for the caller. For Internal faults it adds the
// request id under which the server's log has the details.
func PublicMessage(f *fault.Error, id string) string {
	if f.Kind != fault.Internal || id == "" {
		return f.Message
	}
	return f.Message + "; the server's log has the details under request id " + id
}

func logFault(log *slog.Logger, r *http.Request, f *fault.Error, status int, id string) {
	level := slog.LevelError
	switch {
	case status == statusClientClosed:
		level = slog.LevelDebug
	case f.Kind == fault.Internal, f.Kind == fault.StorageFailed:
	case (f.Kind == fault.Unavailable || f.Kind == fault.Unreachable || f.Kind == fault.Timeout) && f.Unwrap() != nil:
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
