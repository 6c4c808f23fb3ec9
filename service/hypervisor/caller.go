package hypervisor

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Caller is who makes a request.
type Caller struct {
	Name   string // the token's, the OIDC subject or the certificate's common name
	Tenant string // of all that the caller sees; empty: everything
	Admin  bool   // belongs to no tenant
	Node   bool   // another daemon of the fleet
}

// sees says whether what belongs to a tenant is in the caller's scope.
func (c Caller) sees(tenant string) bool { return c.Admin || c.Tenant != "" && c.Tenant == tenant }

// anonymous is everybody where no credentials are configured.
var anonymous = Caller{Name: "anonymous-admin", Admin: true, Node: true}

// daemon is the daemon itself, acting on its own.
var daemon = Caller{Name: "mainstay", Admin: true}

// byItself is the context in which the daemon acts on its own.
func byItself(ctx context.Context) context.Context { return shell.As(ctx, daemon) }

// callerFrom is who asks for what is done in ctx; the zero Caller if nobody is known.
func callerFrom(ctx context.Context) Caller {
	c, _ := shell.Caller[Caller](ctx)
	return c
}

func (c Caller) actorType() audit.ActorType {
	switch {
	case c.Name == daemon.Name:
		return audit.System
	case c.Node && c != anonymous:
		return audit.Agent
	}
	return audit.Admin
}
