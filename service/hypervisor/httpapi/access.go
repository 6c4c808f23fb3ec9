package httpapi

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// The access classes of the contract (x-access).
const (
	accessTenant = "tenant"
	accessAdmin  = "admin"
	accessNode   = "node"
)

// credentialTicket is the x-credential of operations that accept a ticket for the VM in the query.
const credentialTicket = "ticket"

// access is the authorization table. Which VMs a caller sees is decided by Caller.Sees.
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

// Credentials are the credentials that callers can present.
type Credentials struct {
	Token      string // an admin's; empty: none
	FleetToken string // of the daemons of a fleet; empty: none
	Document   *configfile.Auth
	Names      []string // of this host; checked for requests without credentials
}

// Gate identifies callers by their credentials.
type Gate struct {
	tokens       map[string]caller.Caller // by the token's hash
	certificates map[string]caller.Caller // by common name
	oidc         *auth.TokenVerifier
	tenantClaim  string
	adminClaim   string
	names        []string
}

// NewGate returns a Gate for the given credentials.
func NewGate(from Credentials, now func() time.Time) *Gate {
	g := &Gate{tokens: map[string]caller.Caller{}, certificates: map[string]caller.Caller{}, names: from.Names}
	if from.Token != "" {
		g.tokens[auth.HashToken(from.Token)] = caller.Caller{Name: "admin", Admin: true}
	}
	if from.FleetToken != "" {
		g.tokens[auth.HashToken(from.FleetToken)] = caller.Caller{Name: "fleet", Admin: true, Node: true}
		g.tokens[auth.HashToken(fleet.ActingToken(from.FleetToken))] = caller.Caller{
			Name: "fleet", Admin: true, Forwarded: true,
		}
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

// Open reports whether no credentials are configured, so that everyone may do everything.
func (g *Gate) Open() bool { return len(g.tokens) == 0 && len(g.certificates) == 0 && g.oidc == nil }

// KeepDaemons also admits the fleet's daemons that another gate admits.
func (g *Gate) KeepDaemons(of *Gate) {
	for hash, c := range of.tokens {
		if c.Node || c.Forwarded {
			g.tokens[hash] = c
		}
	}
}

// Callers returns the number of callers with configured credentials, and whether an OIDC provider
// is configured, too.
func (g *Gate) Callers() (n int, oidc bool) {
	return len(g.tokens) + len(g.certificates), g.oidc != nil
}

var (
	errNoCredentials = fault.New(fault.Unauthenticated,
		"this needs credentials: send the header Authorization: Bearer TOKEN")
	errBadToken = fault.New(fault.Unauthenticated, "the token is not valid")
)

// caller identifies the caller of a request. If an admin acts for somebody else, that is the caller.
func (g *Gate) caller(r *http.Request) (caller.Caller, error) {
	c, err := g.credentials(r)
	if err != nil {
		return c, err
	}
	return acting(r, c)
}

// credentials returns whose credentials a request has.
func (g *Gate) credentials(r *http.Request) (caller.Caller, error) {
	if g.Open() {
		// Without credentials, any web page in a browser on this host could send requests.
		return caller.Anonymous, httpserve.RefuseForeign(r, g.names...)
	}
	if id, ok := session.IdentityFrom(r.Context()); ok {
		return caller.Caller{Name: cmp.Or(id.Email, id.Subject), Tenant: id.Tenant, Admin: id.Role == accessAdmin}, nil
	}
	token, ok := auth.Bearer(r)
	if !ok {
		if c, ok := g.byCertificate(r.TLS); ok {
			return c, nil
		}
		return caller.Caller{}, errNoCredentials
	}
	// Looking up a hash does not leak by its timing which tokens exist.
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
	tenant, admin := personOf(verified.Claims, g.tenantClaim, g.adminClaim)
	if len(tenant) > configfile.MaxTenant {
		return caller.Caller{}, errBadToken
	}
	return caller.Caller{Name: verified.Subject, Tenant: tenant, Admin: admin}, nil
}

// personOf returns what the claims of a verified token say about its user.
func personOf(claims map[string]any, tenantClaim, adminClaim string) (tenant string, admin bool) {
	tenant, _ = claims[tenantClaim].(string)
	admin, _ = claims[adminClaim].(bool)
	return tenant, tenant == "" && admin && adminClaim != ""
}

// SignOnRole returns the role and the tenant of a user who signed in at the document's provider, or
// no role if the claims name neither an admin nor a valid tenant.
func SignOnRole(doc configfile.OIDC) func(claims map[string]any) (role, tenant string) {
	return func(claims map[string]any) (role, tenant string) {
		tenant, admin := personOf(claims, doc.TenantClaim, doc.AdminClaim)
		switch {
		case admin:
			return accessAdmin, ""
		case tenant != "" && len(tenant) <= configfile.MaxTenant:
			return accessTenant, tenant
		}
		return "", ""
	}
}

func (g *Gate) byCertificate(state *tls.ConnectionState) (caller.Caller, bool) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return caller.Caller{}, false
	}
	c, ok := g.certificates[state.VerifiedChains[0][0].Subject.CommonName]
	return c, ok
}

