package edge

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Kind is the kind of credentials that a caller has.
type Kind string

// The kinds of credentials.
const (
	KindNone       Kind = ""           // no credentials: open operations only
	KindToken      Kind = "token"      // a global token from the configuration
	KindSession    Kind = "session"    // a login with password or OIDC
	KindOrg        Kind = "org"        // an org's admin or viewer token
	KindAgent      Kind = "agent"      // a site's agent
	KindEnrollment Kind = "enrollment" // an org's enrollment token; never a caller
)

// Role determines which operations a caller may perform.
type Role string

// The roles.
const (
	RoleAdmin  Role = "admin"
	RoleViewer Role = "viewer"
	RoleAgent  Role = "agent"
)

// Caller identifies the sender of a request.
type Caller struct {
	Subject   string
	Kind      Kind
	Role      Role
	OrgID     string // empty for global callers and for agents of global sites
	SiteID    string // agents only
	ExpiresAt time.Time
	// Revoked marks the agent of a revoked site. Rotation tells it so; every other operation treats
	// it as unknown.
	Revoked bool

	tokenHash string
}

// Global reports whether the caller sees all orgs.
func (c Caller) Global() bool {
	return c.Role != RoleAgent && (c.Kind == KindToken || c.Kind == KindSession || c.Kind == kindSystem)
}

// kindSystem is the control plane acting by itself.
const kindSystem Kind = "system"

var systemCaller = Caller{Subject: "mainstay", Kind: kindSystem}

// actor returns the caller's name for people and the audit log.
func (c Caller) actor() string {
	if c.Kind == KindNone {
		return "anonymous"
	}
	return c.Subject
}

func (c Caller) actorType() audit.ActorType {
	switch {
	case c.Kind == kindSystem || c.Kind == KindNone:
		return audit.System
	case c.Role == RoleAgent:
		return audit.Agent
	case c.Role == RoleViewer:
		return audit.Viewer
	}
	return audit.Admin
}

// scope returns the rows that the caller may see of a table with the columns org_id and site_id.
func (c Caller) scope() db.Scope {
	switch {
	case c.Global():
		return db.All()
	case c.Role == RoleAgent && c.SiteID != "":
		return db.Where("site_id = ?", c.SiteID)
	case c.OrgID != "":
		return db.Where("org_id = ?", c.OrgID)
	}
	return db.Scope{} // nobody sees anything
}

// sees reports whether the caller's scope includes objects of the org.
func (c Caller) sees(orgID string) bool { return c.Global() || c.OrgID == orgID && c.Kind == KindOrg }

// asSystem returns a context in which the control plane acts on its own behalf.
func asSystem(ctx context.Context) context.Context { return shell.As(ctx, systemCaller) }

// callerFrom returns the caller on whose behalf ctx runs, or one of KindNone if there is none.
func callerFrom(ctx context.Context) Caller {
	c, _ := shell.Caller[Caller](ctx)
	return c
}
