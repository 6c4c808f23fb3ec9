package storage_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// browser sends requests as a page of the console does, and keeps cookies.
type browser struct {
	*gateway
	client *http.Client
}

func (g *gateway) browser() *browser {
	g.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.Fatal(err)
	}
	return &browser{g, &http.Client{Jar: jar, Timeout: time.Minute}}
}

// want fails the test unless the answer has the status, and contains part.
func (b *browser) want(method, path, body string, status int, part string) {
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
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	if answer.StatusCode != status || !strings.Contains(string(text), part) {
		b.Errorf("%s %s %s: %d %s, want %d and %q", method, path, body, answer.StatusCode, text, status, part)
	}
}

func TestASessionOfTheConsoleHasTheRoleAndTheTenantOfItsToken(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		g.call("PUT", "/tenants/acme", g.admin, object{}).Want(200)
		b := g.browser()
		b.want("GET", base+"/volumes", "", 401, "")
		b.want("GET", "/console/session", "", 200, `"signed_in":false`)
		b.want("POST", "/console/session", `{"token":"no.such.token"}`, 401, "")
		b.want("POST", "/console/session", `{"token":"`+g.token("olga", "operator", "acme")+`"}`, 204, "")
		b.want("GET", "/console/session", "", 200,
			`"who":{"name":"olga","note":"operator of the tenant acme","access":"operator","tenant":"acme"}`)
		b.want("POST", base+"/volumes", `{"name":"data","size_bytes":1048576}`, 202, "")
		b.want("GET", base+"/audit", "", 403, "")
		b.want("DELETE", "/console/session", "", 204, "")
		b.want("GET", base+"/volumes", "", 401, "")

		var found []string
		for _, e := range contracttest.As[[]storageapi.AuditEntry](g.call("GET", "/audit?actor=olga", g.admin, nil).Want(200)) {
			found = append(found, e.Action+" "+e.Tenant+" "+e.Message)
		}
		for _, entry := range []string{
			"auth.login acme console session with token", "auth.logout acme console session ended",
		} {
			if !strings.Contains(strings.Join(found, "\n"), entry) {
				g.Errorf("no entry %q in the audit log:\n%s", entry, strings.Join(found, "\n"))
			}
		}
	})
}

func TestTheConsoleAsksForNothingWhereNobodyNeedsAToken(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *storage.Config) { c.AuthRequired = false })
	b := g.browser()
	b.want("GET", "/console/session", "", 200,
		`"signed_in":true,"over":false,"who":{"name":"No token needed","note":"everybody may change everything","access":"admin"},"sign_out":false`)
	b.want("GET", base+"/volumes", "", 200, "")
}