// identify returns the caller of a request. It waits until the VMs are restored.
func (a *API) identify(r *http.Request, op *contract.Operation) (caller.Caller, error) {
	select {
	case <-a.cfg.Restored:
	case <-r.Context().Done():
		return caller.Caller{}, r.Context().Err() // the caller has left
	}
	if ticket := r.URL.Query().Get("ticket"); op.Credential == credentialTicket && ticket != "" {
		if err := relay.CheckUpgrade(r); err != nil {
			return caller.Caller{}, err // and the ticket stays valid
		}
		return a.redeem(r, ticket, op)
	}
	g := a.gate.Load()
	c, err := g.credentials(r)
	if err != nil {
		return c, err
	}
	as, err := acting(r, c)
	if as.Via != "" {
		httpserve.StreamOwner(r, as.Key())
	}
	if refused := (*fault.Error)(nil); errors.As(err, &refused) && refused.Kind == fault.Denied {
		err = a.deny(r, op, c, refused)
	}
	return as, err
}

// redeem returns the caller of a ticket, whose credentials must still hold.
func (a *API) redeem(r *http.Request, word string, op *contract.Operation) (caller.Caller, error) {
	v, err := a.tickets.Redeem(word, subjectOf(r), op.ID)
	if err != nil {
		return caller.Caller{}, err
	}
	if err := v.still(); err != nil {
		return caller.Caller{}, err
	}
	shell.SetStill(r.Context(), v.still)
	return acting(r, v.Caller)
}

// still returns an error if the credentials of a request are not those of a caller any more.
func (a *API) still(r *http.Request, was caller.Caller) error {
	now, err := a.gate.Load().caller(r)
	if err == nil && now != was {
		err = errBadToken
	}
	return err
}

// authorize checks whether the caller may call op. Denied attempts to change state are audited.
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
	return a.deny(r, op, c, fault.New(
		fault.Denied, "%s may not do this; it takes access class %q", c.Name, op.Access,
	))
}

// deny returns denied, after writing its audit entry if op changes state.
func (a *API) deny(r *http.Request, op *contract.Operation, c caller.Caller, denied *fault.Error) error {
	if op.Audit == "" || op.Audit == "none" {
		return denied
	}
	e := audit.Entry{Action: op.Audit, Target: r.PathValue("id"), Message: denied.Message}
	if err := a.store.NoteDenied(r.Context(), httpserve.RemoteIP(r), c, e); err != nil {
		return err
	}
	return denied
}

// maxBody is the maximum size of a JSON request body, in bytes.
const maxBody = 4 << 20

// whom returns the key for the rate limit, or "" for no limit. The fleet's daemons are not limited:
// they act for callers who were counted at the daemon that they called.
func whom(c caller.Caller, from shell.Peer) string {
	switch {
	case c.Node && c != caller.Anonymous || c.Forwarded:
		return ""
	case cmp.Or(c.Via, c.Name) == caller.Anonymous.Name || c.Name == "":
		return "network " + from.Network
	case c.Via != "":
		return "acting " + c.Key()
	}
	return "caller " + c.Name
}
