package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// api translates between the contract and the domain, and does nothing else.
type api struct{ s *Service }

var _ edgeapi.Server = api{}

// Handler answers all requests: the contract's under /api/v1, and beside it the
// console, /healthz, /readyz, /metrics, /openapi.yaml and /docs.
func (s *Service) Handler() http.Handler {
	router := contract.NewRouter(s.contract, s.render, s.guard)
	edgeapi.Register(router, edgeapi.BasePath, api{s}, s.render)
	s.contract.Mount(router)
	router.Handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }))
	router.Handle("GET /readyz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.db.Ping(r.Context()); err != nil {
			s.render(w, r, err)
			return
		}
		writeText(w, http.StatusOK, "ready: "+s.db.Engine().String()+"\n")
	}))
	var served http.Handler = router
	if s.console != nil {
		served = s.console.Wrap(router, router.Knows)
	} else {
		// A person who opens the address finds something to read.
		router.Handle("GET /{$}", http.RedirectHandler("/docs/", http.StatusFound))
	}
	router.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mode, err := httpserve.ParseLogMode(s.cfg.AccessLog)
	if err != nil {
		panic(err) // Validate has checked it
	}
	handler := httpserve.Chain(served,
		httpserve.RequestID,
		httpserve.AccessLog(s.log, mode),
		httpserve.Metrics(s.registry, "edge"),
		httpserve.Recover(s.render, s.log),
		httpserve.LimitInFlight(s.cfg.MaxInFlight, s.render),
	)
	if s.tracer == nil {
		return handler
	}
	return otelhttp.NewHandler(handler, "edge", otelhttp.WithTracerProvider(s.tracer), otelhttp.WithPropagators(propagation.TraceContext{}))
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a client that hung up needs no answer
}

// paged answers a list request: it asks fetch for one row more than the page
// holds, beginning after the cursor, and links the next page if that row came.
func paged[T, A any](ctx context.Context, limit *edgeapi.Limit, cursor *edgeapi.Cursor, fetch func(after string, limit int) ([]T, error), key func(T) string, translate func(T) A) ([]A, error) {
	p, err := httpserve.ParsePage(limit, cursor, 100, 1000)
	if err != nil {
		return nil, err
	}
	return fetchPage(ctx, p, func(p httpserve.Page) ([]T, error) { return fetch(p.After, p.Limit) }, key, translate)
}

// pagedDown is paged for lists that go down by number, with their own default of
// items a page.
func pagedDown[T, A any](ctx context.Context, limit *edgeapi.Limit, cursor *edgeapi.Cursor, usual int, fetch func(before int64, limit int) ([]T, error), number func(T) int64, translate func(T) A) ([]A, error) {
	p, err := httpserve.ParsePage(limit, cursor, usual, 1000)
	if err != nil {
		return nil, err
	}
	var before int64
	if p.After != "" {
		if before, err = strconv.ParseInt(p.After, 10, 64); err != nil || before <= 0 {
			return nil, fault.InvalidField("cursor", "is not from this list")
		}
	}
	key := func(row T) string { return strconv.FormatInt(number(row), 10) }
	return fetchPage(ctx, p, func(p httpserve.Page) ([]T, error) { return fetch(before, p.Limit) }, key, translate)
}

func fetchPage[T, A any](ctx context.Context, p httpserve.Page, fetch func(httpserve.Page) ([]T, error), key func(T) string, translate func(T) A) ([]A, error) {
	rows, err := fetch(httpserve.Page{After: p.After, Limit: p.Limit + 1})
	if err != nil {
		return nil, err
	}
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		c := callFrom(ctx)
		c.w.Header().Set("Link", httpserve.NextLink(c.r, httpserve.EncodeCursor(key(rows[p.Limit-1]))))
	}
	return each(rows, translate), nil
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
