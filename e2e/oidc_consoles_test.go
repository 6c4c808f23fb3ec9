package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// claimsOf are the claims by which the hypervisor daemon knows the provider's users.
var claimsOf = map[string]map[string]any{
	"ada": {"mainstay_admin": true},
	"bob": {"tenant": "shop"},
}

var anyListening = regexp.MustCompile(`msg=listening service=`)

// consoleOf starts a service whose people sign in at a provider. args returns its arguments beside
// the address.
func consoleOf(t *testing.T, env []string, args func(listen, issuer, callback string) []string) *signOn {
	t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	callback := "http://" + listen + "/console/oidc/callback"
	p := newIdentityProvider(t, callback, true)
	s := launch(t, env, args(listen, p.url, callback)...)
	if _, ok := s.awaitOutput(anyListening); !ok {
		t.Fatalf("the service did not start:\n%s", tail(s.output.String(), 20))
	}
	return &signOn{T: t, provider: p, url: "http://" + listen}
}

// signIn walks from the console's login to the provider and back, and returns what the callback
// answers.
func (b *browser) signIn() page {
	b.Helper()
	at := b.url + "/console/oidc/login"
	for range 10 {
		p := b.get(at)
		if p.location == "" {
			b.Fatalf("GET %s: %d: %s", at, p.status, p.body)
		}
		if strings.HasPrefix(at, b.url+"/console/oidc/callback") {
			return p
		}
		at = p.location
	}
	b.Fatal("the login goes in circles")
	return page{}
}

// ask sends a request as the console does.
func (b *browser) ask(method, path string) (status int, body []byte) {
	b.Helper()
	r, err := http.NewRequest(method, b.url+path, strings.NewReader("{}"))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("X-Mainstay-Console", "e2e")
	r.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if body, err = io.ReadAll(res.Body); err != nil {
		b.Fatal(err)
	}
	return res.StatusCode, body
}

// who returns the name and the note of whoever is signed in; empty if nobody is.
func (b *browser) who() string {
	b.Helper()
	var s struct {
		SignedIn bool `json:"signed_in"`
		Who      struct{ Name, Note string }
		Accepts  struct {
			SingleSignOn string `json:"single_sign_on"`
		}
	}
	_, body := b.ask("GET", "/console/session")
	if err := json.Unmarshal(body, &s); err != nil {
		b.Fatalf("%s: %v", body, err)
	}
	if s.Accepts.SingleSignOn != "/console/oidc/login" {
		b.Errorf("the sign-in page does not offer single sign-on: %s", body)
	}
	if !s.SignedIn {
		return ""
	}
	return s.Who.Name + ": " + s.Who.Note
}

// refusedAs checks that a callback leads back to the sign-in page with a reason.
func (b *browser) refusedAs(p page, part string) {
	b.Helper()
	u, err := url.Parse(p.location)
	if err != nil {
		b.Fatal(err)
	}
	brought, err := url.ParseQuery(u.Fragment)
	if err != nil || p.status != http.StatusFound || !strings.Contains(brought.Get("refused"), part) {
		b.Errorf("%d %s, want a reason with %q", p.status, p.location, part)
	}
	if who := b.who(); who != "" {
		b.Errorf("%s is signed in all the same", who)
	}
}

func TestSingleSignOnOpensTheConsoleOfTheLoadBalancer(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "lb.yaml")
	if err := os.WriteFile(document, []byte("interface: lo\nvips: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := consoleOf(t, []string{"LB_OIDC_CLIENT_SECRET=" + clientSecret}, func(listen, issuer, callback string) []string {
		return []string{"serve", "lb", "--config", document, "--listen", listen, "--metrics-listen", "127.0.0.1:0",
			"--bpf-dir", t.TempDir(), "--oidc-issuer", issuer, "--oidc-client-id", clientID, "--oidc-redirect-url", callback,
			"--oidc-admin-groups", "edge-admins", "--oidc-viewer-groups", "edge-viewers"}
	})
	for user, want := range map[string]string{"ada": "ada@example.com: admin", "bob": "bob@example.com: may only read"} {
		b := s.browser(user)
		if status, _ := b.ask("GET", "/api/v1/node"); status != http.StatusUnauthorized {
			t.Fatalf("before the login: %d", status)
		}
		p := b.signIn()
		if p.status != http.StatusFound || p.location != s.url+"/" || len(p.cookies) == 0 {
			t.Fatalf("the callback answers %d %s %v", p.status, p.location, p.cookies)
		}
		if who := b.who(); who != want {
			t.Errorf("%q, want %q", who, want)
		}
		if status, body := b.ask("GET", "/api/v1/node"); status != http.StatusOK {
			t.Errorf("%s: %d %s", user, status, body)
		}
		// The backend is not configured, so the admin's request is refused for another reason.
		status, body := b.ask("POST", "/api/v1/backends/10.0.0.1:80/drain")
		if forbidden := status == http.StatusForbidden; forbidden != (user == "bob") {
			t.Errorf("%s drains: %d %s", user, status, body)
		}
		if status, body := b.ask("DELETE", "/console/session"); status != http.StatusNoContent || b.who() != "" {
			t.Errorf("sign-out: %d %s, %q", status, body, b.who())
		}
	}
	b := s.browser("mallory")
	b.refusedAs(b.signIn(), "groups")
	s.provider.refuses.Store(true)
	b = s.browser("ada")
	b.refusedAs(b.signIn(), "refused the login")
}

func TestSingleSignOnOpensTheConsoleOfTheHypervisorToAdminsAndTenants(t *testing.T) {
	t.Parallel()
	s := consoleOf(t, []string{"HYPERVISOR_OIDC_CLIENT_SECRET=" + clientSecret},
		func(listen, issuer, callback string) []string {
			document := filepath.Join(t.TempDir(), "hypervisor.toml")
			text := fmt.Sprintf("[auth.oidc]\nissuer = %q\naudience = %q\nadmin_claim = \"mainstay_admin\"\n", issuer, clientID)
			if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"serve", "hypervisor", "--config", document, "--listen", listen, "--data", t.TempDir(),
				"--accel", "tcg", "--oidc-client-id", clientID, "--oidc-redirect-url", callback}
		})
	for user, want := range map[string]string{
		"ada": "ada@example.com: admin, sees everything", "bob": "bob@example.com: of the tenant shop",
	} {
		b := s.browser(user)
		b.signIn()
		if who := b.who(); who != want {
			t.Errorf("%q, want %q", who, want)
		}
		status, body := b.ask("GET", "/v1/audit")
		if forbidden := status == http.StatusForbidden; forbidden != (user == "bob") {
			t.Errorf("%s reads the audit log: %d %s", user, status, body)
		}
		if user == "ada" && !strings.Contains(string(body), "console session with single sign-on") {
			t.Errorf("the sign-in is not in the audit log: %s", body)
		}
	}
	b := s.browser("mallory")
	b.refusedAs(b.signIn(), "does not say")
}
