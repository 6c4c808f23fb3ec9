package hypervisor

import (
	"context"
	"net/http"
	"strconv"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// api translates between contract and domain.
type api struct{ s *Service }

var _ hypervisorapi.Server = api{}

// Handler answers all requests: the contract's, and beside it the console, /healthz,
// /readyz, /metrics, /openapi.yaml and /docs.
func (s *Service) Handler() http.Handler {
	router := contract.NewRouter(s.contract, s.render, s.guard)
	hypervisorapi.Register(router, hypervisorapi.BasePath, api{s}, s.render)
	s.contract.Mount(router)
	router.Handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") }))
	router.Handle("GET /readyz", http.HandlerFunc(s.ready))
	router.Handle("GET /metrics", s.guardMetrics(telemetry.MetricsHandler(s.registry)))
	var served http.Handler = router
	if s.console != nil {
		served = s.console.Wrap(router, router.Knows)
	} else {
		// A person who opens the address finds something to read.
		router.Handle("GET /{$}", http.RedirectHandler("/docs/", http.StatusFound))
	}
	mode, err := httpserve.ParseLogMode(s.cfg.AccessLog)
	if err != nil {
		panic(err) // Validate has checked it
	}
	return httpserve.Chain(served,
		httpserve.RequestID,
		httpserve.AccessLog(s.log, mode),
		httpserve.Metrics(s.registry, "hypervisor"),
		httpserve.Recover(s.render, s.log),
		httpserve.LimitInFlight(s.cfg.MaxInFlight, s.render),
	)
}

// guardMetrics lets admins read the metrics only, where credentials are required and the
// operator has not opened them: they tell what all tenants have and do.
func (s *Service) guardMetrics(next http.Handler) http.Handler {
	if a := &s.doc.Auth; !a.Require || a.OpenMetrics {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.gate.Load().caller(r)
		if err == nil && !c.Admin {
			err = fault.New(fault.Denied, "%s may not read the metrics; it takes an admin's credentials, or auth.open_metrics in the daemon's document", c.Name)
		}
		r = r.WithContext(withCall(r.Context(), &call{caller: c, w: w, r: r}))
		s.limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err != nil {
				s.render(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})).ServeHTTP(w, r)
	})
}

// ready says whether VMs can be run.
func (s *Service) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.db.Ping(r.Context()); err != nil {
		s.render(w, r, err)
		return
	}
	select {
	case <-s.restored:
	default:
		s.render(w, r, fault.New(fault.Unavailable, "the VMs that there are are being brought back").WithCode("not_ready"))
		return
	}
	detail := ""
	for name := range s.backends {
		info := s.probe(r.Context(), name)
		if info.Available {
			writeText(w, "ready: "+s.StandsOn(r.Context())+"\n")
			return
		}
		detail += "; " + name + ": " + info.Detail
	}
	s.render(w, r, fault.New(fault.Unavailable, "no backend can run VMs%s", detail).WithCode("not_ready"))
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // a client that hung up needs no answer
}

// rateLimit counts requests against who makes them.
func (s *Service) rateLimit() func(http.Handler) http.Handler {
	a := &s.doc.Auth
	if a.RateLimitRPS == 0 {
		return func(next http.Handler) http.Handler { return next }
	}
	return httpserve.RateLimit(httpserve.RateLimits{Rate: a.RateLimitRPS, Burst: a.RateLimitBurst, MaxKeys: 10_000, Key: whom, Now: s.now}, s.render)
}

// page answers a list request: it asks fetch for one row more than the page holds,
// beginning after the cursor, and says how the next page is linked if that row came.
func page[T, A any](ctx context.Context, limit *int, cursor *string, fetch func(after string, limit int) ([]T, error), key func(T) string, translate func(T) A) (items []A, link *string, err error) {
	p, err := httpserve.ParsePage(limit, cursor, 100, 1000)
	if err != nil {
		return nil, nil, err
	}
	rows, err := fetch(p.After, p.Limit+1)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		link = ref(httpserve.NextLink(callFrom(ctx).r, httpserve.EncodeCursor(key(rows[p.Limit-1]))))
	}
	out := make([]A, len(rows))
	for i, r := range rows {
		out[i] = translate(r)
	}
	return out, link, nil
}

// number reads a cursor that is a number; empty is 0.
func number(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || n <= 0 {
		return 0, fault.InvalidField("cursor", "is not from this list")
	}
	return n, nil
}

// value is what a pointer points to, or zero.
func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// orElse is what a pointer points to, or what is usual.
func orElse[T any](p *T, usual T) T {
	if p == nil {
		return usual
	}
	return *p
}

// ref points to a copy of v.
func ref[T any](v T) *T { return &v }

// some points to a copy of v, unless it is zero.
func some[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
