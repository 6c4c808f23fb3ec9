package vm_test

import (
	"strings"
	"sync"
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

func TestTheNameOfADeletedTenantIsNotAnothersUnlessItIsRevived(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		ada := m.user("ada", "admin", "acme")
		m.made("web", ada)
		m.call("DELETE", "/api/vms/web", ada, nil).Want(204)
		m.call("DELETE", "/api/users/ada", m.admin, nil).Want(204)
		m.call("DELETE", "/api/tenants/acme", m.admin, nil).Want(204)
		eve := object{"username": "eve", "role": "admin", "tenant": "acme", "password": "long enough"}
		for path, c := range map[string]struct {
			method string
			body   object
		}{
			"/api/tenants/acme": {"PUT", object{}},
			"/api/users":        {"POST", eve},
			"/api/vms":          {"POST", object{"name": "x", "image": "demo", "tenant": "acme"}},
		} {
			if a := m.call(c.method, path, m.admin, c.body).Want(409); !strings.Contains(a.Body, "there was a tenant of this name") {
				t.Errorf("%s: %s", path, a.Body)
			}
		}
		m.user("bob", "user", "other")
		m.call("PATCH", "/api/users/bob", m.admin, object{"tenant": "acme"}).Want(409)
		m.call("PUT", "/api/tenants/acme", m.admin, object{"revive": true}).Want(200)
		m.call("POST", "/api/users", m.admin, eve).Want(201)
		jobs := m.call("GET", "/api/jobs", m.login("eve", "long enough"), nil).Want(200)
		if !strings.Contains(jobs.Body, `"vm_name":"web"`) {
			t.Errorf("a revived tenant has %s", jobs.Body)
		}
	})
}

func TestWhatAnotherTenantHasDoesNotExist(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		alice, bert, nobody := m.user("alice", "admin", "acme"), m.user("bert", "admin", "beta"), m.user("nora", "admin", "")
		plain := m.user("pat", "user", "")
		v := m.made("web", alice)
		if v.Tenant == nil || *v.Tenant != "acme" || v.Labels["tenant"] != "acme" {
			t.Errorf("%+v", v)
		}
		m.call("POST", "/api/vms/web/snapshots", alice, object{"name": "s"}).Want(201)
		s := contracttest.As[[]vmapi.Snapshot](m.call("GET", "/api/vms/web/snapshots", alice, nil).Want(200))[0]
		job := contracttest.As[[]vmapi.Job](m.call("GET", "/api/jobs", alice, nil).Want(200))[0]
		for _, stranger := range []string{bert, plain} {
			for _, path := range []string{
				"/api/vms/web", "/api/vms/web?tenant=acme", "/api/vms/web/metrics", "/api/vms/web/events", "/api/vms/web/events/stream",
				"/api/vms/web/snapshots", "/api/vms/web/snapshots/tree", "/api/vms/web/snapshots/" + s.Id, "/api/jobs/" + job.Id, "/api/tenants/acme",
			} {
				m.call("GET", path, stranger, nil).Want(404)
			}
			for _, path := range []string{"start", "stop", "restart", "pause", "resume", "snapshots/" + s.Id + "/revert"} {
				m.call("POST", "/api/vms/web/"+path+"?tenant=acme", stranger, nil).Want(404)
			}
			m.call("POST", "/api/vms/web/clone", stranger, object{"target_name": "stolen"}).Want(404)
			m.call("PATCH", "/api/vms/web", stranger, object{"description": "mine"}).Want(404)
			m.call("POST", "/api/jobs/"+job.Id+"/cancel", stranger, nil).Want(404)
			for _, path := range []string{"/api/vms?tenant=acme", "/api/jobs", "/api/vms?q=web"} {
				if a := m.call("GET", path, stranger, nil).Want(200); strings.Contains(a.Body, "web") {
					t.Errorf("%s: %s", path, a.Body)
				}
			}
		}
		m.call("DELETE", "/api/vms/web", bert, nil).Want(404)
		m.call("DELETE", "/api/vms/web/snapshots/"+s.Id, bert, nil).Want(404)
		for _, e := range contracttest.As[[]vmapi.AuditEntry](m.call("GET", "/api/audit?tenant=acme", bert, nil).Want(200)) {
			if e.Tenant != "beta" {
				t.Errorf("bert reads %+v", e)
			}
		}
		if a := m.call("GET", "/api/vms", nobody, nil).Want(200); !strings.Contains(a.Body, "web") {
			t.Errorf("an admin without a tenant sees %s", a.Body)
		}
		for _, body := range []object{
			{"name": "x", "image": "demo", "tenant": "acme"}, {"name": "x", "image": "demo", "labels": object{"tenant": "acme"}},
			{"name": "x", "image": "demo", "tenant": "beta", "labels": object{"tenant": "acme"}},
			{"name": "x", "image": "demo", "tenant": "acme", "labels": object{"tenant": "beta"}},
			{"name": "x", "image": "demo", "tags": []string{"tenant:acme"}},
		} {
			m.call("POST", "/api/vms", bert, body).Want(403)
		}
		m.made("own", bert)
		m.call("PATCH", "/api/vms/own", bert, object{"tags": []string{"tenant:acme"}}).Want(403)
		m.call("PATCH", "/api/vms/own", bert, object{"labels": object{"tenant": "acme"}}).Want(400)
		if a := m.call("PATCH", "/api/vms/own", bert, object{"labels": object{}}).Want(200); !strings.Contains(a.Body, `"tenant":"beta"`) {
			t.Errorf("the label is gone: %s", a.Body)
		}
		if calls := m.daemon.Calls("CreateSnapshot"); len(calls) != 1 || calls[0].Tenant != "acme" || calls[0].Actor != "alice" {
			t.Errorf("the daemon was asked as %+v", calls)
		}
	})
}

