package vm_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func TestDisksAreAddedGrownAndRemovedWithinTheQuota(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"disk": 10}}).Want(200)
		user, viewer, ada := m.user("user", "user", "acme"), m.user("vera", "viewer", "acme"), m.user("ada", "admin", "acme")
		stranger := m.user("eve", "admin", "beta")
		m.made("web", user) // 2 GiB
		used := func() int {
			return contracttest.As[vmapi.Tenant](m.call("GET", "/api/tenants/acme", ada, nil).Want(200)).Used.Disk
		}
		before := used()
		d := contracttest.As[vmapi.Disk](m.call("POST", "/api/vms/web/disks", user, object{"name": "data", "size": 3}).Want(201))
		if d.Name != "data" || d.Size != 3 || d.State != "attached" || d.Serial != "data" {
			t.Errorf("%+v", d)
		}
		if v := m.vm("web", viewer); len(v.Disks) != 1 || v.Disks[0] != d || used() != before+3 {
			t.Errorf("%+v; %d GiB used", v.Disks, used())
		}
		if calls := m.daemon.Calls("CreateDisk"); len(calls) != 1 || calls[0].Tenant != "acme" || calls[0].Actor != "user" {
			t.Errorf("%+v", calls)
		}
		for body, want := range map[*object]int{
			{"name": "more", "size": 10 - before - 2}: 403, // one GiB too much
			{"name": "data", "size": 1}:               409,
			{"name": "system", "size": 1}:             400,
			{"name": "full", "size": 1}:               507,
			{"name": "a/b", "size": 1}:                400,
			{"name": "x", "size": 0}:                  400,
			{"name": "x", "size": -1}:                 400,
			{"name": "x"}:                             400,
			{"name": "x", "size": 1, "iops": 5}:       403,
			{"name": "x", "size": 1, "image": "nope"}: 400,
			{"name": "x", "size": 1, "image": "/etc"}: 400,
		} {
			m.call("POST", "/api/vms/web/disks", user, *body).Want(want)
		}
		if used() != before+3 {
			t.Errorf("refused disks take %d GiB", used()-before-3)
		}
		path := "/api/vms/web/disks/data"
		for body, want := range map[*object]int{
			{"size": 2}: 400, {"size": 100}: 403, {"bytes_per_second": 1}: 403, {}: 400,
		} {
			m.call("PATCH", path, user, *body).Want(want)
		}
		m.call("PATCH", "/api/vms/web/disks/nope", user, object{"size": 4}).Want(404)
		if d := contracttest.As[vmapi.Disk](m.call("PATCH", path, user, object{"size": 4}).Want(200)); d.Size != 4 || used() != before+4 {
			t.Errorf("%+v; %d GiB used", d, used())
		}
		if d := contracttest.As[vmapi.Disk](m.call("PATCH", path+"?tenant=acme", m.admin, object{"iops": 5}).Want(200)); d.Iops != 5 {
			t.Errorf("%+v", d)
		}
		m.call("PATCH", "/api/vms/web/disks/system", user, object{"size": m.vm("web", user).Disk + 1}).Want(200)
		all := contracttest.As[[]vmapi.Disk](m.call("GET", "/api/vms/web/disks", viewer, nil).Want(200))
		if len(all) != 2 || all[0].Name != "system" || all[0].Size != m.vm("web", user).Disk || all[1].Iops != 5 || used() != before+5 {
			t.Errorf("%+v; %d GiB used", all, used())
		}
		for token, want := range map[string]int{viewer: 403, user: 403, stranger: 404} {
			m.call("DELETE", path, token, nil).Want(want)
		}
		for token, want := range map[string]int{viewer: 403, stranger: 404} {
			m.call("POST", "/api/vms/web/disks", token, object{"name": "x", "size": 1}).Want(want)
			m.call("PATCH", path, token, object{"size": 5}).Want(want)
		}
		m.call("GET", "/api/vms/web/disks", stranger, nil).Want(404)
		m.call("PATCH", "/api/vms/web", ada, object{"protected": true}).Want(200)
		m.call("DELETE", path, ada, nil).Want(409)
		m.call("PATCH", "/api/vms/web", ada, object{"protected": false}).Want(200)
		m.call("DELETE", "/api/vms/web/disks/system", ada, nil).Want(409)
		m.call("DELETE", "/api/vms/web/disks/nope", ada, nil).Want(404)
		if v := contracttest.As[vmapi.VM](m.call("DELETE", path, ada, nil).Want(200)); len(v.Disks) != 0 || used() != before+1 {
			t.Errorf("%+v; %d GiB used", v.Disks, used())
		}
		events := m.call("GET", "/api/vms/web/events", viewer, nil).Want(200).Body
		for _, want := range []string{"added the disk data", "changed the disk data", "removed the disk data"} {
			if !strings.Contains(events, want) {
				t.Errorf("no event says %q: %s", want, events)
			}
		}
	})
}

