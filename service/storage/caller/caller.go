// Package caller identifies who makes a request to the storage gateway, and what is in the caller's
// scope.
//
// # Invariants
//
//   - The caller is in the context (package shell), never an argument beside it. Without a caller,
//     nothing is visible.
//   - A caller with a tenant sees what belongs to that tenant. A caller without one sees everything, and
//     also storage that belongs to no tenant. Only Sees and Scope decide this.
//   - Roles form a ladder: each includes the ones below it.
//
// It imports nothing of the service.
package caller

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Role decides which operations a caller may call.
type Role string

// The roles, from the lowest.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

// Ladder lists the roles from the lowest.
func Ladder() []string { return []string{string(Viewer), string(Operator), string(Admin)} }

// Caller identifies who makes a request.
type Caller struct {
	Name    string
	Role    Role
	Tenant  string    // empty: none
	Expires time.Time // of the credentials; zero: never
	system  bool
}

// System is the gateway acting on its own.
var System = Caller{Name: "mainstay", Role: Admin, system: true}

// Anonymous is everybody while no credentials are required.
var Anonymous = Caller{Name: "anonymous", Role: Admin}

// From returns the caller in ctx, or the zero Caller if there is none.
func From(ctx context.Context) Caller {
	c, _ := shell.Caller[Caller](ctx)
	return c
}

// ByItself returns a context in which the gateway acts on its own.
func ByItself(ctx context.Context) context.Context { return shell.As(ctx, System) }

// SeesAll reports whether the caller sees the storage of all tenants.
func (c Caller) SeesAll() bool { return c.Role != "" && c.Tenant == "" }

// Sees reports whether a tenant's storage is in the caller's scope. tenant may be empty.
func (c Caller) Sees(tenant string) bool { return c.SeesAll() || c.Role != "" && c.Tenant == tenant }

// Scope returns the rows that the caller sees of a table with the column tenant.
func (c Caller) Scope() db.Scope {
	switch {
	case c.SeesAll():
		return db.All()
	case c.Role != "":
		return db.Where("tenant = ?", c.Tenant)
	}
	return db.Scope{}
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
	case c.system || c.Role == "":
		return audit.System
	case c.Role == Viewer:
		return audit.Viewer
	case c.Role == Operator:
		return audit.User
	}
	return audit.Admin
}
