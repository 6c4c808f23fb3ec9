package httpapi

import (
	"context"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// The longest texts that a login accepts (Credentials in the contract), in characters.
const (
	maxUsername = 256
	maxPassword = 1024
	maxCode     = 64
)

// sessions returns the sessions of the console. Each holds a token like that of Login.
func (a *API) sessions() *session.Manager {
	return session.New(session.Config{
		Service: "vm", Title: "VM management", Sealer: a.cfg.Cookies, Ended: a.cfg.Ended, Now: a.cfg.Now, Log: a.cfg.Log,
		TokenHint: "As 'mainstay login vm' keeps it, or POST /api/auth/login answers it.", Workspace: a.cfg.Workspace,
		SecondFactor: true,
		Password: func(ctx context.Context, given session.Login) (string, error) {
			for _, f := range []struct {
				name, text string
				most       int
			}{
				{"username", given.Username, maxUsername}, {"password", given.Password, maxPassword},
				{"code", given.Code, maxCode},
			} {
				if utf8.RuneCountInString(f.text) > f.most {
					return "", fault.InvalidField(f.name, "must have at most %d characters", f.most)
				}
			}
			opened, err := a.identity.Login(ctx, given.Username, given.Password, given.Code)
			return opened.Token, err
		},
		SignedIn: func(ctx context.Context, how string) error {
			if how == "password" {
				return nil // the login itself is recorded
			}
			return a.store.Note(ctx, audit.Entry{
				Action: "auth.login", Target: caller.From(ctx).Name, Message: "console session with " + how,
			})
		},
		SignedOut: func(ctx context.Context) error { return a.identity.End(ctx, personOf(caller.From(ctx))) },
	})
}

// who describes a caller to the console.
func who(c caller.Caller) (session.Who, error) {
	out := session.Who{Name: c.Name, Note: string(c.Role) + " without a tenant", Expires: c.Expires}
	switch {
	case c.SeesAll():
		out.Note, out.Role = "admin, sees everything", session.RoleAdmin
	case c.Tenant != "":
		out.Note = string(c.Role) + " of the tenant " + c.Tenant
	}
	return out, nil
}
