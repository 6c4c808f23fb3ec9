package httpapi

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// sessions returns the sessions of the console. Each holds a token that somebody else has issued.
func (a *API) sessions() *session.Manager {
	return session.New(session.Config{
		Service: "storage", Title: "Storage gateway", Sealer: a.cfg.Cookies, Ended: a.cfg.Ended, Now: a.cfg.Now, Log: a.cfg.Log,
		TokenHint: "A JSON Web Token that is signed with the jwt-secret of the gateway.", Workspace: a.cfg.Workspace,
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
	out := session.Who{Name: c.Name, Access: string(c.Role), Tenant: c.Tenant, Expires: c.Expires}
	switch {
	case c == caller.Anonymous:
		out.Name, out.Note = "No token needed", "everybody may change everything"
	case c.Tenant != "":
		out.Note = string(c.Role) + " of the tenant " + c.Tenant
	case c.Role == caller.Admin:
		out.Note, out.Role = "admin, sees everything", session.RoleAdmin
	case c.Role == caller.Operator:
		out.Note, out.Role = "operator, sees everything", session.RoleViewer
	default:
		out.Note, out.Role = "may only read, sees everything", session.RoleViewer
	}
	return out, nil
}
