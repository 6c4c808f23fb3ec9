package vm_test

import (
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// booted boots a backup, and returns it and how the job ended.
func (m *manager) booted(id, token string) (vmapi.Backup, vmapi.Job) {
	m.Helper()
	j := contracttest.As[vmapi.Job](m.call("POST", "/api/backups/"+id+"/boot", token, nil).Want(202))
	j = contracttest.As[vmapi.Job](m.call("GET", "/api/jobs/"+j.Id+"?wait=60", token, nil).Want(200))
	return contracttest.As[vmapi.Backup](m.call("GET", "/api/backups/"+id, token, nil).Want(200)), j
}

func TestABackupIsBootedUntilItsAgentAnswers(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		boss, user := m.user("boss", "admin", "acme"), m.user("user", "user", "acme")
		m.made("web", user)
		id := m.backup(user, object{"vm_name": "web"}).Id
		m.call("POST", "/api/backups/"+id+"/boot", user, nil).Want(403)
		m.call("POST", "/api/backups/none/boot", boss, nil).Want(404)
		b, j := m.booted(id, boss)
		if b.Boot == nil || b.Boot.Status != "passed" || b.Boot.Error != "" || j.Status != "completed" || b.Status != "completed" {
			t.Errorf("%+v, %+v", b.Boot, j)
		}
		if made := m.daemon.Calls("ServeDisk"); len(made) != 1 || made[0].Tenant != "acme" || m.readers() != 0 {
			t.Errorf("%+v, and %d VMs are left", made, m.readers())
		}

		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "PingAgent" {
				return &drivertest.Fault{Status: 409, Body: `{"code":"wrong_state","error":"the VM is stopped","request_id":"r"}`}
			}
			return nil
		})
		b, j = m.booted(id, boss)
		if b.Boot.Status != "failed" || !strings.Contains(b.Boot.Error, "the VM is stopped") || j.Status != "failed" ||
			b.Status != "completed" || m.readers() != 0 {
			t.Errorf("%+v, %+v", b.Boot, j)
		}
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "CreateVM" {
				return &drivertest.Fault{Status: 400, Body: `{"code":"policy_limit","error":"too many VMs","limit":"x","request_id":"r"}`}
			}
			return nil
		})
		b, j = m.booted(id, boss)
		if b.Boot.Status != "untried" || !strings.Contains(b.Boot.Error, "too many VMs") || j.Status != "failed" {
			t.Errorf("%+v, %+v", b.Boot, j)
		}
		events := contracttest.As[[]vmapi.Event](m.call("GET", "/api/vms/web/events", boss, nil).Want(200))
		told := 0
		for _, e := range events {
			if strings.Contains(e.Message, "did not boot") {
				told++
			}
		}
		if told != 1 {
			t.Errorf("%d events tell of the trial that failed", told)
		}
	})
}

func TestATrialThatIsNotTheGuestsFaultSaysNothingAboutTheBackup(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	id := m.backup(m.admin, object{"vm_name": "web"}).Id
	for _, away := range []*drivertest.Fault{{}, {Status: 401}} {
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "PingAgent" {
				return away
			}
			return nil
		})
		if b, j := m.booted(id, m.admin); b.Boot == nil || b.Boot.Status != "untried" || j.Status != "failed" {
			t.Errorf("%+v, %+v", b.Boot, j)
		}
	}
	if a := m.call("GET", "/api/vms/web/events", m.admin, nil).Want(200); strings.Contains(a.Body, "did not boot") {
		t.Errorf("%s", a.Body)
	}
}

func TestTrialsOfOneTenantDoNotKeepAnotherFromIts(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		release := m.daemon.Hold("PingAgent")
		defer release()
		ids := map[string]string{}
		for _, tenant := range []string{"a", "b", "c", "d", "e"} {
			token := m.user("boss-"+tenant, "admin", tenant)
			m.made("web", token)
			ids[tenant] = m.backup(token, object{"vm_name": "web"}).Id
			want := 202
			if tenant == "e" {
				want = 429 // the fifth at once
			}
			m.call("POST", "/api/backups/"+ids[tenant]+"/boot", token, nil).Want(want)
			if want == 202 {
				m.call("POST", "/api/backups/"+ids[tenant]+"/boot", token, nil).Want(409)
			}
		}
	})
}

// Readers that a killed service has left are removed, and those in use stay.
func TestReadersOfAnEarlierProcessAreRemoved(t *testing.T) {
	t.Parallel()
	m := start(t)
	boss := m.user("boss", "admin", "acme")
	files, _ := m.backedUp("web", boss)
	m.call("GET", files+"list?volume=vdb", boss, nil).Want(200)
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "DeleteVM" {
			return &drivertest.Fault{}
		}
		return nil
	})
	m.stop() // it cannot remove its reader
	m.daemon.Fail(nil)
	if m.readers() != 1 {
		t.Fatalf("%d readers are left", m.readers())
	}
	m.begin()
	m.eventually("what is left is removed", func() bool { return m.readers() == 0 })
	boss = m.login("boss", "password of boss")
	m.call("GET", files+"list?volume=vdb", boss, nil).Want(200)
	if err := m.service.SweepReaders(m.Context()); err != nil || m.readers() != 1 {
		t.Errorf("%v; %d readers", err, m.readers())
	}
}

func TestOneBackupIsBootedEachWeek(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.daemon.Guest(func(string, []string) *hypervisorapi.ExecOutcome { return &hypervisorapi.ExecOutcome{} })
		ids := map[string]string{}
		for _, name := range []string{"one", "two", "no-agent"} {
			m.made(name, m.admin)
			if name != "no-agent" { // the guests of the stand-in have agents while they run
				m.call("POST", "/api/vms/"+name+"/start", m.admin, object{}).Want(202)
				m.settled(name, m.admin)
			}
			m.backup(m.admin, object{"vm_name": name}) // an older one
			ids[m.backup(m.admin, object{"vm_name": name}).Id] = name
		}
		trial := func() (name string) {
			t.Helper()
			if err := m.service.Backups().BootOne(m.Context()); err != nil {
				t.Fatal(err)
			}
			m.eventually("no backup is being booted", func() bool {
				for _, j := range contracttest.As[[]vmapi.Job](m.call("GET", "/api/jobs", m.admin, nil).Want(200)) {
					if j.Kind == "backup.boot" && (j.Status == "queued" || j.Status == "running") {
						return false
					}
				}
				return true
			})
			for _, b := range contracttest.As[[]vmapi.Backup](m.call("GET", "/api/backups", m.admin, nil).Want(200)) {
				if b.Boot != nil && m.now().Sub(b.Boot.At) < time.Hour {
					name += ids[b.Id] + " "
				}
			}
			return name
		}
		if first := trial(); first != "one " {
			t.Errorf("at first %q", first)
		}
		if again := trial(); again != "one " {
			t.Errorf("at once again %q", again)
		}
		m.ahead(8 * 24 * time.Hour)
		if next := trial(); next != "two " {
			t.Errorf("a week later %q", next)
		}
		m.ahead(8 * 24 * time.Hour)
		if next := trial(); next != "one " {
			t.Errorf("two weeks later %q", next)
		}
	})
}
