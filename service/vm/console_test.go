package vm_test

import (
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/vm"
)

// browser sends requests as a page of the console does, and keeps cookies.
type browser struct {
	*manager
	client *http.Client
}

func (m *manager) browser() *browser {
	m.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		m.Fatal(err)
	}
	return &browser{m, &http.Client{Jar: jar, Timeout: time.Minute}}
}

// send returns the status and the answer of a request.
func (b *browser) send(method, path, body string) (int, string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set(session.Header, "console")
	r.Header.Set("Content-Type", "application/json")
	answer, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var text strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := answer.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return answer.StatusCode, text.String()
		}
	}
}

// want fails the test unless the answer has the status, and contains part.
func (b *browser) want(method, path, body string, status int, part string) {
	b.Helper()
	if got, text := b.send(method, path, body); got != status || !strings.Contains(text, part) {
		b.Errorf("%s %s %s: %d %s, want %d and %q", method, path, body, got, text, status, part)
	}
}

func TestASessionOfTheConsoleIsATokenThatSigningOutRevokes(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.user("ulla", "user", "acme")
		b := m.browser()
		b.want("GET", "/api/auth/me", "", 401, "Authentication required")
		b.want("POST", "/console/session", `{"username":"ulla","password":"wrong"}`, 401, "Invalid credentials")
		b.want("POST", "/console/session", `{"username":"`+strings.Repeat("u", 257)+`","password":"x"}`, 400, "username")
		b.want("POST", "/console/session", `{"username":"ulla","password":"password of ulla"}`, 204, "")
		b.want("GET", "/console/session", "", 200, `"who":{"name":"ulla","note":"user of the tenant acme"}`)
		b.want("GET", "/api/auth/me", "", 200, `"username":"ulla"`)
		b.want("POST", "/api/vms", `{"name":"web","image":"demo"}`, 201, `"tenant":"acme"`)
		b.want("GET", "/api/users", "", 403, "")

		other := m.browser()
		other.want("POST", "/console/session", `{"username":"ulla","password":"password of ulla"}`, 204, "")
		b.want("DELETE", "/console/session", "", 204, "")
		b.want("GET", "/api/auth/me", "", 401, "")
		other.want("GET", "/api/auth/me", "", 200, "ulla")
		// A token that is revoked in another way ends its session, too.
		m.call("PATCH", "/api/users/ulla", m.admin, object{"tenant": ""}).Want(200)
		other.want("GET", "/console/session", "", 200, `"signed_in":false,"over":true`)
		audit := m.call("GET", "/api/audit?action=auth.logout", m.admin, nil).Want(200).Body
		if strings.Count(audit, `"actor":"ulla"`) != 1 {
			t.Error(audit)
		}
	})
}

func TestASessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	m := start(t, func(c *vm.Config) { c.ExpirationHours = 1 })
	b := m.browser()
	b.want("POST", "/console/session", `{"token":"`+m.admin+`"}`, 204, "")
	b.want("GET", "/api/auth/me", "", 200, adminName)
	m.ahead(time.Hour)
	b.want("GET", "/api/auth/me", "", 401, "the session is over")
}

func TestTheConsoleAsksForTheCodeOfASecondFactor(t *testing.T) {
	t.Parallel()
	m := start(t)
	token := m.user("ulla", "user", "")
	setup := contracttest.As[vmapi.TwoFactorSetup](m.call("POST", "/api/auth/2fa/setup", token, nil).Want(200))
	code := func() string {
		code, err := totp.GenerateCode(setup.Secret, m.now())
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	on := contracttest.As[vmapi.TwoFactorEnabled](m.call("POST", "/api/auth/2fa/verify", token, object{"code": code()}).Want(200))
	const first = `{"username":"ulla","password":"password of ulla"`
	b := m.browser()
	b.want("POST", "/console/session", first+`}`, 200, `{"needs":"code"}`)
	b.want("GET", "/api/auth/me", "", 401, "")
	used := code()
	b.want("POST", "/console/session", first+`,"code":"`+used+`"}`, 401, "Invalid two-factor code")
	m.ahead(time.Minute) // a code works once
	b.want("POST", "/console/session", first+`,"code":"`+code()+`"}`, 204, "")
	b.want("GET", "/api/auth/me", "", 200, `"two_factor":true`)

	recovered := m.browser()
	with := first + `,"code":"` + on.RecoveryCodes[0] + `"}`
	recovered.want("POST", "/console/session", with, 204, "")
	recovered.want("POST", "/console/session", with, 401, "Invalid two-factor code")

	// Codes are guessed no faster than by the API.
	guesses := m.browser()
	for range 4 {
		guesses.want("POST", "/console/session", first+`,"code":"000000"}`, 401, "Invalid two-factor code")
	}
	guesses.want("POST", "/console/session", first+`,"code":"`+on.RecoveryCodes[1]+`"}`, 429, "")
}