func TestDisksThatAreAskedForAtOnceDoNotExceedTheQuota(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		user := m.user("user", "user", "acme")
		m.made("web", user)
		m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"disk": m.vm("web", user).Disk + 3}}).Want(200)
		var mu sync.Mutex
		var wg sync.WaitGroup
		made := map[int]int{}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			wg.Go(func() {
				a := m.call("POST", "/api/vms/web/disks", user, object{"name": name, "size": 1})
				mu.Lock()
				defer mu.Unlock()
				made[a.Status]++
			})
		}
		wg.Wait()
		if made[201] != 3 || made[403] != 3 || len(m.vm("web", user).Disks) != 3 {
			t.Errorf("%v, %+v", made, m.vm("web", user).Disks)
		}
	})
}

// What is not known counts until it is: the daemon may have made the disk, or make it yet.
func TestADiskOfARequestWithoutAnAnswerCountsUntilItIsKnown(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		user, ada := m.user("user", "user", "acme"), m.user("ada", "admin", "acme")
		m.made("web", user)
		used := func() int {
			return contracttest.As[vmapi.Tenant](m.call("GET", "/api/tenants/acme", ada, nil).Want(200)).Used.Disk
		}
		before := used()
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "CreateDisk" {
				return &drivertest.Fault{Status: 503}
			}
			return nil
		})
		m.call("POST", "/api/vms/web/disks", user, object{"name": "data", "size": 3}).Want(503)
		m.daemon.Fail(nil)
		if used() != before+3 {
			t.Errorf("%d GiB used, %d before", used(), before)
		}
		m.ahead(4 * time.Minute)
		m.eventually("it does not count any more", func() bool { return used() == before })
		// A disk that somebody adds at the daemon counts too.
		m.daemon.Change("web", func(vm *hypervisorapi.VM) {
			vm.Disks = append(vm.Disks, hypervisorapi.Disk{Name: "other", SizeGib: 7, State: "attached"})
		})
		m.eventually("it counts", func() bool { return used() == before+7 })
	})
}

// A daemon may take longer than a reservation lasts.
func TestADiskCountsAsLongAsTheDaemonMakesIt(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"disk": 8}}).Want(200)
	user := m.user("user", "user", "acme")
	m.made("web", user)
	release := m.daemon.Hold("CreateDisk")
	defer release()
	answered := make(chan int, 1)
	go func() {
		answered <- m.call("POST", "/api/vms/web/disks", user, object{"name": "data", "size": 3}).Status
	}()
	store, own := m.service.Store(), caller.ByItself(m.Context())
	reserved := func() []record.Reservation {
		v, err := store.VM(own, m.vm("web", user).Id)
		if err != nil {
			t.Fatal(err)
		}
		return v.Reservations.V
	}
	m.eventually("room is reserved", func() bool { return len(reserved()) == 1 })
	kept := reserved()[0]
	for range 3 { // as whoever waits for the daemon does
		m.ahead(2 * time.Minute)
		if err := store.RenewReservation(own, m.vm("web", user).Id, kept.ID); err != nil {
			t.Fatal(err)
		}
	}
	if now := reserved(); len(now) != 1 || !now[0].Until.After(kept.Until) {
		t.Errorf("%+v, then %+v", kept, now)
	}
	m.call("POST", "/api/vms/web/disks", user, object{"name": "more", "size": 4}).Want(403)
	release()
	if status := <-answered; status != 201 || len(reserved()) != 0 || len(m.vm("web", user).Disks) != 1 {
		t.Errorf("%d; %+v, %+v", status, reserved(), m.vm("web", user).Disks)
	}
}

// A disk that has its image's size counts as any other: before the VM is made if the size is known then, and
// else once the daemon has made it.
func TestADiskOfTheImagesSizeCountsForTheQuota(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"disk": 10}}).Want(200)
		user, ada := m.user("user", "user", "acme"), m.user("ada", "admin", "acme")
		m.daemon.PutImage("big")
		m.daemon.SizeImage("big", 15<<30+1)
		a := m.call("POST", "/api/vms", user, object{"name": "big", "image": "big"}).Want(403)
		if !strings.Contains(a.Body, "16 GiB of disk requested, 10 of 10 left") {
			t.Errorf("%s", a.Body)
		}
		m.daemon.SizeImage("big", 3<<30)
		m.call("POST", "/api/vms", user, object{"name": "fits", "image": "big"}).Want(201)
		if v := m.settled("fits", user); v.Disk != 3 {
			t.Errorf("%+v", v)
		}
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "GetImage" {
				return &drivertest.Fault{}
			}
			return nil
		})
		m.call("POST", "/api/vms", user, object{"name": "later", "image": "big"}).Want(201)
		if v := m.settled("later", user); v.Disk != 3 {
			t.Errorf("%+v", v)
		}
		for _, vm := range m.daemon.VMs() {
			if vm.DiskGib != 0 { // so that a template of the image fits
				t.Errorf("the daemon was asked for %d GiB", vm.DiskGib)
			}
		}
		if used := contracttest.As[vmapi.Tenant](m.call("GET", "/api/tenants/acme", ada, nil).Want(200)).Used.Disk; used != 6 {
			t.Errorf("%d GiB used", used)
		}
	})
}
