//go:build linux

package hypervisor_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

// person sends requests as a page of the console does.
type person struct {
	d      *daemon
	client *http.Client
}

// signIn opens a session of the console.
func (d *daemon) signIn(token string) *person {
	d.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.Fatal(err)
	}
	p := &person{d, &http.Client{Jar: jar}}
	p.send("POST", "/console/session", `{"token":"`+token+`"}`, http.StatusNoContent, nil)
	return p
}

func (p *person) send(method, path, body string, want int, into any) {
	p.d.Helper()
	req, err := http.NewRequestWithContext(p.d.Context(), method, p.d.url+path, strings.NewReader(body))
	if err != nil {
		p.d.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(session.Header, "hypervisor")
	res, err := p.client.Do(req)
	if err != nil {
		p.d.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != want {
		p.d.Fatalf("%s %s: %s", method, path, res.Status)
	}
	if into != nil {
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			p.d.Fatal(err)
		}
	}
}

// ended waits until the daemon closes a socket.
func ended(t *testing.T, what string, conn *websocket.Conn) {
	t.Helper()
	for {
		if _, _, err := conn.Read(t.Context()); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
	}
}

func TestSocketsAndTicketsEndWithTheCredentialsBehindThem(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	reload := make(chan struct{})
	d := &daemon{T: t, cfg: settings(t, t.TempDir(), usualDocument)}
	d.deps = func(deps *hypervisor.Deps) {
		deps.Log, deps.Reload = slog.New(slog.DiscardHandler), reload
		deps.Settings = func() (hypervisor.Config, error) { return d.cfg, nil }
	}
	d.begin()
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "one", "memory_mib": 64, "start": true, "network": object{"mode": "none"},
	}).Want(201))
	d.await(vm.Id, "running")
	path := "/v1/vms/" + vm.Id
	bearer := func(token string) func() string {
		return func() string {
			return contracttest.As[hypervisorapi.Ticket](d.call("POST", path+"/tickets", token, nil).Want(201)).Ticket
		}
	}
	ann := d.signIn(acmeToken)
	fromSession := func() string {
		var made hypervisorapi.Ticket
		ann.send("POST", path+"/tickets", "", http.StatusCreated, &made)
		return made.Ticket
	}
	revoke := func() {
		const fresh = "test-fresh-token-000000000000000001"
		document := "[[auth.tokens]]\nname = \"new\"\nsha256 = \"" + auth.HashToken(fresh) + "\"\n"
		if err := os.WriteFile(d.cfg.ConfigFile, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		reload <- struct{}{}
		reload <- struct{}{} // the first one is done when the second is taken
	}
	others := d.dial(path + "/vnc?ticket=" + bearer(adminToken)())
	defer func() { _ = others.CloseNow() }()
	for _, c := range []struct {
		what   string
		ticket func() string
		end    func()
	}{
		{"signed out", fromSession, func() { ann.send("DELETE", "/console/session", "", http.StatusNoContent, nil) }},
		{"revoked", bearer(acmeToken), revoke},
	} {
		console, screen := d.dial(path+"/console?ticket="+c.ticket()), d.dial(path+"/vnc?ticket="+c.ticket())
		unused := c.ticket()
		var direct *websocket.Conn
		if c.what == "revoked" {
			var err error
			if direct, _, err = websocket.Dial(d.Context(), d.url+path+"/console", &websocket.DialOptions{
				HTTPHeader: http.Header{"Authorization": {"Bearer " + acmeToken}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		c.end()
		d.refusedSocket(path+"/console?ticket="+unused, "").Want(401)
		ended(t, c.what+": console", console)
		ended(t, c.what+": screen", screen)
		if direct != nil {
			ended(t, c.what+": console without a ticket", direct)
		}
	}
	// Others keep theirs.
	r := socketReader{t, others}
	if hello := r.read(); string(hello) != "RFB 003.008\n" {
		t.Fatalf("%q", hello)
	}
	if err := others.Write(t.Context(), websocket.MessageBinary, []byte("RFB 003.008\n")); err != nil {
		t.Fatal(err)
	}
	if types := r.read(); len(types) == 0 {
		t.Error("the admin's screen does not answer")
	}
}
