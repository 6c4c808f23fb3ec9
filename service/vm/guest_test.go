package vm_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/vm"
)

// runs makes a VM that runs.
func (m *manager) runs(name, token string) {
	m.Helper()
	m.made(name, token)
	m.call("POST", "/api/vms/"+name+"/start", token, nil).Want(202)
	m.settled(name, token)
}

func (m *manager) ticket(name, token string) string {
	m.Helper()
	return contracttest.As[vmapi.Ticket](m.call("POST", "/api/vms/"+name+"/tickets", token, nil).Want(201)).Ticket
}

// open opens a socket. The status is that of the refusal, or 101.
func (m *manager) open(path, token string) (*websocket.Conn, int) {
	m.Helper()
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	ctx, cancel := context.WithTimeout(m.Context(), 30*time.Second)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, m.url+path, &websocket.DialOptions{HTTPHeader: header})
	if err == nil {
		m.Cleanup(func() { _ = conn.CloseNow() })
		return conn, http.StatusSwitchingProtocols
	}
	if res == nil {
		m.Fatal(err)
	}
	return nil, res.StatusCode
}

// next returns the next message of a socket.
func (m *manager) next(conn *websocket.Conn) string {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 30*time.Second)
	defer cancel()
	_, message, err := conn.Read(ctx)
	if err != nil {
		m.Fatal(err)
	}
	return string(message)
}

func TestAConsoleIsTheDaemonsAndATicketOpensItOnce(t *testing.T) {
	t.Parallel()
	m := start(t)
	alice := m.user("alice", "user", "")
	m.runs("web", alice)
	m.made("other", alice)
	ticket := m.ticket("web", alice)
	conn, status := m.open("/api/vms/web/console?offset=5&log=l&ticket="+ticket, "")
	if status != 101 {
		t.Fatal(status)
	}
	if got := m.next(conn) + m.next(conn); got != `{"log":"l","offset":5}OpenConsole of web` {
		t.Errorf("%q", got)
	}
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("ls\n")); err != nil {
		t.Fatal(err)
	}
	if got := m.next(conn); got != "ls\n" {
		t.Errorf("%q", got)
	}
	calls := m.daemon.Calls("OpenConsole")
	if len(calls) != 1 || calls[0].Actor != "alice" {
		t.Errorf("%+v", calls)
	}
	for what, path := range map[string]string{
		"the same ticket again":    "/api/vms/web/console?ticket=" + ticket,
		"another VM's ticket":      "/api/vms/other/console?ticket=" + m.ticket("web", alice),
		"a ticket of other ways":   "/api/vms/web/console?tenant=x&ticket=" + m.ticket("web", alice),
		"no ticket":                "/api/vms/web/console",
		"a ticket nobody has made": "/api/vms/web/console?ticket=mvt_x",
	} {
		if _, status := m.open(path, ""); status != 401 {
			t.Errorf("%s: %d", what, status)
		}
	}
	old := m.ticket("web", alice)
	m.skew.Add(int64(31 * time.Second))
	if _, status := m.open("/api/vms/web/console?ticket="+old, ""); status != 401 {
		t.Errorf("a ticket after its time: %d", status)
	}
	screen, status := m.open("/api/vms/web/screen", alice)
	if status != 101 || m.next(screen) != "OpenScreen of web" {
		t.Errorf("with a token: %d", status)
	}
	if a := m.call("GET", "/api/vms/other/console", alice, nil).Want(409); !strings.Contains(a.Body, "the VM is stopped") {
		t.Error(a.Body)
	}
	m.call("GET", "/api/vms/web/console", alice, nil).Want(426)
}

func TestEachOpeningOfAConsoleIsInTheAuditLogOnce(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.runs("web", m.admin)
	for n, open := range []func() int{
		func() int { _, status := m.open("/api/vms/web/console", m.admin); return status },
		func() int { _, status := m.open("/api/vms/web/screen?ticket=", m.admin); return status },
		func() int {
			_, status := m.open("/api/vms/web/console?ticket="+m.ticket("web", m.admin), "")
			return status
		},
	} {
		if status := open(); status != 101 {
			t.Fatal(status)
		}
		if all := contracttest.As[[]vmapi.AuditEntry](m.call("GET", "/api/audit?action=vm.console", m.admin, nil).Want(200)); len(all) != n+1 {
			t.Errorf("%d entries after %d openings", len(all), n+1)
		}
	}
}

func TestASocketEndsWithTheTokenBehindItsTicket(t *testing.T) {
	t.Parallel()
	m := start(t)
	alice := m.user("alice", "user", "")
	m.runs("web", alice)
	conn, status := m.open("/api/vms/web/screen?ticket="+m.ticket("web", alice), "")
	if status != 101 || m.next(conn) != "OpenScreen of web" {
		t.Fatal(status)
	}
	late := m.ticket("web", alice)
	m.call("POST", "/api/auth/logout", alice, nil).Want(204)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, _, err := conn.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the socket is open: %v", err)
	}
	if _, status := m.open("/api/vms/web/screen?ticket="+late, ""); status != 401 {
		t.Errorf("a ticket of a token that was revoked: %d", status)
	}
}

