package e2e

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

const (
	clientID   = "mainstay"
	consoleURL = "https://console.example/edge"
)

// identityProvider is an OpenID provider whose users need no password: whoever
// comes to its login page is the user who is sitting in front of it.
type identityProvider struct {
	url  string
	down atomic.Bool
	user atomic.Pointer[string]
	// refuses has the user decline.
	refuses atomic.Bool
}

// groupsOf are the users of the provider with the groups that they are in.
var groupsOf = map[string][]string{
	"ada":     {"staff", "edge-admins"},
	"bob":     {"edge-viewers"},
	"carol":   {"edge-viewers", "edge-admins"},
	"mallory": {"staff", "edge-admins-of-another-product"},
}

type users struct{}

func (users) GetUserByID(id string) *storage.User {
	if _, ok := groupsOf[id]; !ok {
		return nil
	}
	return &storage.User{
		ID:            id,
		Username:      id,
		Password:      "none",
		FirstName:     id,
		LastName:      "Test",
		Email:         id + "@example.com",
		EmailVerified: true,
	}
}
func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }
func (users) ExampleClientID() string                       { return "service" }

// claims adds the groups to the storage's claims: to the userinfo answer, and, if
// inIDToken, to the ID token.
type claims struct {
	*storage.Storage
	inIDToken bool
}

func (s claims) SetUserinfoFromRequest(
	ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string,
) error {
	if s.inIDToken {
		info.AppendClaims("groups", groupsOf[token.GetSubject()])
		for name, value := range claimsOf[token.GetSubject()] {
			info.AppendClaims(name, value)
		}
		info.Email, info.EmailVerified = token.GetSubject()+"@example.com", true
	}
	return s.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
}

func (s claims) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string) error {
	if !s.inIDToken {
		info.AppendClaims("groups", groupsOf[subject])
	}
	return s.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin)
}

func newIdentityProvider(t *testing.T, callback string, inIDToken bool) *identityProvider {
	t.Helper()
	p := &identityProvider{}
	var handler atomic.Pointer[http.Handler]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
		(*handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL

	store := claims{
		storage.NewStorageWithClients(
			users{}, map[string]*storage.Client{clientID: storage.WebClient(clientID, clientSecret, callback)},
		),
		inIDToken,
	}
	provider, err := op.NewProvider(
		&op.Config{CryptoKey: [32]byte{1}, CodeMethodS256: true}, store, op.StaticIssuer(p.url),
		op.WithAllowInsecure(), op.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	mux.HandleFunc("GET /login/username", func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("authRequestID")
		if p.refuses.Load() {
			request, err := store.AuthRequestByID(r.Context(), id)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			http.Redirect(
				w,
				r,
				request.GetRedirectURI()+"?"+url.Values{
					"error": {"access_denied"},
					"state": {request.GetState()},
				}.Encode(),
				http.StatusFound,
			)
			return
		}
		if err := store.CheckUsernamePassword(*p.user.Load(), "none", id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(
			w, r, op.AuthCallbackURL(provider)(op.ContextWithIssuer(r.Context(), p.url), id), http.StatusFound,
		)
	})
	h := http.Handler(mux)
	handler.Store(&h)
	return p
}

// signOn is a control plane with single sign-on, behind a proxy as browsers see it.
type signOn struct {
	*testing.T
	edge     *edge
	provider *identityProvider
	url      string // of the proxy
}

func newSignOn(t *testing.T, inIDToken bool) *signOn {
	t.Helper()
	s := prepareSignOn(t, inIDToken)
	s.edge.start()
	return s
}

// prepareSignOn leaves it to the caller to start the control plane.
func prepareSignOn(t *testing.T, inIDToken bool) *signOn {
	t.Helper()
	var e *edge
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(e.url())
		if err != nil {
			t.Error(err)
		}
		r.SetURL(to)
	}})
	t.Cleanup(proxy.Close)
	callback := proxy.URL + "/api/v1/auth/oidc/callback"
	p := newIdentityProvider(t, callback, inIDToken)
	e = newEdge(
		t, "--oidc-issuer", p.url, "--oidc-client-id", clientID, "--oidc-redirect-url", callback,
		"--oidc-admin-groups", "edge-admins,wheel", "--oidc-viewer-groups", "edge-viewers", "--oidc-console-url",
		consoleURL,
	)
	e.env = append(e.env, "EDGE_OIDC_CLIENT_SECRET="+clientSecret)
	return &signOn{t, e, p, proxy.URL}
}

