//go:build linux

package hypervisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
)

// biosAt returns a file with a BIOS that a VM takes for firmware with variables, so that it gets a PC as its
// board and still boots its kernel within seconds.
func biosAt(t *testing.T) string {
	t.Helper()
	bios, err := os.ReadFile("/usr/share/seabios/bios-256k.bin")
	if err != nil {
		require.Missing(t, "seabios is not installed: %v", err)
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{"BIOS_CODE.fd": bios, "BIOS_VARS.fd": make([]byte, 64<<10)} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "BIOS_CODE.fd")
}

// pcSecret is the secret of the agents of PCs.
const pcSecret = "a-secret-of-the-tests-0001"

// pc makes a VM of the demonstration's guest with a PC as its board. The guest's kernel does not know the drive
// with the seed, so the secret of its agent is on a disk beside the system disk.
func (d *daemon) pc(name string, more object) hypervisorapi.VM {
	d.Helper()
	d.withDemo()
	iso := filepath.Join(d.TempDir(), "seed.iso")
	if err := seed.Write(iso, seed.Content{InstanceID: "pc", Secret: pcSecret}); err != nil {
		d.Fatal(err)
	}
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "seed", "path": iso}))
	spec := object{
		"name": name, "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "firmware": biosAt(d.T),
		"agent": object{"token": pcSecret},
	}
	for k, v := range more {
		spec[k] = v
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, spec).Want(201))
	d.call("POST", "/v1/vms/"+vm.Id+"/disks", adminToken, object{"name": "seed", "image": "seed", "read_only": true}).Want(201)
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	return d.vm(vm.Id)
}

// disks returns the names and states of a VM's disks.
func (d *daemon) disks(id string) (found []string) {
	d.Helper()
	for _, one := range contracttest.As[[]hypervisorapi.Disk](d.call("GET", "/v1/vms/"+id+"/disks", adminToken, nil).Want(200)) {
		found = append(found, one.Name+" "+string(one.State))
	}
	return found
}

func (d *daemon) wantDisks(id string, want ...string) {
	d.Helper()
	if got := d.disks(id); !slices.Equal(got, want) {
		d.Errorf("the VM has the disks %q, want %q", got, want)
	}
}

// diskFiles returns the files of a VM's disks beside the system disk.
func (d *daemon) diskFiles(id string) []string {
	d.Helper()
	found, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", id, "data-*.qcow2"))
	if err != nil {
		d.Fatal(err)
	}
	return found
}

// bySerial is the part of a script that sets disk to the device with a serial number. The guest notices a new
// disk in its own time.
func bySerial(serial string) string {
	return `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do for b in /sys/block/vd*; do
		if [ "$(cat $b/serial)" = ` + serial + ` ]; then disk=/dev/${b##*/}; break 2; fi
	done; sleep 1; done; [ -n "$disk" ]; `
}

// serials is a script that prints the serial numbers that a guest sees.
const serials = `for b in /sys/block/vd*; do echo $(cat $b/serial); done`

// writing and reading are scripts that write a line to the disk with a serial number, and read it.
func writing(serial, line string) string { return bySerial(serial) + "echo " + line + " >$disk; sync" }

func reading(serial string) string { return bySerial(serial) + "head -n 1 $disk" }

func TestADiskIsPluggedIntoARunningGuestAndKeepsItsData(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	vm := d.pc("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	made := contracttest.As[hypervisorapi.Disk](d.call("POST", path+"/disks", adminToken, object{
		"name": "data", "size_gib": 1, "serial": "DATA_1", "iops": 5000, "bytes_per_second": 100_000_000,
	}).Want(201))
	if made.State != "attached" || made.Serial != "DATA_1" || made.SizeGib != 1 || made.Iops != 5000 {
		t.Errorf("%+v", made)
	}
	if now := d.vm(vm.Id); len(now.Pending) != 0 || now.Running != nil || len(now.Disks) != 2 {
		t.Errorf("%+v", now)
	}
	d.sh(vm.Id, writing("DATA_1", "kept"))
	if got := d.sh(vm.Id, bySerial("seed")+"echo x 2>/dev/null >$disk || echo refused"); got != "refused" {
		t.Errorf("a write to a read-only disk: %q", got)
	}
	// A guest that uses the disk keeps it, and so does one that is paused.
	d.call("POST", path+"/pause", adminToken, nil).Want(200)
	d.call("DELETE", path+"/disks/data", adminToken, nil).Refused(409, "wrong_state", "")
	d.call("POST", path+"/resume", adminToken, nil).Want(200)
	grown := contracttest.As[hypervisorapi.Disk](d.call("PATCH", path+"/disks/data", adminToken, object{"size_gib": 2, "iops": 0}).Want(200))
	if got := d.sh(vm.Id, bySerial("DATA_1")+"cat /sys/block/${disk#/dev/}/size"); grown.SizeGib != 2 || grown.Iops != 0 || got != "4194304" {
		t.Errorf("%+v; the guest sees %s sectors", grown, got)
	}
	kill := d.mortal()
	d.connected(vm.Id)
	d.wantDisks(vm.Id, "system attached", "seed attached", "data attached")
	kill()
	d.run()
	d.connected(vm.Id)
	if got := d.sh(vm.Id, reading("DATA_1")); got != "kept" {
		t.Errorf("after kill -9: %q", got)
	}
	d.call("POST", path+"/restart", adminToken, object{"force": true}).Want(200)
	d.connected(vm.Id)
	if got := d.sh(vm.Id, reading("DATA_1")); got != "kept" {
		t.Errorf("after a restart: %q", got)
	}
	d.call("DELETE", path+"/disks/data", adminToken, nil).Want(200)
	if got := d.sh(vm.Id, serials); strings.Contains(got, "DATA_1") || len(d.diskFiles(vm.Id)) != 1 {
		t.Errorf("the guest has %q; files: %v", got, d.diskFiles(vm.Id))
	}
	// The port is free again; all ports can be used, and no more.
	for i := range 7 {
		d.call("POST", path+"/disks", adminToken, object{"name": fmt.Sprint("d", i), "size_gib": 1}).Want(201)
	}
	d.call("POST", path+"/disks", adminToken, object{"name": "more", "size_gib": 1}).Refused(409, "too_many_disks", "")
	for i := range 7 {
		d.sh(vm.Id, writing(fmt.Sprint("d", i), "full"))
	}
	d.call("DELETE", path, adminToken, nil).Want(204)
	if left := d.diskFiles(vm.Id); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