func TestANameIsFreeInAnotherTenantAndAmbiguousForWhoSeesBoth(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.user("alice", "user", "acme"))
	m.made("web", m.user("bert", "user", "beta"))
	m.call("GET", "/api/vms/web", m.admin, nil).Want(409)
	a := contracttest.As[vmapi.VM](m.call("GET", "/api/vms/web?tenant=beta", m.admin, nil).Want(200))
	if a.Tenant == nil || *a.Tenant != "beta" {
		t.Errorf("%+v", a)
	}
	m.call("DELETE", "/api/vms/web?tenant=beta", m.admin, nil).Want(204)
	if a := m.vm("web", m.admin); *a.Tenant != "acme" {
		t.Errorf("%+v", a)
	}
	m.call("GET", "/api/vms/web?tenant=", m.admin, nil).Want(404)
}

func TestQuotasHoldAgainstRequestsAtOnceAndNameTheLimit(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		alice := m.user("alice", "user", "acme")
		m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"vms": 3, "cpus": 8, "memory": 4096, "snapshots": 1}}).Want(200)
		m.call("PUT", "/api/tenants/acme", m.user("ada", "admin", "acme"), object{}).Want(403)
		for _, body := range []object{
			{"name": "x", "image": "demo", "cpus": 9}, {"name": "x", "image": "demo", "memory": 5000},
		} {
			if a := m.call("POST", "/api/vms", alice, body).Want(403); !strings.Contains(a.Body, "quota") || !strings.Contains(a.Body, "left") {
				t.Error(a.Body)
			}
		}
		var group sync.WaitGroup
		statuses := make(chan int, 8)
		for _, name := range strings.Split("a b c d e f g h", " ") {
			group.Go(func() {
				statuses <- m.call("POST", "/api/vms", alice, object{"name": name, "image": "demo"}).Status
			})
		}
		group.Wait()
		close(statuses)
		made, refused := 0, 0
		for s := range statuses {
			switch s {
			case 201:
				made++
			case 403:
				refused++
			default:
				t.Errorf("status %d", s)
			}
		}
		if made != 3 || refused != 5 {
			t.Errorf("%d made, %d refused", made, refused)
		}
		tenant := contracttest.As[vmapi.Tenant](m.call("GET", "/api/tenants/acme", alice, nil).Want(200))
		if tenant.Used.Vms != 3 || tenant.Used.Cpus != 3 || tenant.Used.Memory != 1536 || tenant.Used.Users != 2 {
			t.Errorf("%+v", tenant.Used)
		}
		m.call("DELETE", "/api/tenants/acme", m.admin, nil).Want(409)
	})
}

