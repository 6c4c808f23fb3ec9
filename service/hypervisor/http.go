package hypervisor

import (
	"context"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// api translates between contract and domain.
type api struct{ s *Service }

var _ hypervisorapi.Server = api{}

// openShell puts the contract's operations behind the gate and the rate limit.
func (s *Service) openShell(deps Deps) error {
	c, err := Contract()
	if err != nil {
		return err
	}
	s.shell, err = shell.New(shell.Config[caller.Caller]{
		Name: "hypervisor", Contract: c, Log: s.log, Registry: deps.Registry, Errors: problem.Flat,
		AccessLog: s.cfg.AccessLog, MaxInFlight: s.cfg.MaxInFlight, MaxBody: maxBody, Tracer: deps.Tracer, Console: deps.Console,
		Ready: []shell.Check{
			{Name: "database", Run: func(ctx context.Context) (string, error) { return "", s.db.Ping(ctx) }},
			{Name: "VMs", Run: s.restoredVMs},
			{Name: "backends", Run: s.plan.Usable},
		},
		Identify: s.identify, Admit: s.authorize, Around: s.rateLimit(), GuardMetrics: s.doc.Auth.Require && !s.doc.Auth.OpenMetrics,
	})
	if err != nil {
		return err
	}
	a := api{s}
	hypervisorapi.Register(s.shell, hypervisorapi.BasePath, a, s.shell.Fail)
	s.shell.Raw("GET /v1/vms/{id}/console", a.openConsole)
	s.shell.Raw("GET /v1/vms/{id}/vnc", a.openScreen)
	return nil
}

// Handler answers all requests.
func (s *Service) Handler() http.Handler { return s.shell.Handler() }

// restoredVMs is ready once the VMs of before are back.
func (s *Service) restoredVMs(context.Context) (string, error) {
	select {
	case <-s.restored:
		return "", nil
	default:
		return "", fault.New(fault.Unavailable, "the VMs that there are are being brought back").WithCode("not_ready")
	}
}

// rateLimit counts requests against who makes them, whether they are admitted or not.
func (s *Service) rateLimit() func(*contract.Operation, http.Handler) http.Handler {
	a := &s.doc.Auth
	if a.RateLimitRPS == 0 {
		return nil
	}
	limit := httpserve.RateLimit(httpserve.RateLimits{Rate: a.RateLimitRPS, Burst: a.RateLimitBurst, MaxKeys: 10_000, Key: whom, Now: s.now}, func(w http.ResponseWriter, r *http.Request, err error) {
		s.shell.Fail(w, r, err)
	})
	return func(_ *contract.Operation, next http.Handler) http.Handler { return limit(next) }
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
