package edge

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Kind is where a caller's credentials come from.
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

// Role is what a caller may do.
type Role string

// The roles.
const (
	RoleAdmin  Role = "admin"
	RoleViewer Role = "viewer"
	RoleAgent  Role = "agent"
)

// Caller is who makes a request.
type Caller struct {
	Subject   string
	Kind      Kind
	Role      Role
	OrgID     string // empty for global callers and for agents of global sites
	SiteID    string // agents only
	ExpiresAt time.Time
	// Revoked marks the agent of a revoked site, who is told so on rotation and
	// is nobody otherwise.
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

// scope is what the caller may see of a table with the columns org_id and site_id.
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

// sees reports whether objects of the org are in the caller's scope.
func (c Caller) sees(orgID string) bool { return c.Global() || c.OrgID == orgID && c.Kind == KindOrg }

// asSystem is the context in which the control plane acts by itself.
func asSystem(ctx context.Context) context.Context { return shell.As(ctx, systemCaller) }

// callerFrom is who asks for what is done in ctx; KindNone if nobody is known.
func callerFrom(ctx context.Context) Caller {
	c, _ := shell.Caller[Caller](ctx)
	return c
}
