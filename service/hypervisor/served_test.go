//go:build linux

package hypervisor_test

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// exported serves a file by NBD, and returns a connection to the server.
func exported(t *testing.T, file string) net.Conn {
	t.Helper()
	need(t, "qemu-nbd")
	dir, err := os.MkdirTemp("", "nbd") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("qemu-nbd", "--snapshot", "--format=raw", "--socket="+socket, file) //nolint:gosec // the test's own
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the server starts in its own time
	}
}

// serveDisk serves a file as the disk of a VM, until stop is called or the VM is done with it.
func (d *daemon) serveDisk(id, file string) (stop func()) {
	d.Helper()
	from := exported(d.T, file)
	conn := d.dialAs(adminToken, "/v1/vms/"+id+"/served-disk")
	ctx, cancel := context.WithCancel(d.Context())
	to := websocket.NetConn(ctx, conn, websocket.MessageBinary)
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	})
	work.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	return sync.OnceFunc(func() {
		cancel()
		_ = conn.CloseNow()
		work.Wait()
	})
}

func TestAGuestReadsAndWritesADiskThatAClientServes(t *testing.T) {
	t.Parallel()
	need(t, "mke2fs")
	d := start(t, "").withDemo()
	content := filepath.Join(t.TempDir(), "content")
	if err := os.Mkdir(content, 0o755); err != nil { //nolint:gosec // the test's own
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(content, "hello"), []byte("served\n"), 0o644); err != nil { //nolint:gosec // so
		t.Fatal(err)
	}
	raw := filepath.Join(t.TempDir(), "disk.raw")
	out, err := exec.CommandContext(t.Context(), "mke2fs", "-q", "-t", "ext4", "-d", content, raw, "64M").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "reader", "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "served_disk": true,
	}).Want(201))
	path := "/v1/vms/" + vm.Id
	if vm.ServedDisk == nil || !*vm.ServedDisk || vm.Backend != "qemu" {
		t.Errorf("%+v", vm)
	}
	d.call("POST", path+"/start", adminToken, nil).Refused(409, "disk_not_served", "")
	if got := d.vm(vm.Id); got.State != "stopped" || got.LastError != "" {
		t.Errorf("after a refused start: %+v", got)
	}
	for range 2 { // each start takes a socket of its own
		stop := d.serveDisk(vm.Id, raw)
		d.refusedSocket(path+"/served-disk", adminToken).Refused(409, "disk_served", "")
		d.call("POST", path+"/start", adminToken, nil).Want(200)
		d.connected(vm.Id)
		d.refusedSocket(path+"/served-disk", adminToken).Refused(409, "wrong_state", "")
		const read = "for d in /dev/vd?; do mkdir -p /mnt; mount -t ext4 -o ro $d /mnt 2>/dev/null && break; done; cat /mnt/hello"
		const write = "umount /mnt; mount -t ext4 $d /mnt; cp /mnt/hello /mnt/again; umount /mnt; mount -t ext4 $d /mnt; cat /mnt/again"
		if got := d.sh(vm.Id, read+";"+write); got != "served\nserved" {
			t.Errorf("what the guest wrote reads %q", got)
		}
		d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
		stop()
	}
}

func TestAMachineBootsADiskThatAClientServes(t *testing.T) {
	t.Parallel()
	disk := bootableDisk(t)
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "trial", "memory_mib": 256, "network": object{"mode": "none"}, "served_disk": true,
	}).Want(201))
	stop := d.serveDisk(vm.Id, disk)
	defer stop()
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	if got := d.sh(vm.Id, "ls /dev/vd?1 | wc -l"); got != "1" {
		t.Errorf("the guest has %s disks with a partition", got)
	}
}

func TestAGuestWhoseDiskIsNoLongerServedReadsErrors(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	raw := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(raw, []byte(strings.Repeat("data", 1<<18)), 0o600); err != nil {
		t.Fatal(err)
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "reader", "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "served_disk": true,
	}).Want(201))
	path := "/v1/vms/" + vm.Id
	stop := d.serveDisk(vm.Id, raw)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	stop()
	got := d.sh(vm.Id, "for d in /dev/vd?; do dd if=$d of=/dev/null bs=1M 2>/dev/null || echo broken; done; true")
	if got != "broken" {
		t.Errorf("%q", got)
	}
	// The VM and its folder can be removed while somebody waits to serve.
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	stop = d.serveDisk(vm.Id, raw)
	d.call("DELETE", path, adminToken, nil).Want(204)
	stop()
	d.refusedSocket(path+"/served-disk", adminToken).Refused(404, "not_found", "")
}

func TestADiskThatAClientServesIsNotAmongThoseThatAreKept(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "reader", "image": "demo", "memory_mib": 192, "disk_gib": 1, "network": object{"mode": "none"}, "served_disk": true,
	}).Want(201))
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/snapshots", adminToken, object{"name": "stopped"}).Want(201)
	raw := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(raw, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	defer d.serveDisk(vm.Id, raw)()
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	d.call("POST", path+"/snapshots", adminToken, object{"name": "running"}).Want(201)
	d.call("POST", path+"/snapshots", adminToken, object{"name": "full", "kind": "full"}).Want(201)
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("POST", path+"/snapshots/stopped/revert", adminToken, nil).Want(200)
}

func TestServedDisksAreRefusedWhereTheyCannotWork(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	spec := func(more object) object {
		out := object{"name": "reader", "image": "demo", "served_disk": true}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	d.call("POST", "/v1/vms", adminToken, spec(object{"start": true})).Refused(400, "invalid", "start")
	d.call("POST", "/v1/vms", adminToken, spec(object{"autostart": true})).Refused(400, "invalid", "autostart")
	d.call("POST", "/v1/vms", adminToken, spec(object{"backend": "firecracker"})).Refused(400, "invalid", "served_disk")
	plain := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{"name": "plain", "image": "demo"}).Want(201))
	d.refusedSocket("/v1/vms/"+plain.Id+"/served-disk", adminToken).Refused(409, "no_served_disk", "")
	mine := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, spec(nil)).Want(201))
	path := "/v1/vms/" + mine.Id + "/served-disk"
	d.refusedSocket(path, otherToken).Refused(404, "not_found", "")
	d.refusedSocket(path, "").Refused(401, "unauthenticated", "")
	d.call("GET", path, acmeToken, nil).Refused(426, "upgrade_required", "")
	_ = d.dialAs(acmeToken, path).CloseNow()
}
