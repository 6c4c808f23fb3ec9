// Package gate decides who may do what with the storage gateway: credentials, roles, and what only callers without a
// tenant may. HTTP and gRPC both go through it, by the operations of the contract (api/storage).
//
// # Invariants
//
//   - Who may call what is the table access, and nobodys for what belongs to no tenant.
//   - A denied attempt to change something leaves an audit entry.
//
// It imports caller and record.
package gate

import (
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// access is the authorization table. What a caller sees is decided by Caller.Sees.
var access = auth.NewAccess(caller.Ladder(), func(c caller.Caller) string { return string(c.Role) },
	map[string]func(caller.Caller) bool{"open": func(caller.Caller) bool { return true }})

// Classes returns the access classes of the contract.
func Classes() []string { return access.Classes() }

// nobodys are the operations that change, or show, what belongs to no tenant. Callers with a tenant may not.
var nobodys = map[string]bool{
	"CreateBackend": true, "DiscoverBackend": true, "CordonBackend": true, "UncordonBackend": true,
	"PutPolicy": true, "DeletePolicy": true, "PutTenant": true, "DeleteTenant": true,
	"VerifyAudit": true, "AcknowledgeAudit": true, "SetMaintenance": true,
	"MarkOSDOut": true, "MarkOSDIn": true, "ReweightOSD": true, "RefreshRBDUsage": true,
	"GetUpgradePreflight": true, "ImportBackups": true, "CreatePeer": true, "DeletePeer": true, "SetPoolMirroring": true,
}

var errNoToken = fault.New(fault.Unauthenticated, "a token is required: Authorization: Bearer JWT")

// Gate identifies callers and admits them to operations.
type Gate struct {
	// Tokens checks tokens. Nil: no credentials are required, and everybody is caller.Anonymous.
	Tokens *auth.Verifier
	Store  *record.Store
	// Low reports whether the database has room for deletions only. Nil: it always has more.
	Low func() bool
}

var errLow = fault.New(fault.StorageFailed, "the disk of the database is full; delete something, or make room, and try again").
	WithCode("storage_full")

// Identify returns the caller of a request.
func (g *Gate) Identify(r *http.Request, op *contract.Operation) (caller.Caller, error) {
	if g.Tokens == nil {
		return caller.Anonymous, httpserve.RefuseForeign(r)
	}
	if op.Access == "open" {
		return caller.Caller{}, nil
	}
	token, ok := auth.Bearer(r)
	if !ok {
		return caller.Caller{}, errNoToken
	}
	claims, err := g.Tokens.Check(token)
	if err != nil {
		return caller.Caller{}, err
	}
	return caller.Caller{
		Name: claims.Subject, Role: caller.Role(claims.Role), Tenant: claims.Tenant, Expires: claims.Expires,
	}, nil
}

// Still returns an error if the token of a request is not that of the same caller any more.
func (g *Gate) Still(r *http.Request, was caller.Caller) error {
	now, err := g.Identify(r, &contract.Operation{})
	if err == nil && now != was {
		err = errNoToken
	}
	return err
}

// Admit checks whether the caller may call op. Denied attempts to change something are audited.
func (g *Gate) Admit(r *http.Request, op *contract.Operation, c caller.Caller) error {
	var denied error
	switch {
	case op == shell.Metrics:
		return nil
	case !access.Admits(op.Access, c):
		denied = fault.New(fault.Denied, "this takes the role %s, and %s has the role %s", op.Access, c.Name, c.Role)
	case nobodys[op.ID] && !c.SeesAll():
		denied = fault.New(fault.Denied, "this takes a token without a tenant, and that of %s is for the tenant %s",
			c.Name, c.Tenant)
	case g.Low != nil && op.Audit != "" && op.Method != http.MethodDelete && g.Low():
		return errLow
	default:
		return nil
	}
	if op.Audit == "" || op.Audit == "none" {
		return denied
	}
	e := audit.Entry{Action: op.Audit, Target: target(r), Message: fault.From(denied).Message}
	if err := g.Store.NoteDenied(r.Context(), httpserve.RemoteIP(r), c, e); err != nil {
		return err
	}
	return denied
}

// target returns what a request is about.
func target(r *http.Request) string {
	for _, name := range []string{"id", "name", "osd_id"} {
		if v := r.PathValue(name); v != "" {
			return v
		}
	}
	return ""
}
