//go:build linux

package hypervisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// deaf makes a VM of a tenant that runs and has nothing to boot.
func (d *daemon) deaf(token, name string, more object) hypervisorapi.VM {
	d.Helper()
	need(d.T, "qemu-system-x86_64", "qemu-img")
	spec := object{"name": name, "memory_mib": 64, "disk_gib": 1, "start": true, "network": object{"mode": "none"}}
	for k, v := range more {
		spec[k] = v
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", token, spec).Want(201))
	return d.await(vm.Id, "running")
}

// wedge halts a VM's process, so that it answers nothing.
func (d *daemon) wedge(vm hypervisorapi.VM) {
	d.Helper()
	if err := syscall.Kill(*vm.Pid, syscall.SIGSTOP); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = syscall.Kill(*vm.Pid, syscall.SIGCONT) })
}

func (d *daemon) operation(id string) hypervisorapi.Operation {
	d.Helper()
	return contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+id, adminToken, nil).Want(200))
}

// begun waits until an operation runs.
func (d *daemon) begun(a answer) hypervisorapi.Operation {
	d.Helper()
	op := contracttest.As[hypervisorapi.Operation](a.Want(202))
	for deadline := time.Now().Add(time.Minute); ; {
		if got := d.operation(op.Id); got.State != "queued" {
			return got
		}
		if time.Now().After(deadline) {
			d.Fatalf("%s does not begin", a.What)
		}
		time.Sleep(10 * time.Millisecond) // the daemon takes it up on its own
	}
}

func TestAVMWhoseProcessIsWedgedInABackupIsDeletedAndTheBackupCancelled(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.deaf(adminToken, "one", nil)
	d.wedge(vm)
	op := d.begun(d.call("POST", "/v1/vms/"+vm.Id+"/backups", adminToken, nil))
	d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
	d.call("GET", "/v1/vms/"+vm.Id, adminToken, nil).Want(404)
	if n := processesOf(t, vm.Id); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	ended := contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=60", adminToken, nil).Want(200))
	if ended.State != "cancelled" {
		t.Errorf("the backup: %+v", ended)
	}
	if left, err := os.ReadDir(filepath.Join(d.cfg.Data, "backups")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A VM that does not run has its disk opened by a QEMU of its own.
func TestAVMWhoseDiskIsBeingCopiedByAWedgedProcessIsDeleted(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.withEmptyDisk("one")
	pid := make(chan int, 1)
	go func() { // halts the process as soon as it is there
		for {
			for _, found := range pidsOf(t, vm.Id) {
				if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", found)); err == nil &&
					strings.HasPrefix(string(name), "qemu-system") {
					_ = syscall.Kill(found, syscall.SIGSTOP)
					pid <- found
					return
				}
			}
			if t.Context().Err() != nil {
				return
			}
		}
	}()
	op := contracttest.As[hypervisorapi.Operation](d.call("POST", "/v1/vms/"+vm.Id+"/backups", adminToken, nil).Want(202))
	<-pid
	d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
	if n := processesOf(t, vm.Id); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if ended := contracttest.As[hypervisorapi.Operation](
		d.call("GET", "/v1/operations/"+op.Id+"?wait=60", adminToken, nil).Want(200),
	); ended.State != "cancelled" {
		t.Errorf("the backup: %+v", ended)
	}
}

func TestABackupOfAWedgedProcessIsCancelledInItsMidst(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path, work := "/v1/vms/"+vm.Id, filepath.Join(d.cfg.Data, "vms", vm.Id, "copy.qcow2")
	d.sh(vm.Id, "for i in 1 2 3 4 5 6; do cat /bin/mainstay-guest; done >/dev/vda; sync")
	for tries := 0; ; tries++ {
		if tries == 20 {
			t.Fatal("the disk is copied too fast for this test")
		}
		stopped, answered := d.duringCall(*vm.Pid, func() int64 { return used(t, work) }, func() answer {
			op := contracttest.As[hypervisorapi.Operation](d.call("POST", path+"/backups", adminToken, nil).Want(202))
			return d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil)
		})
		if !stopped {
			<-answered
			continue // it was too fast
		}
		all := contracttest.As[[]hypervisorapi.Operation](d.call("GET", "/v1/operations?limit=1", adminToken, nil).Want(200))
		d.call("POST", "/v1/operations/"+all[0].Id+"/cancel", adminToken, nil).Want(200)
		if ended := contracttest.As[hypervisorapi.Operation]((<-answered).Want(200)); ended.State != "cancelled" {
			t.Errorf("the backup: %+v", ended)
		}
		break
	}
	if err := syscall.Kill(*vm.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What the process continues with when it is back does not stand in the way.
	d.finished(d.call("POST", path+"/backups", adminToken, nil))
}

func TestVMsWhoseTimeIsOverAreDeletedThoughAnotherIsWedged(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	var vms []hypervisorapi.VM
	for _, name := range []string{"first", "second"} { // which are due before the other's
		vm := d.deaf(acmeToken, name, object{"ttl_seconds": 3600})
		d.wedge(vm)
		d.begun(d.call("POST", "/v1/vms/"+vm.Id+"/backups", acmeToken, nil))
		vms = append(vms, vm)
	}
	vms = append(
		vms,
		contracttest.As[hypervisorapi.VM](
			d.call(
				"POST", "/v1/vms", otherToken,
				object{"name": "other", "memory_mib": 64, "disk_gib": 1, "ttl_seconds": 3600},
			).Want(201),
		),
	)
	d.ahead(2 * time.Hour)
	// One more with a time to live has the daemon look at once.
	d.call(
		"POST", "/v1/vms", otherToken, object{"name": "more", "memory_mib": 64, "disk_gib": 1, "ttl_seconds": 3600},
	).Want(201)
	for _, vm := range []hypervisorapi.VM{vms[2], vms[0], vms[1]} {
		for deadline := time.Now().Add(time.Minute); d.call("GET", "/v1/vms/"+vm.Id, adminToken, nil).Status != 404; {
			if time.Now().After(deadline) {
				t.Fatalf("%s is still there", vm.Name)
			}
			time.Sleep(20 * time.Millisecond) // the daemon deletes it on its own
		}
	}
}

func TestATenantsWedgedOperationsLeaveWorkersToOthers(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	var held []string
	for _, name := range []string{"a", "b", "c", "d"} {
		vm := d.deaf(acmeToken, name, nil)
		d.wedge(vm)
		held = append(
			held, contracttest.As[hypervisorapi.Operation](d.call("POST", "/v1/vms/"+vm.Id+"/backups", acmeToken, nil).Want(202)).Id,
		)
	}
	other := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", otherToken, object{"name": "one", "disk_gib": 1}).Want(201))
	d.finished(d.call("POST", "/v1/vms/"+other.Id+"/backups", otherToken, nil))
	d.finished(
		d.call("POST", "/v1/images/catalog", adminToken, object{"name": "disk", "path": rawImage(t, "x", 1<<20)}),
	)
	running := 0
	for _, id := range held {
		if d.operation(id).State == "running" {
			running++
		}
	}
	if running > 2 {
		t.Errorf("%d operations of the tenant run at once", running)
	}
}
