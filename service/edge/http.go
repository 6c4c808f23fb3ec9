package edge

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// api translates between the contract and the domain, and does nothing else.
type api struct{ s *Service }

var _ edgeapi.StrictServerInterface = api{}

// Handler answers all requests: the contract's under /api/v1, and beside it
// /healthz, /readyz, /metrics, /openapi.yaml and /docs.
func (s *Service) Handler() http.Handler {
	badRequest := func(w http.ResponseWriter, r *http.Request, err error) { s.render(w, r, httpserve.BodyError(err)) }
	strict := edgeapi.NewStrictHandlerWithOptions(api{s}, []edgeapi.StrictMiddlewareFunc{}, edgeapi.StrictHTTPServerOptions{
		RequestErrorHandlerFunc: badRequest, ResponseErrorHandlerFunc: s.render,
	})
	return s.handler(strict, badRequest)
}

func (s *Service) handler(server edgeapi.ServerInterface, badRequest func(http.ResponseWriter, *http.Request, error)) http.Handler {
	router := contract.NewRouter(s.contract, s.render, s.guard)
	edgeapi.HandlerWithOptions(server, edgeapi.StdHTTPServerOptions{BaseURL: edgeapi.BasePath, BaseRouter: router, ErrorHandlerFunc: badRequest})
	s.contract.Mount(router)
	router.Handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }))
	router.Handle("GET /readyz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.db.Ping(r.Context()); err != nil {
			s.render(w, r, err)
			return
		}
		writeText(w, http.StatusOK, "ready: "+s.db.Engine().String()+"\n")
	}))
	router.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mode, err := httpserve.ParseLogMode(s.cfg.AccessLog)
	if err != nil {
		panic(err) // Validate has checked it
	}
	return httpserve.Chain(router,
		httpserve.RequestID,
		httpserve.AccessLog(s.log, mode),
		httpserve.Metrics(s.registry, "edge"),
		httpserve.Recover(s.render, s.log),
		httpserve.LimitInFlight(s.cfg.MaxInFlight, s.render),
	)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a client that hung up needs no answer
}

// page reads the limit and cursor of a list request.
func page(limit *edgeapi.Limit, cursor *edgeapi.Cursor) (httpserve.Page, error) {
	return httpserve.ParsePage(limit, cursor, 100, 1000)
}

// trim cuts rows, of which one more than the page holds was asked for, to the
// page, and links the next one.
func trim[T any](ctx context.Context, rows []T, p httpserve.Page, key func(T) string) []T {
	if len(rows) <= p.Limit {
		return rows
	}
	rows = rows[:p.Limit]
	c := callFrom(ctx)
	c.w.Header().Set("Link", httpserve.NextLink(c.r, httpserve.EncodeCursor(key(rows[p.Limit-1]))))
	return rows
}

// each translates a list.
func each[T, A any](rows []T, translate func(T) A) []A {
	out := make([]A, len(rows))
	for i, r := range rows {
		out[i] = translate(r)
	}
	return out
}

// value is what a pointer points to, or zero.
func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// ref points to a copy of v.
func ref[T any](v T) *T { return &v }

// orEmpty makes a nil map an empty one, since the contract knows no null.
func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

func object(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("{}")
	}
	return json.RawMessage(text)
}

// GetVersion tells what is running.
func (a api) GetVersion(context.Context, edgeapi.GetVersionRequestObject) (edgeapi.GetVersionResponseObject, error) {
	b := telemetry.BuildInfo()
	return edgeapi.GetVersion200JSONResponse{Version: b.Version, Commit: b.Commit, Date: b.Date, GoVersion: b.GoVersion, ApiVersion: apiVersion}, nil
}

// apiVersion is the version of the contract (info.version).
const apiVersion = "0.2.2"