// browser follows redirects step by step and keeps cookies.
type browser struct {
	*signOn
	client *http.Client
}

func (s *signOn) browser(user string) *browser {
	s.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	s.provider.user.Store(&user)
	return &browser{
		s,
		&http.Client{
			Jar:           jar,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// page is the answer to one request.
type page struct {
	status   int
	body     []byte
	location string // absolute
	cookies  []*http.Cookie
}

func (p page) GetBody() []byte { return p.body }

func (b *browser) get(address string) page {
	b.Helper()
	res, err := b.client.Get(address)
	if err != nil {
		b.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		b.Fatal(err)
	}
	p := page{status: res.StatusCode, body: body, cookies: res.Cookies()}
	if location, err := res.Location(); err == nil {
		p.location = location.String()
	}
	return p
}

// begin goes from the login to where the provider sends the browser back, and
// returns that address without going there.
func (b *browser) begin() (callback string) {
	b.Helper()
	at := b.url + "/api/v1/auth/oidc/login"
	for range 10 {
		p := b.get(at)
		if p.location == "" {
			b.Fatalf("GET %s: %d: %s", at, p.status, p.body)
		}
		if at = p.location; strings.HasPrefix(at, b.url+"/api/v1/auth/oidc/callback") {
			return at
		}
	}
	b.Fatal("the login goes in circles")
	return ""
}

// token is the session that a callback ended with.
func (b *browser) token(p page) string {
	b.Helper()
	if p.status != http.StatusFound {
		b.Fatalf("callback: %d: %s", p.status, p.body)
	}
	token, ok := strings.CutPrefix(p.location, consoleURL+"#oidc_token=")
	if !ok || token == "" {
		b.Fatalf("the callback leads to %s", p.location)
	}
	return token
}

// refused checks status, code and field of an error page.
func (p page) refused(t *testing.T, status int, code, field string) {
	t.Helper()
	if p.status != status {
		t.Fatalf("status %d, want %d: %s (%s)", p.status, status, p.body, p.location)
	}
	if gotCode, gotField, message := refusal(t, p.body); gotCode != code || gotField != field {
		t.Errorf("code %q field %q, want %q %q: %s", gotCode, gotField, code, field, message)
	}
}

func TestSingleSignOnGivesTheRoleOfTheGroups(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"ID token", "userinfo"} {
		t.Run("groups in the "+where, func(t *testing.T) {
			t.Parallel()
			s := newSignOn(t, where == "ID token")
			for user, want := range map[string]edgeapi.CallerRole{"ada": edgeapi.CallerRoleAdmin, "bob": edgeapi.CallerRoleViewer, "carol": edgeapi.CallerRoleAdmin} {
				b := s.browser(user)
				api := s.edge.api(b.token(b.get(b.begin())))
				me := got[edgeapi.Caller](api.GetMe(t.Context())).is(t, 200)
				if me.Role != want || me.Kind != edgeapi.CallerKindSession || me.Subject != user+"@example.com" ||
					me.ExpiresAt == nil {
					t.Errorf("%s is %+v", user, *me)
				}
				status := http.StatusCreated
				if want == edgeapi.CallerRoleViewer {
					status = http.StatusForbidden
				}
				ask(api.CreateOrg(t.Context(), edgeapi.OrgInput{Name: user})).is(t, status)
				ask(api.Logout(t.Context())).is(t, 204)
				ask(api.GetMe(t.Context())).is(t, 401)
			}
			b := s.browser("mallory")
			b.get(b.begin()).refused(t, 403, "no_matching_group", "")
			denied := 0
			for _, entry := range list[edgeapi.AuditEntry](s.edge, "/audit?action=auth.login") {
				if entry.Result == edgeapi.AuditResultDenied && entry.Target == "mallory@example.com" {
					denied++
				}
			}
			if denied != 1 {
				t.Errorf("%d audit entries about the refused login", denied)
			}
		})
	}
}

func TestSingleSignOnRefusesWhatBelongsToNoLogin(t *testing.T) {
	t.Parallel()
	s := newSignOn(t, true)
	callback := s.url + "/api/v1/auth/oidc/callback"
	edited := func(address, key, value string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set(key, value)
		u.RawQuery = query.Encode()
		return u.String()
	}

	b := s.browser("ada")
	b.get(edited(b.begin(), "state", "made-up")).refused(t, 400, "stale_login", "state")

	b = s.browser("ada")
	b.get(edited(b.begin(), "state", "")).refused(t, 400, "stale_login", "state")

	// An attacker's own answer, slipped to another browser.
	attacker, victim := s.browser("ada"), s.browser("ada")
	victim.begin()
	victim.get(attacker.begin()).refused(t, 400, "stale_login", "state")
	s.browser("ada").get(attacker.begin()).refused(t, 400, "stale_login", "state")

	b = s.browser("ada")
	b.get(edited(b.begin(), "code", "made-up")).refused(t, 400, "invalid", "")

	b = s.browser("ada")
	b.get(edited(b.begin(), "iss", "https://evil.example")).refused(t, 400, "invalid", "iss")

	s.browser("ada").get(callback).refused(t, 400, "stale_login", "state")
	s.browser("ada").get(callback+"?error=access_denied&state=made-up").refused(t, 400, "stale_login", "state")

	s.provider.refuses.Store(true)
	b = s.browser("ada")
	b.get(b.begin()).refused(t, 403, "login_refused", "")
	s.provider.refuses.Store(false)
}

func TestACallbackWorksOnce(t *testing.T) {
	t.Parallel()
	s := newSignOn(t, true)
	b := s.browser("ada")
	at := b.begin()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	stolen := b.client.Jar.Cookies(u)
	if len(stolen) == 0 {
		t.Fatal("the login left no cookie")
	}
	b.token(b.get(at))
	b.get(at).refused(t, 400, "stale_login", "state") // the cookie was taken back

	// With the cookie, too, and after a restart that forgot which states were used:
	// then the provider refuses the code.
	again := func() page {
		thief := s.browser("ada")
		thief.client.Jar.SetCookies(u, stolen)
		return thief.get(at)
	}
	again().refused(t, 400, "stale_login", "state")
	s.edge.stop()
	s.edge.start()
	if p := again(); p.status != http.StatusBadRequest {
		t.Errorf("after a restart: %d: %s", p.status, p.body)
	}
}

func TestAServerStartsWhileTheProviderIsDownAndLogsInWhenItIsBack(t *testing.T) {
	t.Parallel()
	s := prepareSignOn(t, true)
	e, p := s.edge, s.provider
	p.down.Store(true)
	e.start()
	b := s.browser("ada")
	b.get(b.url+"/api/v1/auth/oidc/login").refused(t, 503, "provider_unavailable", "")
	// The password still works.
	ask(e.api("").Login(t.Context(), edgeapi.LoginRequest{Username: adminName, Password: adminPassword})).is(t, 200)

	p.down.Store(false)
	eventually(
		t, "the login works again",
		func() bool { return b.get(b.url+"/api/v1/auth/oidc/login").status == http.StatusFound },
	)
	at := b.begin()

	// And it may go down again between the login and its end.
	p.down.Store(true)
	if end := b.get(at); end.status != http.StatusServiceUnavailable {
		t.Errorf("a callback while the provider is down: %d: %s", end.status, end.body)
	}
	p.down.Store(false)
	b.token(b.get(b.begin()))
}

func TestWithoutAProviderSingleSignOnSaysSo(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	s := &signOn{t, e, &identityProvider{}, e.url()}
	for _, path := range []string{"/api/v1/auth/oidc/login", "/api/v1/auth/oidc/callback?code=a&state=b"} {
		s.browser("ada").get(s.url+path).refused(t, 503, "oidc_not_configured", "")
	}
}
