package httpapi

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// sessions returns the sessions of the console.
func (a *API) sessions() *session.Manager {
	return session.New(session.Config{
		Service: "hypervisor", Title: "Hypervisor", Sealer: a.cfg.Cookies, Ended: a.cfg.Ended, Now: a.now, Log: a.log,
		TokenHint: "The token of an admin or of a tenant.", Workspace: a.cfg.Workspace,
		OIDC: a.cfg.SignOn,
		SignedIn: func(ctx context.Context, how string) error {
			return a.store.Note(ctx, audit.Entry{
				Action: "auth.login", Target: caller.From(ctx).Name, Message: "console session with " + how,
			})
		},
		SignedOut: func(ctx context.Context) error {
			return a.store.Note(ctx, audit.Entry{
				Action: "auth.logout", Target: caller.From(ctx).Name, Message: "console session ended",
			})
		},
	})
}

// who describes a caller to the console.
func who(c caller.Caller) (session.Who, error) {
	switch {
	case c == caller.Anonymous:
		return session.Who{Name: c.Name, Note: "no credentials needed"}, nil
	case c.Admin:
		return session.Who{Name: c.Name, Note: "admin, sees everything", Role: session.RoleAdmin}, nil
	case c.Tenant != "":
		return session.Who{Name: c.Name, Note: "of the tenant " + c.Tenant}, nil
	}
	return session.Who{}, fault.New(fault.Denied, "%s belongs to no tenant and is not an admin", c.Name)
}