func TestATicketCanBeRedeemedAtAnotherReplica(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	m := start(t, func(c *vm.Config) { c.Database = url })
	second := &manager{T: t, daemon: m.daemon, skew: m.skew, config: m.config}
	second.config.AuditCheckpoints = filepath.Join(t.TempDir(), "checkpoints")
	second.begin()
	m.runs("web", m.admin)
	ticket := m.ticket("web", m.admin)
	conn, status := second.open("/api/vms/web/console?ticket="+ticket, "")
	if status != 101 || second.next(conn) != "OpenConsole of web" {
		t.Fatal(status)
	}
	if _, status := m.open("/api/vms/web/console?ticket="+ticket, ""); status != 401 {
		t.Errorf("once more: %d", status)
	}
}

func TestTicketsOfOneUserAreBounded(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.runs("web", m.admin)
	for range 100 {
		m.ticket("web", m.admin)
	}
	m.call("POST", "/api/vms/web/tickets", m.admin, nil).Want(429)
	m.call("POST", "/api/vms/web/tickets", m.user("root", "admin", ""), nil).Want(201)
	m.skew.Add(int64(31 * time.Second))
	m.ticket("web", m.admin)
}

func TestProgramsAndFilesInGuestsAreForAdminsOfTheTenant(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
	m.call("PUT", "/api/tenants/umbrella", m.admin, object{}).Want(200)
	boss, user, other := m.user("boss", "admin", "acme"), m.user("user", "user", "acme"), m.user("other", "admin", "umbrella")
	m.runs("web", boss)
	m.daemon.Guest(func(vm string, argv []string) *hypervisorapi.ExecOutcome {
		return &hypervisorapi.ExecOutcome{Stdout: vm + " ran " + strings.Join(argv, " "), ExitCode: 3}
	})
	program := object{"argv": []string{"id", "-u"}}
	m.call("POST", "/api/vms/web/agent/exec", user, program).Want(403)
	m.call("POST", "/api/vms/web/agent/exec", other, program).Want(404)
	m.call("POST", "/api/vms/web/agent/exec", boss, object{"argv": []string{}}).Want(400)
	out := contracttest.As[vmapi.ExecOutcome](m.call("POST", "/api/vms/web/agent/exec", boss, program).Want(200))
	if out.Stdout != "web ran id -u" || out.ExitCode != 3 {
		t.Errorf("%+v", out)
	}
	if calls := m.daemon.Calls("Exec"); len(calls) != 1 || calls[0].Tenant != "acme" || calls[0].Actor != "boss" {
		t.Errorf("%+v", calls)
	}
	content := strings.Repeat("0123456789abcdef", 1<<17) // two MiB
	req, err := http.NewRequestWithContext(t.Context(), "POST", m.url+"/api/vms/web/agent/put-file?path=/big", strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+boss)
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !strings.Contains(string(said), `"size":2097152`) {
		t.Errorf("%d %s %v", res.StatusCode, said, err)
	}
	_ = res.Body.Close()
	a := m.call("POST", "/api/vms/web/agent/get-file", boss, object{"path": "/big"}).Want(200)
	if a.Body != content || a.Header.Get("X-File-Mode") != "0640" {
		t.Errorf("%d bytes, %v", len(a.Body), a.Header)
	}
	if a := m.call("POST", "/api/vms/web/agent/get-file", boss, object{"path": "/none"}).Want(404); !strings.Contains(a.Body, "there is no file") {
		t.Error(a.Body)
	}
	m.call("POST", "/api/vms/web/stop", boss, nil).Want(200)
	m.settled("web", boss)
	m.call("POST", "/api/vms/web/agent/exec", boss, program).Want(409)
	for action, want := range map[string]int{"vm.exec": 2, "vm.put_file": 1, "vm.get_file": 2} {
		entries := contracttest.As[[]vmapi.AuditEntry](m.call("GET", "/api/audit?action="+action, boss, nil).Want(200))
		n := 0
		for _, e := range entries {
			if e.Action == action && e.Result == "ok" {
				n++
			}
		}
		if n != want {
			t.Errorf("%d entries of %s, want %d: %+v", n, action, want, entries)
		}
	}
}

func TestADaemonThatIsAwayOrLiesIsToldOfAConsole(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.daemon.Forget("web")
	m.eventually("the VM is missing", func() bool { return m.vm("web", m.admin).State == "missing" })
	if _, status := m.open("/api/vms/web/console", m.admin); status != 409 {
		t.Errorf("the console of a missing VM: %d", status)
	}
	m.call("POST", "/api/vms/web/tickets", m.admin, nil).Want(409)
}
