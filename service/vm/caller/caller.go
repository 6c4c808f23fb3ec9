// Package caller identifies who makes a request to VM management, and what is in the caller's
// scope.
//
// # Invariants
//
//   - The caller is in the context (package shell), never an argument beside it. Without a caller,
//     nothing is visible.
//   - A caller sees what belongs to its tenant. An admin without a tenant sees everything; any
//     other caller without a tenant sees what belongs to no tenant. Only Sees and Scope decide this.
//   - Roles form a ladder: each includes the ones below it.
//   - Only admins learn paths of hosts (Public).
//
// It imports nothing of the service.
package caller

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Role decides which operations a caller may call.
type Role string

// The roles, from the lowest.
const (
	Viewer Role = "viewer"
	User   Role = "user"
	Admin  Role = "admin"
)

// Ladder lists the roles from the lowest.
func Ladder() []string { return []string{string(Viewer), string(User), string(Admin)} }

// Caller identifies who makes a request.
type Caller struct {
	ID      string // of the account
	Name    string // the username
	Role    Role
	Tenant  string    // empty: none
	TokenID string    // of the token
	Expires time.Time // of the token
	system  bool
}

// System is the service acting on its own.
var System = Caller{Name: "mainstay", Role: Admin, system: true}

// From returns the caller in ctx, or the zero Caller if there is none.
func From(ctx context.Context) Caller {
	c, _ := shell.Caller[Caller](ctx)
	return c
}

// ByItself returns a context in which the service acts on its own.
func ByItself(ctx context.Context) context.Context { return shell.As(ctx, System) }

// Acting returns a context in which the service acts on its own, for the person who asked for a job;
// empty: for nobody.
func Acting(ctx context.Context, person string) context.Context {
	c := System
	if person != "" {
		c.Name = person
	}
	return shell.As(ctx, c)
}

// Person returns the name of the person who acts, or "" if the service acts on its own. A user may be
// called what the service calls itself.
func (c Caller) Person() string {
	if c.system && c.Name == System.Name {
		return ""
	}
	return c.Name
}

// SeesAll reports whether the caller sees the resources of all tenants.
func (c Caller) SeesAll() bool { return c.Role == Admin && c.Tenant == "" }

// Sees reports whether a tenant's resources are in the caller's scope. tenant may be empty.
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
	case c.Role == User:
		return audit.User
	}
	return audit.Admin
}

// hostPath matches an absolute path in a message. Addresses like 10.0.0.0/8 and media types like
// text/plain are no paths: they have no slash after a space, a quote or a bracket.
var (
	hostPath = regexp.MustCompile(`(^|[` + regexp.QuoteMeta(pathBegins) + `])(?:/|[A-Za-z][A-Za-z0-9+.-]*:/)[^\s"'` + "`" +
		`()\[\]{}<>,;:|]+`)
	// harmless matches what only looks like a path: a scheme without an address, and the bits of an IPv6 network.
	harmless = regexp.MustCompile(`^(https?://|/[0-9]{1,3})$`)
	// address matches an address of the web, which may be one inside the network.
	address = regexp.MustCompile(`\bhttps?://[^\s"'` + "`" + `<>]*[^\s"'` + "`" + `<>.,:;)]`)
)

// pathBegins are the characters before a path.
const pathBegins = " \t\r\n\"'`([{<=:,;|"

// Public returns a message as the caller may read it: without paths of hosts and addresses of the web, unless
// the caller is an admin who sees everything.
func (c Caller) Public(message string) string {
	if c.SeesAll() {
		return message
	}
	message = address.ReplaceAllString(message, "(address)")
	return hostPath.ReplaceAllStringFunc(message, func(found string) string {
		path := strings.TrimLeft(found, pathBegins)
		if harmless.MatchString(path) {
			return found
		}
		return strings.TrimSuffix(found, path) + "(path)"
	})
}
