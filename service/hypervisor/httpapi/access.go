package httpapi

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

// The access classes of the contract (x-access).
const (
	accessTenant = "tenant"
	accessAdmin  = "admin"
	accessNode   = "node"
)

// credentialTicket is the x-credential of operations that take a ticket for the VM in the
// query.
const credentialTicket = "ticket"

// access is the authorization table. What a caller sees of the VMs behind an operation is
// the scope's business (Caller.Sees).
var access = auth.NewAccess([]string{accessTenant, accessAdmin}, func(c caller.Caller) string {
	switch {
	case c.Admin:
		return accessAdmin
	case c.Tenant != "":
		return accessTenant
	}
	return ""
}, map[string]func(caller.Caller) bool{
	accessNode: func(c caller.Caller) bool { return c.Node },
})

// Credentials are what callers show.
type Credentials struct {
	Token      string // an admin's; empty: there is none
	FleetToken string // of the daemons of a fleet; empty: there is none
	Document   *configfile.Auth
	Names      []string // of this host, for those who come without credentials
}

// Gate tells callers by their credentials.
type Gate struct {
	tokens       map[string]caller.Caller // by the token's hash
	certificates map[string]caller.Caller // by common name
	oidc         *auth.TokenVerifier
	tenantClaim  string
	adminClaim   string
	names        []string
}

// NewGate makes a Gate.
func NewGate(from Credentials, now func() time.Time) *Gate {
	g := &Gate{tokens: map[string]caller.Caller{}, certificates: map[string]caller.Caller{}, names: from.Names}
	if from.Token != "" {
		g.tokens[auth.HashToken(from.Token)] = caller.Caller{Name: "admin", Admin: true}
	}
	if from.FleetToken != "" {
		g.tokens[auth.HashToken(from.FleetToken)] = caller.Caller{Name: "fleet", Admin: true, Node: true}
	}
	doc := from.Document
	for _, t := range doc.Tokens {
		g.tokens[t.SHA256] = caller.Caller{Name: t.Name, Tenant: t.Tenant, Admin: t.Tenant == ""}
	}
	for _, c := range doc.ClientCertificates {
		g.certificates[c.CommonName] = caller.Caller{Name: c.CommonName, Tenant: c.Tenant, Admin: c.Tenant == ""}
	}
	if doc.OIDC.Issuer != "" {
		g.oidc = auth.NewTokenVerifier(doc.OIDC.Issuer, doc.OIDC.Audience, nil, now)
		g.tenantClaim, g.adminClaim = doc.OIDC.TenantClaim, doc.OIDC.AdminClaim
	}
	return g
}

// Open says whether no credentials are configured, so that everybody may do everything.
func (g *Gate) Open() bool { return len(g.tokens) == 0 && len(g.certificates) == 0 && g.oidc == nil }

// KeepDaemons has the fleet's daemons admitted that another gate admits.
func (g *Gate) KeepDaemons(of *Gate) {
	for hash, c := range of.tokens {
		if c.Node {
			g.tokens[hash] = c
		}
	}
}

// Callers counts the callers that have credentials of their own, and says whether others can have them
// of an OIDC provider.
func (g *Gate) Callers() (n int, oidc bool) {
	return len(g.tokens) + len(g.certificates), g.oidc != nil
}

var (
	errNoCredentials = fault.New(fault.Unauthenticated,
		"this needs credentials: send the header Authorization: Bearer TOKEN")
	errBadToken = fault.New(fault.Unauthenticated, "the token is not valid")
)

// caller tells who makes a request.
func (g *Gate) caller(r *http.Request) (caller.Caller, error) {
	if g.Open() {
		// Without credentials, any page that a browser on this host shows could ask.
		return caller.Anonymous, httpserve.RefuseForeign(r, g.names...)
	}
	token, ok := auth.Bearer(r)
	if !ok {
		if c, ok := g.byCertificate(r.TLS); ok {
			return c, nil
		}
		return caller.Caller{}, errNoCredentials
	}
	// Looking up a hash tells nothing of the tokens that are there by the time it takes.
	if c, ok := g.tokens[auth.HashToken(token)]; ok {
		return c, nil
	}
	if g.oidc == nil {
		return caller.Caller{}, errBadToken
	}
	verified, err := g.oidc.Verify(r.Context(), token)
	if err != nil {
		return caller.Caller{}, err
	}
	tenant, _ := verified.Claims[g.tenantClaim].(string)
	admin, _ := verified.Claims[g.adminClaim].(bool)
	if len(tenant) > configfile.MaxTenant {
		return caller.Caller{}, errBadToken
	}
	return caller.Caller{
		Name:   verified.Subject,
		Tenant: tenant,
		Admin:  tenant == "" && admin && g.adminClaim != "",
	}, nil
}

func (g *Gate) byCertificate(state *tls.ConnectionState) (caller.Caller, bool) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return caller.Caller{}, false
	}
	c, ok := g.certificates[state.VerifiedChains[0][0].Subject.CommonName]
	return c, ok
}

// identify says who calls. Nothing is done before the VMs that there are are brought back.
func (a *API) identify(r *http.Request, op *contract.Operation) (caller.Caller, error) {
	select {
	case <-a.cfg.Restored:
	case <-r.Context().Done():
		return caller.Caller{}, r.Context().Err() // the caller has left
	}
	if ticket := r.URL.Query().Get("ticket"); op.Credential == credentialTicket && ticket != "" {
		if err := relay.CheckUpgrade(r); err != nil {
			return caller.Caller{}, err // which spends no ticket
		}
		return a.tickets.Redeem(ticket, r.PathValue("id"), op.ID)
	}
	return a.gate.Load().caller(r)
}

// authorize says whether the caller may do op. An attempt on something that changes state is worth
// remembering.
func (a *API) authorize(r *http.Request, op *contract.Operation, c caller.Caller) error {
	if op == shell.Metrics {
		if c.Admin {
			return nil
		}
		return fault.New(
			fault.Denied,
			"%s may not read the metrics; it takes an admin's credentials, or auth.open_metrics in the daemon's document",
			c.Name,
		)
	}
	if access.Admits(op.Access, c) {
		return nil
	}
	denied := fault.New(fault.Denied, "%s may not do this; it takes access class %q", c.Name, op.Access)
	if op.Audit == "" || op.Audit == "none" {
		return denied
	}
	e := audit.Entry{Action: op.Audit, Target: r.PathValue("id"), Message: denied.Message}
	if err := a.store.NoteDenied(r.Context(), httpserve.RemoteIP(r), c, e); err != nil {
		return err
	}
	return denied
}

// maxBody is the most that a request with JSON may hold, in bytes.
const maxBody = 4 << 20

// whom a request is counted against, for the rate limit. The fleet's daemons are not
// counted: what they do is done for callers who were counted where they called.
func whom(c caller.Caller, from shell.Peer) string {
	switch {
	case c == caller.Anonymous || c.Name == "":
		return "network " + from.Network
	case c.Node:
		return ""
	}
	return "caller " + c.Name
}
