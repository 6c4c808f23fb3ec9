package hypervisor

import (
	"context"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/audit"
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

// call is what the domain and its translation may want to know of the request.
type call struct {
	caller Caller
	w      http.ResponseWriter
	r      *http.Request
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// byItself is the context in which the daemon acts on its own.
func byItself(ctx context.Context) context.Context { return withCall(ctx, &call{caller: daemon}) }

func callFrom(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

func callerFrom(ctx context.Context) Caller { return callFrom(ctx).caller }

func (c Caller) actorType() audit.ActorType {
	switch {
	case c.Name == daemon.Name:
		return audit.System
	case c.Node && c != anonymous:
		return audit.Agent
	}
	return audit.Admin
}
