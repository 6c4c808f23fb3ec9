//go:build linux

package hypervisor_test

import (
	"os"
	"path/filepath"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// withEmptyDisk makes a VM that is not started.
func (d *daemon) withEmptyDisk(name string) hypervisorapi.VM {
	d.Helper()
	need(d.T, "qemu-system-x86_64", "qemu-img")
	return contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{"name": name, "disk_gib": 1}).Want(201))
}

// cancelled cancels an operation, which must not have begun.
func (d *daemon) cancelled(a answer) {
	d.Helper()
	op := contracttest.As[hypervisorapi.Operation](a.Want(202))
	if op = contracttest.As[hypervisorapi.Operation](
		d.call("POST", "/v1/operations/"+op.Id+"/cancel", adminToken, nil).Want(200),
	); op.State != "cancelled" {
		d.Fatalf("%s: %+v", a.What, op)
	}
}

func TestAnOperationThatIsCancelledBeforeItBeganLeavesNothing(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	path := "/v1/vms/" + d.withEmptyDisk("one").Id
	d.stop()
	d.idle()
	for range 2 { // the name is free again
		clone := d.call("POST", path+"/clone", adminToken, object{"name": "two"})
		d.cancelled(clone)
		d.call("GET", "/v1/vms/"+*contracttest.As[hypervisorapi.Operation](clone).VmId, adminToken, nil).Want(404)
	}
	d.cancelled(d.call("POST", "/v1/images/catalog/disk/upload", adminToken, make([]byte, 1<<20)))
	if left, err := os.ReadDir(filepath.Join(d.cfg.Data, "images", "incoming")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestACloneWhoseSourceIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	path := "/v1/vms/" + d.withEmptyDisk("one").Id
	d.stop()
	d.idle()
	clone := d.call("POST", path+"/clone", adminToken, object{"name": "two"})
	d.call("DELETE", path, adminToken, nil).Want(204)
	d.stop()
	d.run()
	d.failed(clone)
	d.call("GET", "/v1/vms/"+*contracttest.As[hypervisorapi.Operation](clone).VmId, adminToken, nil).Want(404)
}

func TestABackupThatAnOperationTakesCannotBeRemoved(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	path := "/v1/vms/" + d.withEmptyDisk("one").Id
	backup := "/v1/backups/" + *d.finished(d.call("POST", path+"/backups", adminToken, nil)).BackupId
	d.stop()
	d.idle()
	incremental := d.call("POST", path+"/backups", adminToken, object{"kind": "incremental"})
	d.call("DELETE", backup, adminToken, nil).Refused(409, "backup_in_use", "")
	d.cancelled(incremental)
	restore := d.call("POST", backup+"/restore", adminToken, object{"name": "two"})
	d.call("DELETE", backup, adminToken, nil).Refused(409, "backup_in_use", "")
	d.cancelled(restore)
	d.call("DELETE", backup, adminToken, nil).Want(204)
}

func TestARequestThatIsRepeatedWithItsKeyBeginsOneOperation(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	path := "/v1/vms/" + d.withEmptyDisk("one").Id
	d.stop()
	d.idle()
	clone := func(key, name string) answer {
		return d.callWith(key, "POST", path+"/clone", adminToken, object{"name": name})
	}
	first := clone("a key", "two")
	op := contracttest.As[hypervisorapi.Operation](first.Want(202))
	if op.Actor == nil || *op.Actor != "admin" {
		t.Errorf("begun by %v", op.Actor)
	}
	if again := contracttest.As[hypervisorapi.Operation](clone("a key", "two").Want(202)); again.Id != op.Id {
		t.Errorf("repeated: %+v", again)
	}
	clone("a key", "three").Refused(409, "idempotency_key_reused", "")
	clone("another key", "two").Refused(409, "name_taken", "")
	clone("", "two").Refused(409, "name_taken", "")
	d.callWith("a key", "POST", path+"/backups", adminToken, nil).Refused(409, "idempotency_key_reused", "")
	d.cancelled(first)
	again := contracttest.As[hypervisorapi.Operation](clone("a key", "two").Want(202))
	if again.Id != op.Id || again.State != "cancelled" {
		t.Errorf("repeated after its end: %+v", again)
	}
	if all := contracttest.As[[]hypervisorapi.Operation](d.call("GET", "/v1/operations", adminToken, nil).Want(200)); len(all) != 1 {
		t.Errorf("%d operations", len(all))
	}
}

func TestOfTwoRequestsWithOneKeyAtOnceNoneIsRefusedForWhatTheOtherTook(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}},
		).Want(201),
	)
	answers := make(chan answer, 8)
	for range cap(answers) {
		go func() {
			answers <- d.callWith("a key", "POST", "/v1/vms/"+vm.Id+"/clone", adminToken, object{"name": "two"})
		}()
	}
	begun := map[string]bool{}
	for range cap(answers) {
		a := <-answers
		if a.Status == 202 {
			begun[contracttest.As[hypervisorapi.Operation](a).Id] = true
		} else {
			a.Refused(409, "idempotency_key_in_use", "")
		}
	}
	if len(begun) != 1 {
		t.Errorf("%d operations were begun, want 1", len(begun))
	}
}