func TestOnlyAdminsOfEverythingReadPathsOfTheHost(t *testing.T) {
	t.Parallel()
	m := start(t)
	alice := m.user("alice", "admin", "acme")
	m.call("POST", "/api/vms", alice, object{"name": "x", "image": "/etc/passwd"}).Want(400)
	for _, who := range []struct {
		token string
		sees  bool
	}{{alice, false}, {m.admin, true}} {
		body := object{"name": "web", "image": "missing"}
		m.call("POST", "/api/vms", who.token, body).Want(201)
		m.settled("web?tenant="+map[bool]string{true: "", false: "acme"}[who.sees], who.token)
		for _, path := range []string{"/api/vms", "/api/jobs", "/api/audit"} {
			text := m.call("GET", path, who.token, nil).Want(200).Body
			if got := strings.Contains(text, "/var/lib"); got && !who.sees {
				t.Errorf("%s: %s", path, text)
			}
		}
		text := m.call("GET", "/api/vms?q=web", who.token, nil).Want(200).Body
		if !strings.Contains(text, "there is no image missing") || strings.Contains(text, "/var/lib") != who.sees {
			t.Errorf("sees %t: %s", who.sees, text)
		}
	}
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "PauseVM" {
			return &drivertest.Fault{Status: 409, Body: `{"error":"no file '/srv/secret/disk.qcow2' for 10.0.0.0/8","code":"conflict","request_id":"r"}`}
		}
		return nil
	})
	m.made("run", alice)
	m.call("POST", "/api/vms/run/start", alice, nil).Want(202)
	m.settled("run", alice)
	if a := m.call("POST", "/api/vms/run/pause", alice, nil).Want(409); strings.Contains(a.Body, "srv") || !strings.Contains(a.Body, "10.0.0.0/8") {
		t.Error(a.Body)
	}
}

func TestSnapshotsAreATree(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		take := func(name string) vmapi.Snapshot {
			t.Helper()
			return contracttest.As[vmapi.Snapshot](m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": name}).Want(201))
		}
		tree := func() string {
			t.Helper()
			var text func(nodes []vmapi.SnapshotNode) string
			text = func(nodes []vmapi.SnapshotNode) string {
				var out []string
				for _, n := range nodes {
					name := n.Snapshot.Name
					if n.Snapshot.Current {
						name += "*"
					}
					if len(n.Children) > 0 {
						name += "(" + text(n.Children) + ")"
					}
					out = append(out, name)
				}
				return strings.Join(out, " ")
			}
			return text(contracttest.As[[]vmapi.SnapshotNode](m.call("GET", "/api/vms/web/snapshots/tree", m.admin, nil).Want(200)))
		}
		a, b := take("a"), take("b")
		take("c")
		m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": "c"}).Want(409)
		m.call("POST", "/api/vms/web/snapshots/"+a.Id+"/revert", m.admin, nil).Want(200)
		take("d")
		if got := tree(); got != "a(b(c) d*)" {
			t.Error(got)
		}
		m.call("DELETE", "/api/vms/web/snapshots/"+b.Id, m.admin, nil).Want(204)
		if got := tree(); got != "a(c d*)" {
			t.Errorf("a snapshot in the middle is deleted: %s", got)
		}
		m.call("DELETE", "/api/vms/web/snapshots/"+a.Id, m.admin, nil).Want(204)
		if got := tree(); got != "c d*" {
			t.Errorf("the root is deleted: %s", got)
		}
		m.call("GET", "/api/vms/web/snapshots/"+a.Id, m.admin, nil).Want(404)
		m.call("POST", "/api/vms/web/snapshots/"+a.Id+"/revert", m.admin, nil).Want(404)
	})
}

func TestAFailedSnapshotLeavesNothingAndItsNameIsFree(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "CreateSnapshot" {
			return &drivertest.Fault{Status: 507, After: true}
		}
		return nil
	})
	m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": "s"}).Want(507)
	if a := m.call("GET", "/api/vms/web/snapshots", m.admin, nil).Want(200); strings.TrimSpace(a.Body) != "[]" {
		t.Error(a.Body)
	}
	m.daemon.Fail(nil)
	m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": "s"}).Want(201)
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	m.settled("web", m.admin)
	m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": "live"}).Want(409)
	m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": "live", "snapshot_type": "Full"}).Want(201)
}
