package vm_test

import (
	"slices"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestAVMIsRenamedAndResizedAndSaysWhatWaitsForItsNextStart(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		m.made("other", m.admin)
		change := func(name string, body object, status int) answer {
			t.Helper()
			return m.call("PATCH", "/api/vms/"+name, m.admin, body).Want(status)
		}
		v := contracttest.As[vmapi.VM](change("web", object{"cpus": 2, "memory": 1024, "name": "www"}, 200))
		if v.Cpus != 2 || v.Memory != 1024 || v.Name != "www" || len(v.Pending) != 0 {
			t.Errorf("%+v", v)
		}
		m.call("GET", "/api/vms/web", m.admin, nil).Want(404)
		if !slices.ContainsFunc(m.daemon.VMs(), func(vm hypervisorapi.VM) bool { return vm.Name == "www" && vm.Vcpus == 2 }) {
			t.Errorf("the daemon has %+v", m.daemon.VMs())
		}
		change("www", object{"name": "other"}, 409)
		change("www", object{"name": "-"}, 400)
		change("www", object{"cpus": 0}, 400)
		m.call("POST", "/api/vms/www/start", m.admin, nil).Want(202)
		m.settled("www", m.admin)
		v = contracttest.As[vmapi.VM](change("www", object{"cpus": 3}, 200))
		if v.Cpus != 3 || strings.Join(v.Pending, " ") != "cpus" {
			t.Errorf("%+v", v)
		}
		if a := change("www", object{"cpus": 100, "name": "wide"}, 400); !strings.Contains(a.Body, "the host has 64") {
			t.Error(a.Body)
		}
		if v = m.vm("www", m.admin); v.Cpus != 3 {
			t.Errorf("a change that the daemon refused stays: %+v", v)
		}
	})
}

func TestGrowthCountsAgainstTheQuotaAndShrinkingGivesBack(t *testing.T) {
	t.Parallel()
	m := start(t)
	alice := m.user("alice", "user", "acme")
	m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"cpus": 4, "memory": 2048}}).Want(200)
	m.made("web", alice)
	m.call("PATCH", "/api/vms/web", alice, object{"cpus": 5}).Want(403)
	m.call("PATCH", "/api/vms/web", alice, object{"memory": 4096}).Want(403)
	m.call("PATCH", "/api/vms/web", alice, object{"cpus": 4}).Want(200)
	m.call("POST", "/api/vms", alice, object{"name": "two", "image": "demo"}).Want(403)
	m.call("PATCH", "/api/vms/web", alice, object{"cpus": 1}).Want(200)
	m.made("two", alice)
}

func TestAChangeThatTheDaemonNeedsToKnowWaitsForNoJob(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	release := m.daemon.Hold("StartVM")
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	m.call("PATCH", "/api/vms/web", m.admin, object{"cpus": 2}).Want(409)
	m.call("PATCH", "/api/vms/web", m.admin, object{"description": "at once"}).Want(200)
	release()
	m.settled("web", m.admin)
	m.call("PATCH", "/api/vms/web", m.admin, object{"cpus": 2}).Want(200)
}
