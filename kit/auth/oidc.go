package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	providerTimeout = 10 * time.Second
	// discoveryPause is the minimum time between two discovery attempts, so that logins do not
	// flood a provider that is down, or wait for it.
	discoveryPause = 2 * time.Second
)

// Identity is the user who logged in, as the provider reports it.
type Identity struct {
	Subject string // the provider's stable id of the user; key accounts by this
	Email   string // only if the provider has verified it; empty otherwise
	Name    string // for display
	Groups  []string
	Role    string // one of OIDCConfig.Roles, or as OIDCConfig.Person says
	Tenant  string // as OIDCConfig.Person says; empty otherwise
}

// OIDC logs users in at an OpenID provider by the authorization code flow (OpenID Connect Core 1.0
// section 3.1) with PKCE (RFC 7636, S256), state and nonce. The provider is discovered at the first
// login rather than at start, so that a service can start while the provider is down. It is safe
// for concurrent use.
type OIDC struct {
	cfg    OIDCConfig
	client *http.Client
	now    func() time.Time
	states *loginStates

	mu       sync.Mutex
	provider *oidc.Provider // nil until discovered
	failed   error          // of the last discovery
	retryAt  time.Time
}

// NewOIDC returns an OIDC. It does not contact the provider. cfg must be valid. A nil client means
// one with a timeout of 10 s. The sealer protects the login cookie; if instances share its secret,
// a login can end on another instance than the one where it began.
func NewOIDC(cfg OIDCConfig, client *http.Client, sealer *Sealer, now func() time.Time) *OIDC {
	if client == nil {
		client = &http.Client{Timeout: providerTimeout}
	}
	return &OIDC{cfg: cfg.withDefaults(), client: client, now: now, states: newLoginStates(cfg, sealer, now)}
}

// ConsoleURL returns the address to which the service redirects the browser after a login.
func (o *OIDC) ConsoleURL() string { return cmp.Or(o.cfg.ConsoleURL, "/") }

// Login redirects the browser to the provider with a 302 and sets the sealed cookie that Callback
// requires within 10 minutes. If the provider cannot be discovered, the fault is Unavailable and
// nothing is written. A second login in the same browser replaces the first.
func (o *OIDC) Login(w http.ResponseWriter, r *http.Request) error {
	p, err := o.discover(r.Context())
	if err != nil {
		return err
	}
	state, cookie, err := o.states.begin()
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie)
	w.Header().Set("Cache-Control", "no-store")
	target := o.oauth(p).AuthCodeURL(state.State, oidc.Nonce(state.Nonce), oauth2.S256ChallengeOption(state.Verifier))
	http.Redirect(w, r, target, http.StatusFound)
	return nil
}

// Callback completes a login: it checks the state against the cookie, redeems the code and verifies
// the ID token (signature, issuer, audience, expiry, nonce). Groups come from the ID token or, if
// it has no such claim, from the userinfo endpoint. The cookie is cleared and its state cannot be
// used again, whatever the outcome.
//
// Faults: Invalid for a state, code or cookie that does not match, in which case the user must
// start a new login; Denied if the provider or the user refused (code "login_refused"), the ID
// token does not verify ("id_token_rejected") or no group matches ("no_matching_group");
// Unavailable if the provider does not respond.
func (o *OIDC) Callback(w http.ResponseWriter, r *http.Request) (Identity, error) {
	w.Header().Set("Cache-Control", "no-store")
	query := r.URL.Query()
	// Check the state first: otherwise anybody could forge an error response.
	state, err := o.states.finish(w, r, query.Get("state"))
	if err != nil {
		return Identity{}, err
	}
	// RFC 9207: a response of another provider must not be accepted.
	if iss := query.Get("iss"); iss != "" && iss != o.cfg.Issuer {
		return Identity{}, fault.InvalidField("iss", "the answer comes from another provider")
	}
	if code := query.Get("error"); code != "" {
		cause := errors.New(clip(code) + ": " + clip(query.Get("error_description")))
		return Identity{}, fault.Wrap(fault.Denied, cause, "the identity provider refused the login").WithCode(
			"login_refused",
		)
	}
	if query.Get("code") == "" {
		return Identity{}, fault.InvalidField("code", "is missing; start the login again")
	}
	p, err := o.discover(r.Context())
	if err != nil {
		return Identity{}, err
	}
	ctx := oidc.ClientContext(r.Context(), o.client)
	token, err := o.oauth(p).Exchange(ctx, query.Get("code"), oauth2.VerifierOption(state.Verifier))
	if err != nil {
		return Identity{}, exchangeFault(err)
	}
	return o.identify(ctx, p, token, state.Nonce)
}

