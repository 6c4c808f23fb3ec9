// Package caller identifies who makes a request, what is in the caller's scope, and how the audit
// log names the caller.
//
// # Invariants
//
//   - The caller is in the context (package shell), never an argument beside it. Without a caller,
//     nothing is visible.
//   - Tenants see only their own resources; others do not exist for them. Only
//     Sees and Scope decide this.
//   - What the daemon does on its own, it does as Daemon (ByItself).
//   - A caller that acts for a tenant (For) has that tenant's permissions, and no more.
//
// It imports nothing of the service.
package caller

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Caller identifies who makes a request.
type Caller struct {
	Name   string // the token's, the OIDC subject or the certificate's common name; see For
	Tenant string // of everything that the caller sees; empty: no limit
	Admin  bool   // belongs to no tenant
	Node   bool   // another daemon of the fleet
	// Via is the name of the admin's credentials with which the caller acts for somebody else (For).
	// Empty: the credentials are the caller's own.
	Via string
	// Forwarded means that the fleet's registry identified and counted the caller.
	Forwarded bool
}

// Anonymous is every caller if no credentials are configured.
var Anonymous = Caller{Name: "anonymous-admin", Admin: true, Node: true}

// Daemon is the daemon itself, acting on its own.
var Daemon = Caller{Name: "mainstay", Admin: true}

// For returns the caller as whom c acts. c must be an admin.
//
// The name shows both, as in "vm-service/alice". With a tenant, the caller is one of that tenant's and
// no admin. It is never a daemon of the fleet.
func (c Caller) For(tenant, actor string) Caller {
	if tenant == "" && actor == "" {
		return c
	}
	c.Via, c.Node = c.Name, false
	if actor != "" {
		c.Name += "/" + actor
	}
	if tenant != "" {
		c.Tenant, c.Admin = tenant, false
	}
	return c
}

// Key returns a text that no other caller has. Names alone are not unique: two tenants may have
// callers of the same name, and a token may be called "vm-service/alice".
func (c Caller) Key() string { return c.Tenant + "\x00" + c.Via + "\x00" + c.Name }

// From returns the caller in ctx, or the zero Caller if there is none.
func From(ctx context.Context) Caller {
	c, _ := shell.Caller[Caller](ctx)
	return c
}

// ByItself returns a context in which the daemon acts on its own.
func ByItself(ctx context.Context) context.Context { return shell.As(ctx, Daemon) }

// Sees reports whether a tenant's resources are in the caller's scope.
func (c Caller) Sees(tenant string) bool { return c.Admin || c.Tenant != "" && c.Tenant == tenant }

// Scope returns the rows that the caller sees of a table with the column tenant.
func (c Caller) Scope() db.Scope {
	switch {
	case c.Tenant != "":
		return db.Where("tenant = ?", c.Tenant)
	case c.Admin:
		return db.All()
	}
	return db.Scope{}
}

// NamesHostFiles reports whether the caller may name any file of the host in a request for a
// tenant.
//
// Admins may, tenants may not. The fleet's token is an admin's, but forwards requests of a
// registry's callers, which may be tenants: its requests for a tenant count as the tenant's.
func (c Caller) NamesHostFiles(tenant string) bool {
	forTenant := c.Tenant != "" || c.Node && c != Anonymous && tenant != ""
	return c.Admin && !forTenant
}

// Entry adds the caller to an audit entry.
func (c Caller) Entry(e audit.Entry) audit.Entry {
	e.Actor, e.ActorType = c.Name, c.actorType()
	if e.Tenant == "" {
		e.Tenant = c.Tenant
	}
	return e
}

func (c Caller) actorType() audit.ActorType {
	switch {
	case c.Name == Daemon.Name:
		return audit.System
	case c.Node && c != Anonymous:
		return audit.Node
	case !c.Admin:
		return audit.User
	}
	return audit.Admin
}
