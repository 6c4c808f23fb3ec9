package httpapi

import (
	"context"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

// The access classes that are not roles.
const (
	accessOpen        = "open"         // needs no credentials
	accessGlobalAdmin = "global-admin" // an admin without a tenant
)

// access is the authorization table. Which resources a caller sees is decided by Caller.Sees.
var access = auth.NewAccess(caller.Ladder(), func(c caller.Caller) string { return string(c.Role) },
	map[string]func(caller.Caller) bool{
		accessOpen: func(caller.Caller) bool { return true }, accessGlobalAdmin: caller.Caller.SeesAll,
	})

// errNoToken is the answer to requests without a token, and to those whose token is not valid.
var errNoToken = fault.New(fault.Unauthenticated, "Authentication required")

// identify returns the caller of a request.
func (a *API) identify(r *http.Request, op *contract.Operation) (caller.Caller, error) {
	if op.Access == accessOpen {
		return caller.Caller{}, nil
	}
	if word := r.URL.Query().Get("ticket"); op.Credential == credentialTicket && word != "" {
		return a.redeem(r, word)
	}
	token, ok := auth.Bearer(r)
	if !ok {
		return caller.Caller{}, errNoToken
	}
	return a.holder(r.Context(), token)
}

// holder returns the caller whose token it is.
func (a *API) holder(ctx context.Context, token string) (caller.Caller, error) {
	who, err := a.identity.Check(ctx, token)
	switch {
	case fault.Is(err, fault.Unauthenticated):
		return caller.Caller{}, errNoToken
	case err != nil:
		return caller.Caller{}, err
	}
	return callerOf(who), nil
}

func callerOf(who identity.Caller) caller.Caller {
	return caller.Caller{
		ID: who.UserID, Name: who.Username, Role: caller.Role(who.Role), Tenant: who.Tenant, TokenID: who.TokenID,
		Expires: who.Expires,
	}
}

// personOf returns the caller as package identity knows it.
func personOf(c caller.Caller) identity.Caller {
	return identity.Caller{
		UserID: c.ID, Username: c.Name, Role: identity.Role(c.Role), Tenant: c.Tenant, TokenID: c.TokenID, Expires: c.Expires,
	}
}

// still returns an error if the token of a request is not that of the same caller any more.
func (a *API) still(r *http.Request, was caller.Caller) error {
	now, err := a.identify(r, &contract.Operation{})
	if err == nil && now != was {
		err = errNoToken
	}
	return err
}

// authorize checks whether the caller may call op. Denied attempts to change something are audited.
func (a *API) authorize(r *http.Request, op *contract.Operation, c caller.Caller) error {
	if op == shell.Metrics || access.Admits(op.Access, c) {
		return nil
	}
	takes, has := "the role "+op.Access, "the role "+string(c.Role)
	if op.Access == accessGlobalAdmin {
		takes, has = "an admin without a tenant", has+" and the tenant "+c.Tenant
	}
	denied := fault.New(fault.Denied, "%s may not do this: it takes %s, and %s has %s", c.Name, takes, c.Name, has)
	if op.Audit == "" || op.Audit == "none" {
		return denied
	}
	e := audit.Entry{Action: op.Audit, Target: r.PathValue("name"), Message: denied.Message}
	if err := a.store.NoteDenied(r.Context(), httpserve.RemoteIP(r), c, e); err != nil {
		return err
	}
	return denied
}
