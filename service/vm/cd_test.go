package vm_test

import (
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestCDsAreImagesThatTheTenantMayUse(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		user, viewer := m.user("user", "user", "acme"), m.user("vera", "viewer", "acme")
		stranger := m.user("eve", "user", "")
		m.daemon.PutImage("installer")
		m.made("web", user)
		v := contracttest.As[vmapi.VM](m.call("PUT", "/api/vms/web/cd", user, object{"image": "installer"}).Want(200))
		if v.Cd == nil || *v.Cd != "installer" {
			t.Errorf("%+v", v)
		}
		if calls := m.daemon.Calls("InsertCD"); len(calls) != 1 || calls[0].Tenant != "acme" || calls[0].Actor != "user" {
			t.Errorf("%+v", calls)
		}
		for image, want := range map[string]int{
			"nope": 400, "/etc/passwd": 400, "../installer": 400, "": 400, "a\x00b": 400,
		} {
			m.call("PUT", "/api/vms/web/cd", user, object{"image": image}).Want(want)
		}
		// Another tenant's image that only the daemon knows, as after the loss of the database.
		m.call("PUT", "/api/tenants/beta", m.admin, object{}).Want(200)
		m.daemon.PutImage("beta:secret")
		m.daemon.PutImage("debian:12")
		m.call("PUT", "/api/vms/web/cd", user, object{"image": "beta:secret"}).Want(400)
		m.call("POST", "/api/vms", user, object{"name": "stolen", "image": "beta:secret"}).Want(400)
		m.call("POST", "/api/vms/web/disks", user, object{"name": "stolen", "size": 1, "image": "beta:secret"}).Want(400)
		m.call("PUT", "/api/vms/web/cd", m.user("ben", "user", "beta"), object{"image": "beta:secret"}).Want(404) // no such VM of beta
		m.call("PUT", "/api/vms/web/cd", user, object{"image": "debian:12"}).Want(200)
		m.call("PUT", "/api/vms/web/cd", user, object{"image": "installer"}).Want(200)
		m.call("PUT", "/api/vms/web/cd", viewer, object{"image": "installer"}).Want(403)
		m.call("PUT", "/api/vms/web/cd", stranger, object{"image": "installer"}).Want(404)
		m.call("DELETE", "/api/vms/web/cd", viewer, nil).Want(403)
		m.call("DELETE", "/api/vms/web/cd", stranger, nil).Want(404)
		if v := m.vm("web", viewer); v.Cd == nil {
			t.Error("a refused request has emptied the drive")
		}
		if v := contracttest.As[vmapi.VM](m.call("DELETE", "/api/vms/web/cd", user, nil).Want(200)); v.Cd != nil {
			t.Errorf("%+v", v)
		}
		// What is changed at the daemon is seen here.
		m.call("PUT", "/api/vms/web/cd", user, object{"image": "installer"}).Want(200)
		m.daemon.Eject("web")
		m.eventually("the drive is empty", func() bool { return m.vm("web", user).Cd == nil })
	})
}
