package lb

import (
	"context"
	"mime"
	"net/http"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// maxBody is the maximum size of a request body, in bytes.
const maxBody = 16 << 10

// openShell registers the contract's operations behind the gate.
func (s *Service) openShell(deps Deps) error {
	c, err := Contract()
	if err != nil {
		return err
	}
	sessions, err := s.openSessions(deps)
	if err != nil {
		return err
	}
	s.shell, err = shell.New(shell.Config[caller]{
		Name:        "lb",
		Contract:    c,
		Log:         deps.Log,
		Registry:    deps.Registry,
		Errors:      problem.Nested,
		AccessLog:   s.cfg.AccessLog,
		MaxInFlight: maxInFlight,
		MaxBody:     maxBody,
		Tracer:      deps.Tracer,
		Console:     deps.Console,
		Ready:       []shell.Check{{Name: "datapath", Run: s.ready}},
		Identify:    s.gate.identify,
		Admit:       s.gate.admit,
		Around:      s.gate.recordChanges,
		Body:        s.onlyJSON,
		Sessions:    sessions,
		Who:         who,
	})
	if err != nil {
		return err
	}
	lbapi.Register(s.shell, lbapi.BasePath, api{s.controller, s}, s.shell.Fail)
	return nil
}

// Handler returns the handler of all requests.
func (s *Service) Handler() http.Handler { return s.shell.Handler() }

// ready returns an error if packets are not balanced as the document says. Otherwise it describes
// what the node balances with.
func (s *Service) ready(context.Context) (string, error) {
	if reason := s.controller.notReady(); reason != "" {
		return "", fault.New(fault.Unavailable, "%s", reason).WithCode("not_ready")
	}
	return s.StandsOn(), nil
}

// onlyJSON refuses changes whose content type is not JSON. A form on a foreign web page can make a
// browser send other types, but not this one.
func (s *Service) onlyJSON(op *contract.Operation, next http.Handler) http.Handler {
	if op.Audit == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			s.shell.Fail(w, r, errNotJSON)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var errNotJSON = fault.New(fault.WrongType, "changes need the header Content-Type: application/json")
