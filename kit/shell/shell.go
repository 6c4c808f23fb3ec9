package shell

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mainstay-infra/mainstay/kit/console"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/session"
)

// Config holds the parts of a service that differ between services. C is its caller type.
type Config[C any] struct {
	// Name is the service's name in metrics and traces.
	Name     string
	Contract *contract.Contract
	Log      *slog.Logger
	Registry *prometheus.Registry
	// Errors is the shape of the contract's error body.
	Errors problem.Body
	// AccessLog is a mode of httpserve.ParseLogMode.
	AccessLog string
	// MaxInFlight limits the requests in flight.
	MaxInFlight int
	// MaxBody limits a body, in bytes, unless the contract sets another limit (x-body). File
	// uploads, which some operations accept besides JSON, are limited by their handlers.
	MaxBody int64
	// Tracer receives a span for every request. Nil disables tracing.
	Tracer trace.TracerProvider
	// Console is the built web console. Nil means there is none.
	Console fs.FS
	// Alive returns an error if the service must be restarted. It serves /healthz. Nil means always
	// alive.
	Alive func(context.Context) error
	// Ready lists the conditions under which the service can do its work, for /readyz.
	Ready []Check

	// Identify returns the caller of a request, or a fault of kind Unauthenticated or Denied if it
	// cannot be identified.
	Identify func(*http.Request, *contract.Operation) (C, error)
	// Admit returns an error if the caller may not do the operation. It is called only for callers
	// that Identify returned. For /metrics, the operation is Metrics.
	Admit func(*http.Request, *contract.Operation, C) error
	// Around wraps each operation, whether or not its caller is identified and admitted. Caller
	// returns the caller. Nil means no wrapper.
	Around func(*contract.Operation, http.Handler) http.Handler
	// Still checks the credentials of a request again, every second while an operation lasts that
	// takes its time (x-time), and when a ticket that stands for them is redeemed (package function
	// Still). A fault of kind Unauthenticated or Denied ends the request. Nil: they are checked once.
	Still func(r *http.Request, was C) error
	// Body wraps everything that reads a request's body, which is already limited. Nil means no
	// wrapper.
	Body func(*contract.Operation, http.Handler) http.Handler
	// Rates limits how often operations are called, by their class in the contract (x-rate); "" is
	// the class of operations that name none. Each caller, admitted or not, has a separate
	// allowance per class. The zero Rate, or no entry for "", means no limit.
	Rates map[string]Rate
	// Whom returns the key that a caller's requests are counted under, or "" to not count them.
	// Callers that are not identified are counted by network. If Whom is nil, all are.
	Whom func(C, Peer) string
	// Now is the clock for the rates. Nil means time.Now.
	Now func() time.Time
	// Sessions keeps people signed in to the console. Nil means that the console has no sessions.
	Sessions *session.Manager
	// Who describes a caller to the console, or returns an error if the caller's credentials are not
	// for consoles. It is required if there are Sessions.
	Who func(C) (session.Who, error)
	// GuardMetrics requires Identify and Admit for /metrics. Otherwise it is public.
	GuardMetrics bool
	// Front wraps every path, including /healthz and /docs. Nil means no wrapper.
	Front func(http.Handler) http.Handler
}

// Metrics stands for /metrics where an Operation is required. It is not in the contract.
var Metrics = &contract.Operation{ID: "metrics", Method: http.MethodGet, Path: "/metrics"}

// Console stands for the requests of the console where an Operation is required. It is not in the
// contract. Any credentials will do for it.
var Console = &contract.Operation{ID: "console", Method: http.MethodGet, Path: "/console/session"}

// RateLogin is the class of operations that check passwords (x-rate). Checking is slow by design
// (package auth), and one network must not use up all processors with it.
const RateLogin = "login"

// Shell is the HTTP side of a service.
type Shell[C any] struct {
	cfg     Config[C]
	logMode httpserve.LogMode
	router  *contract.Router
	console *console.Console
	missing map[string]*contract.Operation             // operations without a handler, by pattern
	rates   map[string]func(http.Handler) http.Handler // by x-rate
	// Fail writes an error as the whole response.
	Fail httpserve.ErrorRenderer
}

