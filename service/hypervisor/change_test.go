//go:build linux

package hypervisor_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// change changes a VM with an admin's token.
func (d *daemon) change(id string, fields object) hypervisorapi.VM {
	d.Helper()
	return contracttest.As[hypervisorapi.VM](d.call("PATCH", "/v1/vms/"+id, adminToken, fields).Want(200))
}

// freed returns what the host has left.
func (d *daemon) freed() (vcpus, memory int) {
	d.Helper()
	h := contracttest.As[hypervisorapi.Host](d.call("GET", "/v1/host", adminToken, nil).Want(200))
	return h.FreeVcpus, h.FreeMemoryMib
}

func TestAStoppedVMChangesAtOnce(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	one := d.withEmptyDisk("one")
	d.withEmptyDisk("two")
	d.call("PATCH", "/v1/vms/"+one.Id, adminToken, object{"name": "two"}).Refused(409, "name_taken", "")
	fields := object{
		"name": "renamed", "labels": object{"role": "web"}, "autostart": true, "vcpus": 3, "memory_mib": 700,
		"network": object{"mode": "none"},
	}
	vcpus, memory := d.freed()
	for range 2 { // the second one changes nothing
		vm := d.change(one.Id, fields)
		if vm.Name != "renamed" || !maps.Equal(vm.Labels, hypervisorapi.Labels{"role": "web"}) || !vm.Autostart || vm.Vcpus != 3 ||
			vm.MemoryMib != 700 || *vm.Network.Mode != "none" || vm.Mac != "" || len(vm.Pending) != 0 || vm.Running != nil ||
			vm.Generation != one.Generation+1 {
			t.Errorf("%+v", vm)
		}
	}
	if v, m := d.freed(); v != vcpus-2 || m != memory-188 {
		t.Errorf("the host has %d processors and %d MiB left, and had %d and %d", v, m, vcpus, memory)
	}
	vm := d.change(one.Id, object{"network": object{"mode": "user"}, "labels": object{}})
	if vm.Mac == "" || len(vm.Labels) != 0 || vm.Vcpus != 3 {
		t.Errorf("%+v", vm)
	}
	if again := d.change(one.Id, object{"network": object{"mode": "user"}}); again.Mac != vm.Mac {
		t.Errorf("the device's address changed from %s to %s", vm.Mac, again.Mac)
	}
	found := contracttest.As[[]hypervisorapi.VM](d.call("GET", "/v1/vms?q=renamed", adminToken, nil).Want(200))
	if len(found) != 1 {
		t.Errorf("a search finds %d VMs by the new name", len(found))
	}
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+one.Id+"/events", adminToken, nil).Want(200))
	if i := slices.IndexFunc(events, func(e hypervisorapi.Event) bool {
		return e.Kind == "config" && strings.Contains(e.Message, "vcpus 1 is now 3") && deref(e.Actor) == "admin"
	}); i < 0 {
		t.Errorf("%+v", events)
	}

	for field, wrong := range map[string]object{
		"vcpus":          {"vcpus": 0},
		"memory_mib":     {"memory_mib": 1},
		"name":           {"name": "a b"},
		"labels":         {"labels": object{"a": "b\n"}},
		"network.mac":    {"network": object{"mode": "none", "mac": "52:54:00:00:00:01"}},
		"network.bridge": {"network": object{"mode": "bridge", "bridge": "elsewhere"}},
		"network.ip":     {"network": object{"mode": "user", "ip": "10.87.0.9"}},
	} {
		d.call("PATCH", "/v1/vms/"+one.Id, adminToken, wrong).Refused(400, "invalid", field)
	}
	d.call("PATCH", "/v1/vms/"+one.Id, adminToken, object{}).Want(400)
	d.call("PATCH", "/v1/vms/"+one.Id, acmeToken, object{"name": "mine"}).Want(404)
	if now := d.vm(one.Id); now.Generation != vm.Generation {
		t.Error("a refused change changed the VM")
	}
}

