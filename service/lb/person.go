package lb

import (
	"context"
	"crypto/rand"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// openSessions prepares the sessions of the console. The service has no database: the key that
// seals the sessions lasts as long as the process, and so do the sessions.
func (s *Service) openSessions(deps Deps) (*session.Manager, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: it crashes the program instead
	sealer, err := auth.NewSealer(secret, "lb console sessions")
	if err != nil {
		return nil, err
	}
	signOn, err := s.cfg.OIDC.Open(session.CallbackPath, string(RoleReadonly), sealer, deps.Now)
	if err != nil {
		return nil, err
	}
	workspace, err := session.OpenWorkspace(deps.Workspace, s.cfg.Workspace)
	if err != nil {
		return nil, err
	}
	return session.New(session.Config{
		Service: "lb", Title: "Load balancer", Sealer: sealer, Ended: session.InMemory(deps.Now), Now: deps.Now, Log: s.log,
		Token: "API key", TokenHint: "An admin or a read-only key of this node.", Workspace: workspace,
		OIDC: signOn,
		SignedIn: func(ctx context.Context, how string) error {
			s.log.InfoContext(ctx, "console session opened", "user", nameIn(ctx), "by", how,
				"remote", shell.PeerOf(ctx).IP)
			return nil
		},
		SignedOut: func(ctx context.Context) error {
			s.log.InfoContext(ctx, "console session ended", "user", nameIn(ctx), "remote", shell.PeerOf(ctx).IP)
			return nil
		},
	}), nil
}

func nameIn(ctx context.Context) string {
	c, _ := shell.Caller[caller](ctx)
	return c.name
}

// who describes a caller to the console.
func who(c caller) (session.Who, error) {
	switch {
	case c == anonymous:
		return session.Who{Name: "No key needed", Note: "everybody may change everything"}, nil
	case c.role == RoleAdmin:
		return session.Who{Name: c.name, Note: "admin", Role: session.RoleAdmin}, nil
	}
	return session.Who{Name: c.name, Note: "may only read", Role: session.RoleViewer}, nil
}