// New reads the console and returns a Shell. Register the operations before calling Handler.
func New[C any](cfg Config[C]) (*Shell[C], error) {
	s := &Shell[C]{cfg: cfg, missing: map[string]*contract.Operation{}, Fail: httpserve.JSONErrors(cfg.Log, cfg.Errors)}
	var err error
	if s.logMode, err = httpserve.ParseLogMode(cfg.AccessLog); err != nil {
		return nil, err
	}
	if cfg.Console != nil {
		if s.console, err = console.New(cfg.Console); err != nil {
			return nil, err
		}
	}
	if err := s.makeRates(); err != nil {
		return nil, err
	}
	s.router = contract.NewRouter(cfg.Contract, s.Fail, s.guard)
	for _, op := range cfg.Contract.Operations() {
		s.missing[op.Pattern] = op
	}
	cfg.Contract.Mount(s.router)
	s.probes(s.router.Handle)
	if cfg.Sessions != nil {
		cfg.Sessions.Routes(s.router.Handle, s.identifyPerson, s.Fail, s.limitLogins)
	}
	if s.console == nil {
		// Someone who opens the address in a browser gets the documentation.
		s.router.Handle("GET /{$}", http.RedirectHandler("/docs/", http.StatusFound))
	}
	return s, nil
}

// Contract returns the service's contract.
func (s *Shell[C]) Contract() *contract.Contract { return s.cfg.Contract }

// HandleFunc registers the handler of an operation. Generated code calls it.
func (s *Shell[C]) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	s.router.HandleFunc(pattern, handler)
	delete(s.missing, pattern)
}

// Raw registers the handler of an operation that needs the request and its writer: a stream, a
// socket, a file or a redirect. pattern is as in the contract, without the base path:
// "GET /vms/{id}/console". An error that the handler returns becomes the response, unless the
// response has begun.
func (s *Shell[C]) Raw(pattern string, handler func(w http.ResponseWriter, r *http.Request, caller C) error) {
	var method, path string
	if _, err := fmt.Sscanf(pattern, "%s %s", &method, &path); err != nil {
		panic("shell: not a pattern: " + pattern)
	}
	s.HandleFunc(method+" "+s.cfg.Contract.BasePath()+path, func(w http.ResponseWriter, r *http.Request) {
		caller, _ := Caller[C](r.Context())
		if err := handler(w, r, caller); err != nil {
			s.Fail(w, r, err)
		}
	})
}

// Mirror serves operations a second time, at their paths below prefix, which may have placeholders of
// its own: "/nodes/{node}". keep selects the operations. Requests pass through everything that requests
// for the operations themselves do, and then come to handler. An error that it returns becomes the
// response, unless the response has begun.
func (s *Shell[C]) Mirror(
	prefix string, keep func(*contract.Operation) bool,
	handler func(w http.ResponseWriter, r *http.Request, op *contract.Operation, caller C) error,
) {
	for _, op := range s.cfg.Contract.Operations() {
		if !keep(op) {
			continue
		}
		pattern := op.Method + " " + s.cfg.Contract.BasePath() + prefix + op.Path
		s.router.HandleAt(pattern, op, func(w http.ResponseWriter, r *http.Request) {
			caller, _ := Caller[C](r.Context())
			if err := handler(w, r, op, caller); err != nil {
				s.Fail(w, r, err)
			}
		})
	}
}

// Handler returns the handler for all requests. It panics if an operation of the contract has no
// handler, which is a defect of the service.
func (s *Shell[C]) Handler() http.Handler {
	for pattern := range s.missing {
		panic("shell: no handler for " + pattern)
	}
	var served http.Handler = s.router
	if s.console != nil {
		served = s.console.Wrap(s.router, s.router.Knows)
	}
	return s.chain(served, s.cfg.Name)
}

// Probes returns a handler for /healthz, /readyz and /metrics only, to be served on a separate
// address.
func (s *Shell[C]) Probes() http.Handler {
	mux := http.NewServeMux()
	s.probes(mux.Handle)
	return s.chain(httpserve.Mux(mux, s.Fail), s.cfg.Name+"-metrics")
}

func (s *Shell[C]) chain(h http.Handler, name string) http.Handler {
	if s.cfg.Front != nil {
		h = s.cfg.Front(h)
	}
	h = httpserve.Chain(h,
		httpserve.RequestID,
		httpserve.AccessLog(s.cfg.Log, s.logMode),
		httpserve.Metrics(s.cfg.Registry, name),
		httpserve.Recover(s.Fail, s.cfg.Log),
		httpserve.LimitInFlight(s.cfg.MaxInFlight, s.Fail),
	)
	if s.cfg.Tracer == nil {
		return h
	}
	return otelhttp.NewHandler(h, s.cfg.Name,
		otelhttp.WithTracerProvider(s.cfg.Tracer), otelhttp.WithPropagators(propagation.TraceContext{}))
}