func (o *OIDC) identify(ctx context.Context, p *oidc.Provider, token *oauth2.Token, nonce string) (Identity, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return Identity{}, rejected(errors.New("the provider's answer has no ID token"))
	}
	idToken, err := p.Verifier(&oidc.Config{ClientID: o.cfg.ClientID, Now: o.now}).Verify(ctx, raw)
	// go-oidc has no error type for this case, only the text.
	if err != nil && strings.Contains(err.Error(), "fetching keys") {
		return Identity{}, unanswered(err)
	}
	if err != nil {
		return Identity{}, rejected(err)
	}
	if !equalSecrets(idToken.Nonce, nonce) {
		return Identity{}, rejected(errors.New("the nonce does not match"))
	}
	if !validSubject(idToken.Subject) {
		return Identity{}, rejected(errors.New("the subject is not 1 to 255 ASCII characters"))
	}
	claims, err := readClaims(idToken, o.cfg.GroupsClaim)
	if err != nil {
		return Identity{}, rejected(err)
	}
	if o.cfg.Person == nil && !claims.hasGroups && p.UserInfoEndpoint() != "" {
		info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return Identity{}, unanswered(err)
		}
		// OpenID Connect Core section 5.3.2: the subjects must be the same.
		if info.Subject != idToken.Subject {
			return Identity{}, rejected(errors.New("userinfo is about another subject"))
		}
		more, err := readClaims(info, o.cfg.GroupsClaim)
		if err != nil {
			return Identity{}, rejected(err)
		}
		claims = claims.or(more)
	}
	id := Identity{Subject: idToken.Subject, Email: claims.email, Name: claims.name, Groups: claims.groups}
	refusal := "none of the user's groups may log in here"
	if o.cfg.Person == nil {
		id.Role = o.cfg.RoleOf(claims.groups)
	} else {
		var all map[string]any
		if err := idToken.Claims(&all); err != nil {
			return Identity{}, rejected(err)
		}
		id.Role, id.Tenant = o.cfg.Person(all)
		refusal = "the identity provider does not say that the user may log in here"
	}
	if id.Role == "" {
		// The identity is returned for the audit log.
		return id, fault.New(fault.Denied, "%s", refusal).WithCode("no_matching_group")
	}
	return id, nil
}

// validSubject reports whether a subject is as OpenID Connect Core section 2 has it: at most 255 ASCII
// characters. It goes into the audit log and to terminals, so none of them is a control character.
func validSubject(subject string) bool {
	return subject != "" && len(subject) <= 255 &&
		!strings.ContainsFunc(subject, func(r rune) bool { return r < ' ' || r > '~' })
}

// shown returns text for display, or "" if it is too long or has control characters.
func shown(text string) string {
	const most = 254 // the longest email address, RFC 5321
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return ""
	}
	return text
}

func rejected(cause error) error {
	return fault.Wrap(fault.Denied, cause, "the identity provider's answer could not be verified").WithCode(
		"id_token_rejected",
	)
}

// exchangeFault distinguishes a code that the provider refuses from a provider that fails.
func exchangeFault(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		// RFC 6749 section 5.2: expired, used before, or another verifier.
		if refused.ErrorCode == "invalid_grant" {
			return fault.Wrap(
				fault.Invalid, err, "code: the identity provider does not accept it; start the login again",
			)
		}
		if refused.Response != nil && refused.Response.StatusCode < 500 {
			return fault.Wrap(
				fault.Internal, err,
				"the identity provider does not accept this service as a client; an administrator must check its registration",
			)
		}
	}
	return unanswered(err)
}

func unanswered(cause error) error {
	return fault.Wrap(fault.Unavailable, cause, "the identity provider does not answer; try again").WithRetryAfter(
		discoveryPause,
	)
}

func (o *OIDC) oauth(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: o.cfg.ClientID, ClientSecret: o.cfg.ClientSecret, Endpoint: p.Endpoint(),
		RedirectURL: o.cfg.RedirectURL, Scopes: o.cfg.Scopes,
	}
}

// discover returns the provider. Concurrent logins share one request to it.
func (o *OIDC) discover(ctx context.Context) (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider != nil {
		return o.provider, nil
	}
	if now := o.now(); o.failed == nil || !now.Before(o.retryAt) {
		// The result is shared, so the request must not be canceled when the first browser
		// disconnects.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
		defer cancel()
		o.provider, o.failed = oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.cfg.Issuer)
		o.retryAt = o.now().Add(discoveryPause)
	}
	if o.failed != nil {
		return nil, fault.Wrap(fault.Unavailable, o.failed, "the identity provider cannot be reached; try again").
			WithCode("provider_unavailable").WithRetryAfter(discoveryPause)
	}
	return o.provider, nil
}

// userClaims are the claims about a user that this package reads.
type userClaims struct {
	email, name string
	groups      []string
	hasGroups   bool
}

func readClaims(source interface{ Claims(any) error }, groupsClaim string) (userClaims, error) {
	var all map[string]json.RawMessage
	if err := source.Claims(&all); err != nil {
		return userClaims{}, err
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(all[name], &s) // absent or of another type: not for display
		return shown(s)
	}
	c := userClaims{name: text("name")}
	// An unverified address may be another person's, so it must not identify a user.
	var verified bool
	if json.Unmarshal(all["email_verified"], &verified) == nil && verified {
		c.email = text("email")
	}
	if c.name == "" {
		c.name = text("preferred_username")
	}
	raw, ok := all[groupsClaim]
	if !ok || string(raw) == "null" {
		return c, nil
	}
	c.hasGroups = true
	if json.Unmarshal(raw, &c.groups) == nil {
		return c, nil
	}
	// Some providers send a single group as a string.
	var one string
	if err := json.Unmarshal(raw, &one); err != nil {
		return userClaims{}, errors.New("the groups claim is neither a list of strings nor a string")
	}
	c.groups = []string{one}
	return c, nil
}

// or returns c with missing claims filled in from more.
func (c userClaims) or(more userClaims) userClaims {
	c.email = cmp.Or(c.email, more.email)
	c.name = cmp.Or(c.name, more.name)
	if !c.hasGroups {
		c.groups, c.hasGroups = more.groups, more.hasGroups
	}
	return c
}

// clip limits the length of query values in the log.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "?")
}

// callbackPath returns the path of the redirect URL, "/" if it has none, and whether its scheme is
// https.
func callbackPath(redirectURL string) (path string, https bool) {
	u, err := url.Parse(redirectURL)
	if err != nil || u.EscapedPath() == "" {
		return "/", strings.HasPrefix(redirectURL, "https:")
	}
	return u.EscapedPath(), u.Scheme == "https"
}
