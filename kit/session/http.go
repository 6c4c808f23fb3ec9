package session

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// The paths of single sign-on.
const (
	loginPath    = "/console/oidc/login"
	CallbackPath = "/console/oidc/callback" // to be registered at the provider
)

// maxBody is the maximum size of a request's body, in bytes.
const maxBody = 16 << 10

// Identify returns who makes a request, and a context in which they act. It fails with
// Unauthenticated if the request's credentials are missing or invalid, and with Denied if they are
// not for consoles.
type Identify func(*http.Request) (context.Context, Who, error)

// Routes registers the requests of consoles. limited wraps the handling of those that check a
// password.
//
//	GET    /console/session   who is signed in, and what the service accepts
//	POST   /console/session   sign in with username and password, a token, or a ticket. The answer is 204
//	                          or, if username and password are to be sent again with a code, 200 with a step
//	DELETE /console/session   sign out
//	GET    /console/services  the services of the installation
//	POST   /console/tickets   a ticket for another service's console
func (m *Manager) Routes(
	handle func(pattern string, h http.Handler), identify Identify, fail httpserve.ErrorRenderer,
	limited func(http.Handler) http.Handler,
) {
	m.limited = limited
	route := func(serve func(http.ResponseWriter, *http.Request, Identify) error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if err := serve(w, r, identify); err != nil {
				fail(w, r, err)
			}
		})
	}
	handle("GET /console/session", route(m.show))
	handle("POST /console/session", route(m.own(m.signIn)))
	handle("DELETE /console/session", route(m.own(m.signOut)))
	handle("GET /console/services", route(m.services))
	handle("POST /console/tickets", route(m.own(m.ticket)))
	if m.cfg.OIDC != nil {
		handle("GET "+loginPath, route(func(w http.ResponseWriter, r *http.Request, _ Identify) error {
			return m.cfg.OIDC.Login(w, r)
		}))
		handle("GET "+CallbackPath, route(m.callback))
	}
}

// own refuses requests that do not come from the service's own console.
func (m *Manager) own(
	serve func(http.ResponseWriter, *http.Request, Identify) error,
) func(http.ResponseWriter, *http.Request, Identify) error {
	return func(w http.ResponseWriter, r *http.Request, identify Identify) error {
		if r.Header.Get(Header) == "" {
			return fault.New(fault.Denied, "this is for the service's console, which sends the header %s", Header).
				WithCode("browser")
		}
		if m.foreign.Check(r) != nil {
			return errForeign
		}
		return serve(w, r, identify)
	}
}