// guard wraps every operation.
func (s *Shell[C]) guard(op *contract.Operation, next http.Handler) http.Handler {
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !op.HandlerValidates {
			if err := op.CheckRequest(r); err != nil {
				s.Fail(w, r, err)
				return
			}
		}
		if op.Time == contract.Long {
			httpserve.Lasting(w, r) // it has its own limits
		}
		if still := Still(r.Context()); still != nil && op.Time != "" {
			r = r.WithContext(httpserve.EndWhen(r.Context(), func() bool {
				err := still()
				return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Denied)
			}))
		}
		next.ServeHTTP(w, r)
	})
	return s.callers(op, s.bounded(op, checked))
}

// bounded limits the body of a request.
func (s *Shell[C]) bounded(op *contract.Operation, next http.Handler) http.Handler {
	if s.cfg.Body != nil {
		next = s.cfg.Body(op, next)
	}
	limit := cmp.Or(op.MaxBody, s.cfg.MaxBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limit > 0 && !op.CarriesFile(r) {
			r.Body = http.MaxBytesReader(w, r.Body, limit)
		}
		next.ServeHTTP(w, r)
	})
}

// callers identifies the caller and checks its permission.
func (s *Shell[C]) callers(op *contract.Operation, next http.Handler) http.Handler {
	var foreign http.CrossOriginProtection
	var admitted http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf[C](r.Context())
		err := c.unknown
		if err == nil && s.cfg.Admit != nil {
			err = s.cfg.Admit(r, op, c.caller)
		}
		if err == nil && op.Audit != "" && foreign.Check(r) != nil {
			err = errForeignPage
		}
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
	if s.cfg.Around != nil {
		admitted = s.cfg.Around(op, admitted)
	}
	if rated := s.rates[op.Rate]; rated != nil {
		admitted = rated(admitted)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call[C]{peer: peerOf(r)}
		var over error
		if s.cfg.Sessions != nil {
			r, over = s.cfg.Sessions.Attach(r)
		}
		r = r.WithContext(list.WithURL(context.WithValue(r.Context(), callKey{}, c), r.URL))
		if s.cfg.Identify != nil {
			if c.caller, c.unknown = s.cfg.Identify(r, op); c.unknown != nil && over != nil {
				c.unknown = over
			}
		}
		if s.cfg.Still != nil && c.still == nil && c.unknown == nil {
			c.still = s.again(r, c.caller)
		}
		admitted.ServeHTTP(w, r)
	})
}

// stillLimit is the timeout for checking the credentials of a request again.
const stillLimit = 5 * time.Second

// again returns a function that checks the credentials of a request again. It does not keep the
// request's body and connection.
func (s *Shell[C]) again(r *http.Request, was C) func() error {
	kept := &http.Request{
		Method: r.Method, URL: r.URL, Host: r.Host, Header: r.Header, TLS: r.TLS, RemoteAddr: r.RemoteAddr,
	}
	kept = kept.WithContext(context.WithoutCancel(r.Context()))
	return func() error {
		ctx, cancel := context.WithTimeout(kept.Context(), stillLimit)
		defer cancel()
		if err := session.Recheck(ctx); err != nil {
			return err
		}
		return s.cfg.Still(kept.WithContext(ctx), was)
	}
}

// identifyPerson identifies who uses the console.
func (s *Shell[C]) identifyPerson(r *http.Request) (context.Context, session.Who, error) {
	c := &call[C]{peer: peerOf(r)}
	ctx := context.WithValue(r.Context(), callKey{}, c)
	if c.caller, c.unknown = s.cfg.Identify(r.WithContext(ctx), Console); c.unknown != nil {
		return ctx, session.Who{}, c.unknown
	}
	who, err := s.cfg.Who(c.caller)
	return ctx, who, err
}

// limitLogins limits how often one network may try to sign in.
func (s *Shell[C]) limitLogins(next http.Handler) http.Handler {
	if limit := s.rates[RateLogin]; limit != nil {
		next = limit(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call[C]{peer: peerOf(r), unknown: errNobody}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
}
