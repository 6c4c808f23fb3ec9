package edge

import (
	"context"
	"encoding/json"
	"net/http"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// api translates between the contract and the domain. It contains no logic of its own.
type api struct{ s *Service }

var _ edgeapi.Server = api{}

// openShell creates the HTTP handler, which enforces authorization and limits for the contract's
// operations.
func (s *Service) openShell(deps Deps, sealer *auth.Sealer) error {
	sessions, err := s.openSessions(sealer, deps.Workspace)
	if err != nil {
		return err
	}
	c, err := Contract()
	if err != nil {
		return err
	}
	s.shell, err = shell.New(shell.Config[Caller]{
		Name:        "edge",
		Contract:    c,
		Log:         s.log,
		Registry:    deps.Registry,
		Errors:      problem.Nested,
		AccessLog:   s.cfg.AccessLog,
		MaxInFlight: s.cfg.MaxInFlight,
		MaxBody:     maxBody,
		Tracer:      deps.Tracer,
		Console:     deps.Console,
		Ready: []shell.Check{{Name: "database", Run: func(ctx context.Context) (string, error) {
			return s.db.Engine().String(), s.db.Ping(ctx)
		}}},
		Identify: s.identify,
		Admit:    s.authorize,
		Around:   s.limitCallers,
		// Logins are counted by network, since there is no caller yet.
		Rates:    map[string]shell.Rate{shell.RateLogin: {PerSecond: 2, Burst: 120}},
		Now:      s.now,
		Body:     s.limitBatches,
		Sessions: sessions,
		Who:      who,
	})
	if err != nil {
		return err
	}
	a := api{s}
	edgeapi.Register(s.shell, edgeapi.BasePath, a, s.shell.Fail)
	s.shell.Raw("GET /auth/oidc/login", a.oidcLogin)
	s.shell.Raw("GET /auth/oidc/callback", a.oidcCallback)
	s.shell.Raw("GET /stream", a.streamActivity)
	return nil
}

// Handler returns the handler of all requests.
func (s *Service) Handler() http.Handler { return s.shell.Handler() }

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// ref returns a pointer to a copy of v.
func ref[T any](v T) *T { return &v }

// orEmpty returns an empty map for nil, since the contract does not allow null.
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

// GetVersion returns the running version.
func (a api) GetVersion(context.Context, edgeapi.GetVersionRequestObject) (edgeapi.GetVersionResponseObject, error) {
	b := telemetry.BuildInfo()
	return edgeapi.GetVersion200JSONResponse{
		Version:    b.Version,
		Commit:     b.Commit,
		Date:       b.Date,
		GoVersion:  b.GoVersion,
		ApiVersion: apiVersion,
	}, nil
}

// apiVersion is the version of the contract (info.version).
const apiVersion = "0.2.2"
