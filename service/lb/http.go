package lb

import (
	"mime"
	"net/http"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// maxBody is the most that a request may send, in bytes.
const maxBody = 16 << 10

// Handler answers all requests: the contract's under /api/v1, and beside it the
// console, /healthz, /readyz, /metrics, /openapi.yaml and /docs.
func (s *Service) Handler() http.Handler {
	router := contract.NewRouter(s.contract, s.render, s.guard)
	lbapi.Register(router, lbapi.BasePath, api{s.controller, s}, s.render)
	s.contract.Mount(router)
	s.health(router.Handle)
	var served http.Handler = router
	if s.console != nil {
		served = s.console.Wrap(router, router.Knows)
	} else {
		// A person who opens the address finds something to read.
		router.Handle("GET /{$}", http.RedirectHandler("/docs/", http.StatusFound))
	}
	return s.chain(served, "lb")
}

// healthHandler answers on the second address.
func (s *Service) healthHandler() http.Handler {
	mux := http.NewServeMux()
	s.health(mux.Handle)
	return s.chain(httpserve.Mux(mux, s.render), "lb-metrics")
}

// health registers what is asked without credentials.
func (s *Service) health(handle func(pattern string, h http.Handler)) {
	handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") }))
	handle("GET /readyz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := s.controller.notReady(); reason != "" {
			s.render(w, r, fault.New(fault.Unavailable, "%s", reason).WithCode("not_ready"))
			return
		}
		writeText(w, "ready: "+s.StandsOn()+"\n")
	}))
	handle("GET /metrics", telemetry.MetricsHandler(s.registry))
}

func (s *Service) chain(h http.Handler, name string) http.Handler {
	mode, err := httpserve.ParseLogMode(s.cfg.AccessLog)
	if err != nil {
		panic(err) // Validate has checked it
	}
	return httpserve.Chain(h,
		httpserve.RequestID,
		httpserve.AccessLog(s.log, mode),
		httpserve.Metrics(s.registry, name),
		httpserve.Recover(s.render, s.log),
		httpserve.LimitInFlight(maxInFlight, s.render),
	)
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // a client that hung up needs no answer
}

// guard stands before every operation: who calls, may they, is the request as the
// contract says.
func (s *Service) guard(op *contract.Operation, next http.Handler) http.Handler {
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if op.Audit != "" && !isJSON(r) {
			s.render(w, r, errNotJSON)
			return
		}
		if err := op.CheckRequest(r); err != nil {
			s.render(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
	return s.gate.admit(op, s.render, checked)
}

// A form of another page can send other types with a browser's help, but not this
// one, so asking for it keeps web pages from making changes.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

var errNotJSON = fault.New(fault.WrongType, "changes need the header Content-Type: application/json")