func TestWhatAVMGrowsToIsCountedBeforeItHasIt(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument+"[policy]\nmax_vcpus = 5\n[[policy.tenants]]\ntenant = \"acme\"\nmax_vcpus_total = 6\nmax_memory_mib_total = 300\n")
	make := func(name string) string {
		t.Helper()
		return contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
			"name": name, "memory_mib": 64, "vcpus": 2, "start": name == "one", "network": object{"mode": "none"},
		}).Want(201)).Id
	}
	one, two := make("one"), make("two")
	d.await(one, "running")
	path := "/v1/vms/" + one
	d.call("PATCH", path, acmeToken, object{"vcpus": 6}).Limited(400, "policy_limit", "", "policy.max_vcpus")
	d.call("PATCH", path, acmeToken, object{"vcpus": 5}).Limited(400, "policy_limit", "", "policy.tenants[acme].max_vcpus_total")
	d.call("PATCH", path, acmeToken, object{"memory_mib": 237}).Limited(
		400, "policy_limit", "", "policy.tenants[acme].max_memory_mib_total",
	)
	d.call("PATCH", path, acmeToken, object{"vcpus": 4}).Want(200)
	d.call("PATCH", "/v1/vms/"+two, acmeToken, object{"vcpus": 3}).Limited(
		400, "policy_limit", "", "policy.tenants[acme].max_vcpus_total",
	)
	// What shrinks is not free before the process has gone.
	d.call("PATCH", path, acmeToken, object{"vcpus": 1}).Want(200)
	d.call("PATCH", "/v1/vms/"+two, acmeToken, object{"vcpus": 5}).Limited(
		400, "policy_limit", "", "policy.tenants[acme].max_vcpus_total",
	)
	d.call("PATCH", "/v1/vms/"+two, acmeToken, object{"vcpus": 4}).Want(200)
	d.call("POST", path+"/stop", acmeToken, object{"force": true}).Want(200)
	d.call("PATCH", "/v1/vms/"+two, acmeToken, object{"vcpus": 5}).Want(200)
	// A limit that is lower by now does not keep a VM from being renamed or made smaller.
	d.restart(nil)
	d.call("PATCH", "/v1/vms/"+two, acmeToken, object{"name": "too-large", "vcpus": 4}).Want(200)
}

func TestWhatTheProcessHasStaysKnownUntilTheNextStart(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/snapshots", adminToken, object{"name": "before", "kind": "full"}).Want(201)
	changed := d.change(vm.Id, object{"vcpus": 2, "memory_mib": 256, "network": object{"mode": "user"}, "name": "renamed"})
	check := func(when string, vm hypervisorapi.VM) {
		t.Helper()
		if !slices.Equal(vm.Pending, []string{"vcpus", "memory_mib", "network"}) || vm.Vcpus != 2 || vm.MemoryMib != 256 ||
			vm.Running == nil || vm.Running.Vcpus != 1 || vm.Running.MemoryMib != 192 || *vm.Running.Network.Mode != "none" ||
			vm.Name != "renamed" {
			t.Errorf("%s: %+v, %+v", when, vm, vm.Running)
		}
		if n := d.sh(vm.Id, "grep -c ^processor /proc/cpuinfo; ls /sys/class/net | grep -c eth || true"); n != "1\n0" {
			t.Errorf("%s: the guest has %q processors and networks", when, n)
		}
	}
	check("changed", changed)
	kill := d.mortal()
	kill()
	d.run()
	d.connected(vm.Id)
	check("after kill -9", d.vm(vm.Id))
	// A snapshot goes by what the process has.
	d.call("POST", path+"/snapshots", adminToken, object{"name": "after", "kind": "full"}).Want(201)
	for _, name := range []string{"before", "after"} {
		d.call("POST", path+"/snapshots/"+name+"/revert", adminToken, nil).Want(200)
		d.connected(vm.Id)
		check("back to "+name, d.vm(vm.Id))
	}
	// Back to what it has: nothing waits.
	if back := d.change(vm.Id, object{"vcpus": 1, "memory_mib": 192, "network": object{"mode": "none"}}); len(back.Pending) != 0 ||
		back.Running != nil {
		t.Errorf("%+v", back)
	}
	d.change(vm.Id, object{"vcpus": 2, "memory_mib": 256, "network": object{"mode": "user"}})
	d.call("POST", path+"/restart", adminToken, object{"force": true}).Want(200)
	d.connected(vm.Id)
	if now := d.vm(vm.Id); len(now.Pending) != 0 || now.Running != nil || now.Vcpus != 2 {
		t.Errorf("%+v", now)
	}
	if n := d.sh(vm.Id, "grep -c ^processor /proc/cpuinfo; ls /sys/class/net | grep -c eth || true"); n != "2\n1" {
		t.Errorf("the guest has %q processors and networks", n)
	}
	for range 2 { // running, and stopped
		d.call("POST", path+"/snapshots/before/revert", adminToken, nil).Refused(409, "hardware_changed", "")
		d.call("POST", path+"/stop", adminToken, object{"force": true})
	}
	d.change(vm.Id, object{"vcpus": 1, "memory_mib": 192, "network": object{"mode": "none"}})
	d.call("POST", path+"/snapshots/before/revert", adminToken, nil).Want(200)
	d.connected(vm.Id)
}
