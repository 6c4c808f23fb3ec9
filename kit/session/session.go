package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Header is the header that consoles send with each request. Its value does not matter.
const Header = "X-Mainstay-Console"

// Who describes a signed-in person to the console.
type Who struct {
	Name string `json:"name"`
	// Note describes the permissions in a few words, such as "admin, sees everything".
	Note string `json:"note"`
	// Access is the person's role, and Tenant the person's tenant, for consoles that decide by them what to
	// show. Empty: the console asks the service's API.
	Access string `json:"access,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// Role is RoleAdmin or RoleViewer if the person may do or see everything, so that a Ring may
	// open other consoles. It is empty for anyone else, such as a tenant.
	Role string `json:"-"`
	// Expires is when the person's credentials end, and a session of them with them. Zero: they do not
	// end by themselves.
	Expires time.Time `json:"-"`
}

// The roles that a Ring knows.
const (
	RoleAdmin  = "admin"
	RoleViewer = "viewer"
)

// Config holds the settings and dependencies of a Manager.
type Config struct {
	// Service is the service's name, such as "edge". It is part of the cookie's name.
	Service string
	// Title is the name that the console shows.
	Title string
	// Sealer encrypts the cookies. Replicas share its secret.
	Sealer *auth.Sealer
	Ended  Ended
	Now    func() time.Time
	Log    *slog.Logger

	// Password exchanges a name and a password for a token. Nil if the service has no passwords.
	Password func(ctx context.Context, login Login) (token string, err error)
	// SecondFactor says that Password may ask for a code: by an error with the code CodeRequired, once
	// the password was right. Otherwise no login has a Code.
	SecondFactor bool
	// HasPassword reports whether anybody has a password now. Nil means yes, if there is Password.
	HasPassword func() bool
	// Token is what the service calls its tokens, such as "API key", and TokenHint explains them on
	// the sign-in page. An empty Token stands for "Token".
	Token, TokenHint string
	// SingleSignOn is the path where single sign-on begins, if the service's API has one. OIDC
	// stands for a login that the Manager serves itself. Both may be empty.
	SingleSignOn string
	OIDC         *auth.OIDC
	// SignedIn is called before a session is opened, with the caller in the context. how is
	// "password", "token", "ticket" or "single sign-on". An error refuses the session, unless it is
	// StorageFailed. Nil: nothing to do.
	SignedIn func(ctx context.Context, how string) error
	// SignedOut is called when a session is signed out, with the caller in the context. Nil: nothing
	// to do.
	SignedOut func(ctx context.Context) error
	// Workspace knows the other services. Nil: there are none.
	Workspace Workspace
}

// Login is what a person signs in with.
type Login struct {
	Username, Password string
	Code               string // of the second factor; empty in the first step
}

// CodeRequired is the code of a fault of kind Unauthenticated with which Config.Password asks for a
// code.
const CodeRequired = "totp_required"

// Manager opens, recognizes and ends the sessions of one service. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	foreign http.CrossOriginProtection
	limited func(http.Handler) http.Handler // for passwords; set by Routes
	states  *states
	begun   *httpserve.Buckets // sessions, by who opened them
}

// How often one caller may sign in. A sign-out is remembered until the session would have ended, and
// a sign-in has an audit entry: a weak credential must not fill memory or disk with them.
const (
	signInsPerSecond = 0.5
	signInsAtOnce    = 500
	signInKeys       = 10_000
)

// New returns a Manager.
func New(cfg Config) *Manager {
	if cfg.Token == "" {
		cfg.Token = "Token"
	}
	if cfg.OIDC != nil {
		cfg.SingleSignOn = loginPath
	}
	return &Manager{
		cfg: cfg, states: newStates(cfg.Now, cfg.Log), begun: httpserve.NewBuckets(httpserve.RateLimits{
			Rate: signInsPerSecond, Burst: signInsAtOnce, MaxKeys: signInKeys, Now: cfg.Now,
		}),
	}
}

var (
	errOver    = fault.New(fault.Unauthenticated, "the session is over; sign in again").WithCode("session_over")
	errForeign = fault.New(fault.Denied,
		"this request does not come from the service's own console; a proxy in between must pass the Host header on",
	).WithCode("browser")
	errFull = fault.New(fault.Unavailable, "too many sessions were signed out today; restart the service to end all")
)

type identityKey struct{}

// IdentityFrom returns who signed in with single sign-on, if the request of ctx belongs to such a
// session.
func IdentityFrom(ctx context.Context) (auth.Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(auth.Identity)
	return id, ok
}

// Attach returns the request with the credentials of its session: the token as an Authorization
// header, or the identity for IdentityFrom. A request that belongs to no session is returned
// unchanged. The error is not nil if the session is over or cannot be used; the request is then
// returned unchanged, too, since an operation may need no credentials.
func (m *Manager) Attach(r *http.Request) (*http.Request, error) {
	if r.Header.Get("Authorization") != "" || r.Header.Get(Header) == "" {
		return r, nil
	}
	c, found := m.read(r)
	if !found {
		return r, nil
	}
	if m.foreign.Check(r) != nil {
		return r, errForeign
	}
	if err := m.check(r.Context(), c); err != nil {
		return r, err
	}
	r = with(r, c)
	ctx := context.WithValue(r.Context(), openKey{}, open{m, c})
	// Streams end with their session, also if another replica has ended it.
	return r.WithContext(httpserve.EndWhen(ctx, func() bool { return Recheck(ctx) == errOver })), nil
}

// open is a session that a request belongs to.
type open struct {
	manager *Manager
	content content
}

type openKey struct{}

// Recheck returns an error if the request of ctx belongs to a session that is over by now, or that
// cannot be checked.
func Recheck(ctx context.Context) error {
	o, ok := ctx.Value(openKey{}).(open)
	if !ok {
		return nil
	}
	return o.manager.check(ctx, o.content)
}

// check returns an error if a session is over.
func (m *Manager) check(ctx context.Context, c content) error {
	if !m.cfg.Now().Before(c.Expires) {
		return errOver
	}
	ended, err := m.cfg.Ended.Has(ctx, c.ID)
	if err == nil && ended {
		err = errOver
	}
	return err
}

// with returns the request with the credentials of a session.
func with(r *http.Request, c content) *http.Request {
	ctx := r.Context()
	if c.Identity != nil {
		ctx = context.WithValue(ctx, identityKey{}, *c.Identity)
	}
	out := r.WithContext(ctx)
	out.Header = maps.Clone(r.Header)
	out.Header.Del("Cookie") // what follows has no use for it
	if c.Token != "" {
		out.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return out
}

// open opens a session, which ends when c.Expires says: it sets its cookie.
func (m *Manager) open(w http.ResponseWriter, r *http.Request, c content) error {
	c.ID, c.Expires = auth.NewToken(""), c.Expires.UTC().Truncate(time.Second)
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return m.write(w, r, m.cfg.Sealer.Seal(raw, m.cfg.Service))
}
