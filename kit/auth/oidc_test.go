package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// provider is a minimal OpenID provider whose responses a test can corrupt.
type provider struct {
	*httptest.Server
	key *ecdsa.PrivateKey

	mu        sync.Mutex
	challenge string         // of the last authorization, for PKCE
	claims    map[string]any // of the next ID token
	userinfo  map[string]any
	tokenFail func(w http.ResponseWriter) // instead of a token
	keysDown  bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token",
			"jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/userinfo",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.keysDown {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		point, err := key.PublicKey.Bytes() // 4 || x || y
		if err != nil {
			t.Error(err)
		}
		reply(w, map[string]any{"keys": []any{
			map[string]any{
				"kty": "EC",
				"crv": "P-256",
				"kid": "1",
				"use": "sig",
				"alg": "ES256",
				"x":   b64(point[1:33]),
				"y":   b64(point[33:]),
			},
		}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tokenFail != nil {
			p.tokenFail(w)
			return
		}
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if b64(sum[:]) != p.challenge || r.FormValue("code") != "good" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			reply(w, map[string]string{"error": "invalid_grant"})
			return
		}
		reply(w, map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": p.sign(t, p.claims)})
	})
	mux.HandleFunc("/userinfo", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.userinfo == nil {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		reply(w, p.userinfo)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign returns a JWT signed with ES256 (RFC 7518 section 3.4).
func (p *provider) sign(t *testing.T, claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Error(err)
	}
	signed := b64([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + b64(payload)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		t.Error(err)
	}
	return signed + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func (p *provider) config() auth.OIDCConfig {
	return auth.OIDCConfig{
		Issuer: p.URL, ClientID: "console", ClientSecret: "s", RedirectURL: "https://demo.example/v1/login/callback",
		Roles: []auth.GroupRole{{"admin", []string{"admins"}}, {"viewer", []string{"staff"}}},
	}
}

// login goes to the provider and returns the parameters of the login there and its cookie. The next
// ID token is valid for that login.
func (p *provider) login(t *testing.T, o *auth.OIDC, c *clock) (url.Values, *http.Cookie) {
	t.Helper()
	w := httptest.NewRecorder()
	if err := o.Login(w, httptest.NewRequest("GET", "/v1/login", nil)); err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != http.StatusFound || !strings.HasPrefix(target.String(), p.URL+"/auth?") {
		t.Fatalf("%d %s", w.Code, target)
	}
	q := target.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.challenge = q.Get("code_challenge")
	p.claims = map[string]any{
		"iss":            p.URL,
		"aud":            "console",
		"sub":            "u1",
		"nonce":          q.Get("nonce"),
		"exp":            c.now.Add(time.Hour).Unix(),
		"iat":            c.now.Unix(),
		"email":          "u1@example.org",
		"email_verified": true,
		"name":           "User One",
		"groups":         []string{"staff"},
	}
	return q, w.Result().Cookies()[0]
}

func callback(
	o *auth.OIDC, query url.Values, cookies ...*http.Cookie,
) (auth.Identity, *httptest.ResponseRecorder, error) {
	r := httptest.NewRequest("GET", "/v1/login/callback?"+query.Encode(), nil)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	id, err := o.Callback(w, r)
	return id, w, err
}

func newOIDC(t *testing.T, cfg auth.OIDCConfig, c *clock) *auth.OIDC {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return auth.NewOIDC(cfg, nil, newSealer(t, 1, "login"), c.Now)
}

func TestALoginGivesTheUsersIdentity(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	o := newOIDC(t, p.config(), c)
	q, cookie := p.login(t, o, c)
	if q.Get("code_challenge_method") != "S256" || q.Get("scope") != "openid profile email" ||
		q.Get("client_id") != "console" ||
		q.Get("redirect_uri") != p.config().RedirectURL ||
		q.Get("response_type") != "code" {
		t.Errorf("authorization request: %v", q)
	}
	if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteLaxMode ||
		cookie.Path != "/v1/login/callback" ||
		cookie.MaxAge != 600 {
		t.Errorf("cookie: %+v", cookie)
	}
	if strings.Contains(cookie.Value, q.Get("state")) {
		t.Error("the cookie shows the state")
	}
	id, w, err := callback(o, url.Values{"state": {q.Get("state")}, "code": {"good"}, "iss": {p.URL}}, cookie)
	if err != nil {
		t.Fatal(err)
	}
	if id.Subject != "u1" || id.Email != "u1@example.org" || id.Name != "User One" || len(id.Groups) != 1 ||
		id.Role != "viewer" {
		t.Errorf("%+v", id)
	}
	if cleared := w.Result().Cookies(); len(cleared) != 1 || cleared[0].MaxAge >= 0 || cleared[0].Path != cookie.Path {
		t.Errorf("the cookie was not cleared: %v", cleared)
	}
}

func TestALoginOutlivesARotationOfTheSecretKey(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	q, cookie := p.login(t, newOIDC(t, p.config(), c), c)
	rotated := auth.NewOIDC(p.config(), nil, newSealer(t, 2, "login", 1), c.Now)
	if id, _, err := callback(
		rotated, url.Values{"state": {q.Get("state")}, "code": {"good"}, "iss": {p.URL}}, cookie,
	); err != nil || id.Subject != "u1" {
		t.Errorf("%+v, %v", id, err)
	}
}

func TestOverHTTPTheCookieIsNotSecure(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	cfg := p.config()
	cfg.RedirectURL = "http://127.0.0.1:8080"
	_, cookie := p.login(t, newOIDC(t, cfg, c), c)
	if cookie.Secure || cookie.Path != "/" {
		t.Errorf("%+v", cookie)
	}
}

func TestAnAnswerThatDoesNotFitTheLoginIsInvalid(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	o := newOIDC(t, p.config(), c)
	for name, try := range map[string]func(state string, cookie *http.Cookie) error{
		"no cookie": func(state string, _ *http.Cookie) error {
			_, _, err := callback(o, url.Values{"state": {state}, "code": {"good"}})
			return err
		},
		"no state": func(_ string, cookie *http.Cookie) error {
			_, _, err := callback(o, url.Values{"code": {"good"}}, cookie)
			return err
		},
		"other state": func(state string, cookie *http.Cookie) error {
			_, _, err := callback(o, url.Values{"state": {state + "x"}, "code": {"good"}}, cookie)
			return err
		},
		"other state with an error": func(state string, cookie *http.Cookie) error {
			_, _, err := callback(o, url.Values{"state": {"x"}, "error": {"access_denied"}}, cookie)
			return err
		},
		"damaged cookie": func(state string, cookie *http.Cookie) error {
			cookie.Value += "A"
			_, _, err := callback(o, url.Values{"state": {state}, "code": {"good"}}, cookie)
			return err
		},
		"cookie of another login": func(state string, _ *http.Cookie) error {
			w := httptest.NewRecorder()
			if err := o.Login(w, httptest.NewRequest("GET", "/", nil)); err != nil {
				return err
			}
			_, _, err := callback(o, url.Values{"state": {state}, "code": {"good"}}, w.Result().Cookies()[0])
			return err
		},
		"no code": func(state string, cookie *http.Cookie) error {
			_, _, err := callback(o, url.Values{"state": {state}}, cookie)
			return err
		},
		"refused code": func(state string, cookie *http.Cookie) error {
			_, _, err := callback(o, url.Values{"state": {state}, "code": {"bad"}}, cookie)
			return err
		},
		"another issuer": func(state string, cookie *http.Cookie) error {
			_, _, err := callback(o, url.Values{"state": {state}, "code": {"good"}, "iss": {"https://evil.example"}}, cookie)
			return err
		},
		"replay": func(state string, cookie *http.Cookie) error {
			if _, _, err := callback(o, url.Values{"state": {state}, "code": {"good"}}, cookie); err != nil {
				t.Errorf("first use: %v", err)
			}
			_, _, err := callback(o, url.Values{"state": {state}, "code": {"good"}}, cookie)
			return err
		},
	} {
		q, cookie := p.login(t, o, c)
		if err := try(q.Get("state"), cookie); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q, cookie := p.login(t, o, c)
	c.advance(10 * time.Minute)
	if _, _, err := callback(o, url.Values{"state": {q.Get("state")}, "code": {"good"}}, cookie); !fault.Is(
		err, fault.Invalid,
	) {
		t.Errorf("expired: %v", err)
	}
}

func TestAnIDTokenThatDoesNotVerifyIsDenied(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	o := newOIDC(t, p.config(), c)
	for claim, value := range map[string]any{
		"nonce": "other", "aud": "someone else", "iss": "https://evil.example", "exp": c.now.Add(-time.Minute).Unix(), "groups": 7,
	} {
		q, cookie := p.login(t, o, c)
		p.claims[claim] = value
		id, _, err := callback(o, url.Values{"state": {q.Get("state")}, "code": {"good"}}, cookie)
		if !fault.Is(err, fault.Denied) || fault.From(err).Code != "id_token_rejected" || id.Role != "" {
			t.Errorf("%s: %+v, %v", claim, id, err)
		}
	}
	q, cookie := p.login(t, o, c)
	p.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if _, _, err := callback(o, url.Values{"state": {q.Get("state")}, "code": {"good"}}, cookie); !fault.Is(
		err, fault.Denied,
	) {
		t.Errorf("foreign signature: %v", err)
	}
}

func TestGroupsComeFromUserinfoOnlyIfTheIDTokenHasNone(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	o := newOIDC(t, p.config(), c)
	for _, e := range []struct {
		name     string
		token    any // nil: no claim
		userinfo map[string]any
		role     string
		code     string
	}{
		{"token", []string{"staff", "admins"}, nil, "admin", ""},
		{"token, one string", "admins", nil, "admin", ""},
		{"userinfo", nil, map[string]any{"sub": "u1", "groups": []string{"admins"}}, "admin", ""},
		{"empty token claim", []string{}, map[string]any{"sub": "u1", "groups": []string{"admins"}}, "", "no_matching_group"},
		{"nowhere", nil, map[string]any{"sub": "u1"}, "", "no_matching_group"},
		{"no match", []string{"Admins"}, nil, "", "no_matching_group"},
		{"other subject", nil, map[string]any{"sub": "u2", "groups": []string{"admins"}}, "", "id_token_rejected"},
		{"userinfo down", nil, nil, "", "unavailable"},
	} {
		q, cookie := p.login(t, o, c)
		delete(p.claims, "groups")
		if e.token != nil {
			p.claims["groups"] = e.token
		}
		p.userinfo = e.userinfo
		id, _, err := callback(o, url.Values{"state": {q.Get("state")}, "code": {"good"}}, cookie)
		code := ""
		if err != nil {
			code = fault.From(err).PublicCode()
		}
		if id.Role != e.role || code != e.code {
			t.Errorf("%s: %+v, %v", e.name, id, err)
		}
	}
}

func TestTheProvidersRefusalIsDenied(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	o := newOIDC(t, p.config(), c)
	q, cookie := p.login(t, o, c)
	_, w, err := callback(
		o, url.Values{"state": {q.Get("state")}, "error": {"access_denied"}, "error_description": {"<b>no"}}, cookie,
	)
	if !fault.Is(err, fault.Denied) || strings.Contains(fault.From(err).Message, "<b>") {
		t.Error(err)
	}
	if len(w.Result().Cookies()) != 1 {
		t.Error("the cookie was not cleared")
	}
}

func TestAProviderThatFailsLaterIsUnavailableOrMisconfigured(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), newClock()
	o := newOIDC(t, p.config(), c)
	for name, e := range map[string]struct {
		spoil func()
		kind  fault.Kind
	}{
		"token endpoint down": {func() { p.tokenFail = func(w http.ResponseWriter) { w.WriteHeader(502) } }, fault.Unavailable},
		"client refused": {func() {
			p.tokenFail = func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(401)
				_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
			}
		}, fault.Internal},
		"keys down": {func() { p.keysDown = true }, fault.Unavailable},
	} {
		q, cookie := p.login(t, o, c)
		p.tokenFail, p.keysDown = nil, false
		e.spoil()
		if _, _, err := callback(o, url.Values{"state": {q.Get("state")}, "code": {"good"}}, cookie); !fault.Is(
			err, e.kind,
		) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiscoveryIsRetriedAfterAPauseAndThenKept(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var down atomic.Bool
	down.Store(true)
	var issuer string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if down.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{
			"issuer":                 issuer,
			"authorization_endpoint": issuer + "/a",
			"token_endpoint":         issuer + "/t",
			"jwks_uri":               issuer + "/k",
		})
	}))
	defer srv.Close()
	issuer = srv.URL
	c := newClock()
	cfg := (&provider{Server: srv}).config()
	o := newOIDC(t, cfg, c)
	login := func() (*httptest.ResponseRecorder, error) {
		w := httptest.NewRecorder()
		return w, o.Login(w, httptest.NewRequest("GET", "/", nil))
	}
	for range 3 {
		w, err := login()
		if !fault.Is(err, fault.Unavailable) || fault.From(err).RetryAfter <= 0 || len(w.Result().Cookies()) != 0 {
			t.Fatalf("%v, cookies %v", err, w.Result().Cookies())
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d discoveries within the pause", calls.Load())
	}
	down.Store(false)
	c.advance(2 * time.Second)
	for range 3 {
		if _, err := login(); err != nil {
			t.Fatal(err)
		}
	}
	if calls.Load() != 2 {
		t.Errorf("%d discoveries", calls.Load())
	}
}

func TestOIDCValidateNamesTheWrongKey(t *testing.T) {
	t.Parallel()
	good := (&provider{Server: &httptest.Server{URL: "https://id.example"}}).config()
	for _, ok := range []string{"", "/", "/console/", "https://demo.example/console/"} {
		good.ConsoleURL = ok
		if err := good.Validate(); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, e := range []struct {
		field  string
		change func(*auth.OIDCConfig)
	}{
		{"issuer", func(c *auth.OIDCConfig) { c.Issuer = "" }},
		{"issuer", func(c *auth.OIDCConfig) { c.Issuer = "ftp://id.example" }},
		{"issuer", func(c *auth.OIDCConfig) { c.Issuer = "https://id.example?x=1" }},
		{"client-id", func(c *auth.OIDCConfig) { c.ClientID = "" }},
		{"redirect-url", func(c *auth.OIDCConfig) { c.RedirectURL = "/callback" }},
		{"redirect-url", func(c *auth.OIDCConfig) { c.RedirectURL = "https://demo.example/#x" }},
		{"admin-groups", func(c *auth.OIDCConfig) { c.Roles = []auth.GroupRole{{"admin", nil}, {"viewer", nil}} }},
		{"admin-groups", func(c *auth.OIDCConfig) { c.Roles = []auth.GroupRole{{"admin", []string{""}}} }},
		{"viewer-groups", func(c *auth.OIDCConfig) {
			c.Roles = []auth.GroupRole{{"admin", []string{"a"}}, {"viewer", []string{"a", ""}}}
		}},
		{"console-url", func(c *auth.OIDCConfig) { c.ConsoleURL = "javascript:alert(1)" }},
		{"console-url", func(c *auth.OIDCConfig) { c.ConsoleURL = "//evil.example" }},
	} {
		cfg := good
		e.change(&cfg)
		if err := cfg.Validate(); !fault.Is(err, fault.Invalid) || fault.From(err).Field != e.field {
			t.Errorf("%s: %v", e.field, err)
		}
	}
}

func TestAMemberOfSeveralGroupsGetsTheGreatestRole(t *testing.T) {
	t.Parallel()
	cfg := auth.OIDCConfig{Roles: []auth.GroupRole{{"admin", []string{"a", "both"}}, {"viewer", []string{"v", "both"}}}}
	for groups, want := range map[string]string{
		"": "", "x": "", "v": "viewer", "a": "admin", "v,a": "admin", "x,v": "viewer", "both": "admin", "A": "",
	} {
		if got := cfg.RoleOf(strings.Split(groups, ",")); got != want {
			t.Errorf("%q: %q, want %q", groups, got, want)
		}
	}
}
