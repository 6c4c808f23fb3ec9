//go:build linux

package hypervisor_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestAVMRunsFromADiskInCephAndLeavesNothingThere(t *testing.T) {
	t.Parallel()
	c := cephtest.Start(t)
	d := start(t, fmt.Sprintf("[storage]\nceph_pool = %q\nceph_conf = %q\n", c.Pool, c.Conf))
	guest := bootable(t)
	d.bootWithDisk("local") // which adds the image
	images := func() string {
		t.Helper()
		out, err := exec.CommandContext(
			t.Context(), "rbd", "-c", c.Conf, "ls", c.Pool,
		).Output() //nolint:gosec // the test's own
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, kind := range []string{"ceph-rbd", "ceph-rbd-in-place"} {
		vm := d.boot(kind, object{"image": "blank", "kernel": guest.Kernel, "initrd": guest.Initrd, "storage": kind})
		path := "/v1/vms/" + vm.Id
		d.sh(vm.Id, mounted+"; echo kept >/mnt/f; sync; umount /mnt")
		d.call("POST", path+"/backups", adminToken, nil).Refused(409, "disk_unsupported", "")
		d.call("POST", path+"/clone", adminToken, object{"name": "copy"}).Refused(409, "disk_unsupported", "")
		d.call("POST", path+"/snapshots", adminToken, object{"name": "s"}).Refused(409, "disk_unsupported", "")
		d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
		d.call("POST", path+"/start", adminToken, nil).Want(200)
		d.connected(vm.Id)
		if got := d.sh(vm.Id, mounted+"; cat /mnt/f; umount /mnt"); got != "kept" {
			t.Errorf("%s: %q", kind, got)
		}
		if contracttest.As[hypervisorapi.VM](d.call("GET", path, adminToken, nil).Want(200)).Storage != kind ||
			!strings.Contains(images(), vm.Id) {
			t.Errorf("%s: the pool has %s", kind, images())
		}
		d.call("DELETE", path, adminToken, nil).Want(204)
		if strings.Contains(images(), vm.Id) {
			t.Errorf("%s: the pool still has %s", kind, images())
		}
	}
}
