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
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// access is the authorization table. What a caller sees is decided by Caller.Sees.
var access = auth.NewAccess(caller.Ladder(), func(c caller.Caller) string { return string(c.Role) },
	map[string]func(caller.Caller) bool{"open": func(caller.Caller) bool { return true }})

// nobodys are the operations that change, or show, what belongs to no tenant. Callers with a tenant may not.
var nobodys = map[string]bool{
	"CreateBackend": true, "DiscoverBackend": true, "CordonBackend": true, "UncordonBackend": true,
	"PutPolicy": true, "DeletePolicy": true, "PutTenant": true, "DeleteTenant": true,
	"VerifyAudit": true, "AcknowledgeAudit": true, "SetMaintenance": true,
}

var errNoToken = fault.New(fault.Unauthenticated, "a token is required: Authorization: Bearer JWT")

// identify returns the caller of a request.
func (a *API) identify(r *http.Request, op *contract.Operation) (caller.Caller, error) {
	if a.cfg.Tokens == nil {
		return caller.Anonymous, httpserve.RefuseForeign(r)
	}
	if op.Access == "open" {
		return caller.Caller{}, nil
	}
	token, ok := auth.Bearer(r)
	if !ok {
		return caller.Caller{}, errNoToken
	}
	claims, err := a.cfg.Tokens.Check(token)
	if err != nil {
		return caller.Caller{}, err
	}
	return caller.Caller{
		Name: claims.Subject, Role: caller.Role(claims.Role), Tenant: claims.Tenant, Expires: claims.Expires,
	}, nil
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
	var denied error
	switch {
	case op == shell.Metrics:
		return nil
	case !access.Admits(op.Access, c):
		denied = fault.New(fault.Denied, "this takes the role %s, and %s has the role %s", op.Access, c.Name, c.Role)
	case nobodys[op.ID] && !c.SeesAll():
		denied = fault.New(fault.Denied, "this takes a token without a tenant, and that of %s is for the tenant %s", c.Name, c.Tenant)
	default:
		return nil
	}
	if op.Audit == "" || op.Audit == "none" {
		return denied
	}
	e := audit.Entry{Action: op.Audit, Target: target(r), Message: fault.From(denied).Message}
	if err := a.store.NoteDenied(r.Context(), httpserve.RemoteIP(r), c, e); err != nil {
		return err
	}
	return denied
}

// target returns what a request is about.
func target(r *http.Request) string {
	for _, name := range []string{"id", "name"} {
		if v := r.PathValue(name); v != "" {
			return v
		}
	}
	return ""
}

// tenantOf returns the tenant of what a request makes.
func tenantOf(ctx context.Context, given *string) (string, error) {
	c := caller.From(ctx)
	switch {
	case given == nil:
		return c.Tenant, nil
	case !c.Sees(*given):
		return "", fault.New(fault.Denied, "tenant_id: is not the tenant of your token")
	}
	return *given, nil
}

// tenantFilter checks the tenant that a list is limited to.
func tenantFilter(ctx context.Context, given *string) (string, error) {
	if given != nil && !caller.From(ctx).Sees(*given) {
		return "", fault.New(fault.Denied, "tenant: is not the tenant of your token")
	}
	return value(given), nil
}