// state is the answer of GET /console/session.
type state struct {
	Service  string `json:"service"`
	Title    string `json:"title"`
	Version  string `json:"version"`
	SignedIn bool   `json:"signed_in"`
	// Over reports that this browser had a session, and that it is over.
	Over bool `json:"over"`
	Who  *Who `json:"who,omitempty"`
	// SignOut reports whether the person can sign out. Those who needed no credentials, or who have
	// a client certificate, cannot.
	SignOut   bool       `json:"sign_out"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Accepts   accepts    `json:"accepts"`
}

// accepts says how one can sign in.
type accepts struct {
	Password     bool   `json:"password"`
	Token        string `json:"token"` // what a token is called
	TokenHint    string `json:"token_hint"`
	SingleSignOn string `json:"single_sign_on"` // where it begins; empty: not accepted
}

func (m *Manager) show(w http.ResponseWriter, r *http.Request, identify Identify) error {
	s := state{
		Service: m.cfg.Service, Title: m.cfg.Title, Version: telemetry.BuildInfo().Version,
		Accepts: accepts{
			Password: m.cfg.Password != nil && (m.cfg.HasPassword == nil || m.cfg.HasPassword()),
			Token:    m.cfg.Token, TokenHint: m.cfg.TokenHint,
			SingleSignOn: m.cfg.SingleSignOn,
		},
	}
	attached, over := m.Attach(r)
	if over != nil && !fault.Is(over, fault.Unauthenticated) {
		return over
	}
	_, who, err := identify(attached)
	switch {
	case err == nil:
		s.SignedIn, s.Who = true, &who
	case !fault.Is(err, fault.Unauthenticated):
		return err
	}
	if c, found := m.read(r); found && attached != r {
		s.SignOut = s.SignedIn
		s.ExpiresAt = &c.Expires
		s.Over = !s.SignedIn // the token is not valid any more
	} else {
		s.Over = over != nil
	}
	return answer(w, s)
}

// step is the answer to a sign-in that takes another step.
type step struct {
	Needs string `json:"needs"` // secondStep
}

// secondStep asks for the same username and password with the code of a second factor.
const secondStep = "code"

func (m *Manager) signIn(w http.ResponseWriter, r *http.Request, identify Identify) error {
	fields := []string{"username", "password", "token", "ticket"}
	if m.cfg.SecondFactor {
		fields = append(fields, "code")
	}
	given, err := readTexts(r, fields...)
	if err != nil {
		return err
	}
	if _, byPassword := given["password"]; !byPassword {
		return m.signInWith(w, r, identify, given)
	}
	// Only passwords take long to check. Whoever tries many of them does not keep the owners of tokens
	// out.
	m.limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err = m.signInWith(w, r, identify, given)
	})).ServeHTTP(w, r)
	return err
}

func (m *Manager) signInWith(
	w http.ResponseWriter, r *http.Request, identify Identify, given map[string]string,
) error {
	c, how, err := m.exchange(r.Context(), given)
	switch {
	case err != nil && how == "password" && m.cfg.SecondFactor && fault.From(err).PublicCode() == CodeRequired:
		return answer(w, step{secondStep})
	case err != nil:
		return err
	}
	if !auth.Sendable(c.Token) {
		return fault.InvalidField("token", "must be printable ASCII without spaces")
	}
	if err := m.begin(w, r, c, how, identify); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// begin opens a session for whoever c identifies.
func (m *Manager) begin(w http.ResponseWriter, r *http.Request, c content, how string, identify Identify) error {
	ctx, who, err := identify(with(r, c))
	if err != nil {
		return err
	}
	if !who.Expires.IsZero() && who.Expires.Before(c.Expires) {
		c.Expires = who.Expires
	}
	if wait := m.begun.Take(who.Name); wait > 0 {
		return fault.New(fault.TooMany, "%s signs in too often; wait a moment", who.Name).WithRetryAfter(wait)
	}
	if err := m.signedIn(ctx, how); err != nil {
		return err
	}
	// Whoever signs in again, for example as somebody else, signs out before.
	if err := m.end(r); err != nil {
		return err
	}
	return m.open(w, r, c)
}

// signedIn calls SignedIn.
func (m *Manager) signedIn(ctx context.Context, how string) error {
	if m.cfg.SignedIn == nil {
		return nil
	}
	if err := m.cfg.SignedIn(ctx, how); !fault.Is(err, fault.StorageFailed) {
		return err
	}
	// A full disk is what people sign in to see. Their credentials work without the console, too.
	return nil
}

// exchange returns the content of the session that a person signs in to: given are username and
// password, a token, or a ticket.
func (m *Manager) exchange(ctx context.Context, given map[string]string) (c content, how string, err error) {
	username, named := given["username"]
	password, secret := given["password"]
	code, coded := given["code"]
	token, byToken := given["token"]
	word, byTicket := given["ticket"]
	c.Expires = m.cfg.Now().Add(Life)
	switch {
	case coded && code == "":
		return c, "", fault.InvalidField("code", "must not be empty")
	case coded && !(named && secret):
		return c, "", fault.InvalidField("code", "goes with username and password")
	case (named || secret) && (byToken || byTicket) || byToken && byTicket:
		return c, "", fault.New(fault.Invalid, "only one of username and password, token, or ticket can be given")
	case byTicket:
		if m.cfg.Workspace == nil {
			return c, "", fault.New(fault.Unauthenticated, "this service has no tickets")
		}
		c.Token, c.Expires, err = m.cfg.Workspace.Redeem(ctx, m.cfg.Service, word)
		return c, "ticket", err
	case byToken:
		c.Token = token
		return c, "token", nil
	case !named || !secret:
		return c, "", fault.New(fault.Invalid, "username and password, token, or ticket: one of them is required")
	case m.cfg.Password == nil:
		return c, "", fault.InvalidField("password", "this service does not accept passwords; sign in with a token")
	}
	c.Token, err = m.cfg.Password(ctx, Login{username, password, code})
	return c, "password", err
}

func (m *Manager) signOut(w http.ResponseWriter, r *http.Request, identify Identify) error {
	if attached, err := m.Attach(r); err == nil && attached != r && m.cfg.SignedOut != nil {
		ctx, _, err := identify(attached)
		if err == nil {
			err = m.cfg.SignedOut(ctx)
		}
		if err != nil && !fault.Is(err, fault.Unauthenticated) {
			return err
		}
	}
	if err := m.end(r); err != nil {
		return err
	}
	if err := m.write(w, r, ""); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// end ends the session of the request's cookie, if there is one.
func (m *Manager) end(r *http.Request) error {
	c, found := m.read(r)
	if !found || !m.cfg.Now().Before(c.Expires) {
		return nil
	}
	return m.cfg.Ended.End(r.Context(), c.ID, c.Expires)
}

// callback completes single sign-on. The console shows refusals.
func (m *Manager) callback(w http.ResponseWriter, r *http.Request, identify Identify) error {
	id, err := m.cfg.OIDC.Callback(w, r)
	if err == nil {
		id.Groups = nil // the role is what counts, and a cookie is small
		err = m.begin(w, r, content{Identity: &id, Expires: m.cfg.Now().Add(Life)}, "single sign-on", identify)
	}
	to := m.cfg.OIDC.ConsoleURL()
	if err != nil {
		to += "#refused=" + url.QueryEscape(fault.From(err).Message)
	}
	http.Redirect(w, r, to, http.StatusFound)
	return nil
}

func (m *Manager) services(w http.ResponseWriter, r *http.Request, identify Identify) error {
	attached, over := m.Attach(r)
	_, _, err := identify(attached)
	if err != nil {
		if over != nil {
			err = over
		}
		return err
	}
	list := []Service{}
	if m.cfg.Workspace != nil {
		list = m.states.of(r.Context(), m.cfg.Workspace.Services(hostname(r)), func(s Service) bool {
			u, err := url.Parse(s.URL)
			return err == nil && strings.EqualFold(u.Host, r.Host) || s.Name == m.cfg.Service
		})
	}
	return answer(w, list)
}

func (m *Manager) ticket(w http.ResponseWriter, r *http.Request, identify Identify) error {
	given, err := readTexts(r, "service")
	if err != nil {
		return err
	}
	attached, over := m.Attach(r)
	_, who, err := identify(attached)
	if err != nil {
		if over != nil {
			err = over
		}
		return err
	}
	if m.cfg.Workspace == nil {
		return errNoTicket
	}
	// What a ticket opens ends with the session that it comes from.
	until := m.cfg.Now().Add(Life)
	if c, found := m.read(r); found && attached != r {
		until = c.Expires
	}
	to, err := m.cfg.Workspace.Ticket(who, hostname(r), given["service"], until)
	if err != nil {
		return err
	}
	return answer(w, map[string]string{"url": to})
}

// hostname returns the host of the request without the port.
func hostname(r *http.Request) string {
	u := url.URL{Host: r.Host}
	return u.Hostname()
}

func answer(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(value)
}
