//go:build linux

package hypervisor_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// transfer opens a transfer of a VM's disk.
func (d *daemon) transfer(vm string, spec object) hypervisorapi.Transfer {
	d.Helper()
	return contracttest.As[hypervisorapi.Transfer](d.call("POST", "/v1/vms/"+vm+"/transfers", adminToken, spec).Want(201))
}

// readInto reads what a transfer says is to be read, in two pages, and returns how much that was.
func (d *daemon) readInto(t hypervisorapi.Transfer, disk []byte) (total int64) {
	d.Helper()
	path := "/v1/transfers/" + t.Id
	for from := int64(0); ; {
		page := contracttest.As[[]hypervisorapi.Range](
			d.call("GET", fmt.Sprintf("%s/ranges?limit=3&from=%d", path, from), adminToken, nil).Want(200),
		)
		for _, r := range page {
			for at := r.Offset; at < r.Offset+r.Length; {
				n := min(r.Offset+r.Length-at, 8<<20)
				a := d.call("GET", fmt.Sprintf("%s/data?offset=%d&length=%d", path, at, n), adminToken, nil).Want(200)
				if int64(copy(disk[at:], a.Body)) != n {
					d.Fatalf("%d bytes instead of %d", len(a.Body), n)
				}
				at, total = at+n, total+n
			}
			from = r.Offset + r.Length
		}
		if len(page) < 3 {
			return total
		}
	}
}

// content returns what is in the disk of a stopped VM.
func (d *daemon) content(vm string) []byte {
	d.Helper()
	raw := filepath.Join(d.TempDir(), "disk.raw")
	disk := filepath.Join(d.cfg.Data, "vms", vm, "disk.qcow2")
	out, err := exec.CommandContext(d.Context(), "qemu-img", "convert", "-O", "raw", disk, raw).CombinedOutput()
	if err != nil {
		d.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(raw) //nolint:gosec // the test's own
	if err != nil {
		d.Fatal(err)
	}
	return content
}

func (d *daemon) halt(vm string) {
	d.Helper()
	d.call("POST", "/v1/vms/"+vm+"/stop", adminToken, object{"force": true}).Want(200)
}

// unended reports whether the host has a file that only exists during a transfer.
func (d *daemon) unended(vm string) bool {
	_, err := os.Lstat(filepath.Join(d.cfg.Data, "vms", vm, "scratch.qcow2"))
	return err == nil
}

func TestATransferReadsTheDiskAsOfOneMomentAndTheNextOneWhatChanged(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.bootWithDisk("one")
	d.sh(vm.Id, mounted+"; dd if=/dev/urandom of=/mnt/f bs=1M count=8 2>/dev/null; sync")

	first := d.transfer(vm.Id, object{"direction": "read", "consumer": "test"})
	if first.Changed || first.Consistency != "filesystem" || first.Checkpoint == nil || first.SizeBytes != 128<<20 {
		t.Errorf("%+v", first)
	}
	d.sh(vm.Id, "dd if=/dev/urandom of=/mnt/f conv=notrunc bs=1M count=4 2>/dev/null; sync")
	disk := make([]byte, first.SizeBytes)
	if total := d.readInto(first, disk); total < 8<<20 {
		t.Errorf("read %d bytes", total)
	}
	d.sh(vm.Id, "dd if=/dev/urandom of=/mnt/f conv=notrunc bs=1M count=8 2>/dev/null; sync")
	again := make([]byte, first.SizeBytes)
	d.readInto(first, again)
	if !bytes.Equal(disk, again) {
		t.Fatal("what a transfer reads changes while the guest writes")
	}
	d.call("POST", "/v1/transfers/"+first.Id+"/finish", adminToken, nil).Want(200)
	d.call("GET", "/v1/transfers/"+first.Id, adminToken, nil).Refused(409, "transfer_over", "")
	if d.unended(vm.Id) {
		t.Error("the file for what the guest overwrites is still there")
	}

	// A transfer that is aborted changes nothing: the next one reads what changed since the first.
	lost := d.transfer(vm.Id, object{"direction": "read", "consumer": "test", "since": *first.Checkpoint})
	d.call("DELETE", "/v1/transfers/"+lost.Id, adminToken, nil).Want(204)
	d.call("DELETE", "/v1/transfers/"+lost.Id, adminToken, nil).Want(204)
	// Another consumer has checkpoints of its own.
	other := d.transfer(vm.Id, object{"direction": "read", "consumer": "other", "since": *first.Checkpoint})
	d.call("POST", "/v1/transfers/"+other.Id+"/finish", adminToken, nil).Want(200)
	if other.Changed {
		t.Error("a consumer uses the checkpoint of another")
	}

	d.sh(vm.Id, "echo more >/mnt/g; sync; umount /mnt")
	second := d.transfer(vm.Id, object{"direction": "read", "consumer": "test", "since": *first.Checkpoint})
	if !second.Changed {
		t.Fatalf("%+v", second)
	}
	if total := d.readInto(second, disk); total < 8<<20 || total > 48<<20 {
		t.Errorf("after writing 8 MiB, %d bytes have changed", total)
	}
	d.call("POST", "/v1/transfers/"+second.Id+"/finish", adminToken, nil).Want(200)
	d.halt(vm.Id)
	if !bytes.Equal(disk, d.content(vm.Id)) {
		t.Fatal("what was read is not what the disk holds")
	}

	// The bitmap outlives the process. A stopped VM can be read, too.
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	d.sh(vm.Id, mounted+"; echo third >/mnt/h; sync; umount /mnt")
	d.halt(vm.Id)
	third := d.transfer(vm.Id, object{"direction": "read", "consumer": "test", "since": *second.Checkpoint})
	if !third.Changed || third.Consistency != "stopped" {
		t.Errorf("%+v", third)
	}
	if total := d.readInto(third, disk); total == 0 || total > 32<<20 {
		t.Errorf("%d bytes have changed", total)
	}
	d.call("POST", "/v1/transfers/"+third.Id+"/finish", adminToken, nil).Want(200)
	if !bytes.Equal(disk, d.content(vm.Id)) {
		t.Fatal("what was read is not what the disk holds")
	}
	// If the disk has lost the checkpoint, everything is read.
	if late := d.transfer(
		vm.Id, object{"direction": "read", "consumer": "test", "since": *first.Checkpoint},
	); late.Changed {
		t.Error("a checkpoint that was replaced still counts")
	}
}

func TestATransferGivesWayAndEndsWithTheDaemon(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.bootWithDisk("one")
	path := "/v1/vms/" + vm.Id
	read := object{"direction": "read", "consumer": "test"}
	first := d.transfer(vm.Id, read)
	d.call("POST", "/v1/transfers/"+first.Id+"/finish", adminToken, nil).Want(200)

	read["since"] = *first.Checkpoint
	open := d.transfer(vm.Id, read)
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1"}).Want(201)
	d.call("GET", "/v1/transfers/"+open.Id+"/ranges", adminToken, nil).Refused(409, "transfer_over", "")
	open = d.transfer(vm.Id, read)
	if !open.Changed || d.transfer(vm.Id, read).Id == open.Id {
		t.Error("a second transfer of a disk does not take the place of the first")
	}
	d.call("GET", fmt.Sprintf("/v1/transfers/%s/data?offset=0&length=512", open.Id), adminToken, nil).
		Refused(409, "transfer_over", "")

	// A daemon that is killed leaves a disk that the next one tidies up.
	kill := d.mortal()
	d.connected(vm.Id)
	open = d.transfer(vm.Id, read)
	if !open.Changed || !d.unended(vm.Id) {
		t.Errorf("%+v", open)
	}
	kill()
	d.run()
	d.connected(vm.Id)
	d.call("GET", "/v1/transfers/"+open.Id, adminToken, nil).Refused(404, "not_found", "")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s2"}).Want(201)
	if d.unended(vm.Id) {
		t.Error("the remains of a transfer were not removed")
	}
	if open = d.transfer(vm.Id, read); !open.Changed {
		t.Error("the checkpoint is lost")
	}
	d.halt(vm.Id)
	d.over(open)

	d.call("POST", path+"/start", adminToken, nil).Want(200)
	open = d.transfer(vm.Id, read)
	d.call("DELETE", path, adminToken, nil).Want(204)
	d.over(open)
}

// over waits until a transfer is over, which it is soon after its VM has ended.
func (d *daemon) over(t hypervisorapi.Transfer) {
	d.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		a := d.call("GET", "/v1/transfers/"+t.Id, adminToken, nil)
		if a.Status == 409 {
			a.Refused(409, "transfer_over", "")
			return
		}
		if time.Now().After(end) {
			d.Fatalf("the transfer is still open: %s", a.Body)
		}
	}
}

func TestATransferThatWritesReplacesTheDiskOnceItIsFinished(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	need(t, "qemu-system-x86_64", "qemu-img")
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	path := "/v1/vms/" + vm.Id + "/transfers"
	want := make([]byte, 64<<20)
	source := rand.NewChaCha8([32]byte{7})
	_, _ = source.Read(want[8<<20 : 24<<20])
	write := func(t hypervisorapi.Transfer) {
		for at := 8 << 20; at < 24<<20; at += 8 << 20 {
			d.call("PUT", fmt.Sprintf("/v1/transfers/%s/data?offset=%d", t.Id, at), adminToken, want[at:at+8<<20]).Want(204)
		}
	}
	spec := object{"direction": "write", "size_bytes": len(want)}
	open := d.transfer(vm.Id, spec)
	write(open)
	data := "/v1/transfers/" + open.Id + "/data"
	d.call("PUT", data+fmt.Sprintf("?offset=%d", 64<<20-100), adminToken, want[:512]).Refused(400, "invalid", "offset")
	d.call("PUT", data+"?offset=-1", adminToken, want[:512]).Refused(400, "invalid", "offset")
	d.call("PUT", data+"?offset=0", adminToken, make([]byte, 8<<20+1)).Refused(400, "invalid", "body")
	d.call("PUT", data+"?offset=0", adminToken, []byte{}).Refused(400, "invalid", "body")
	d.call("DELETE", "/v1/transfers/"+open.Id, adminToken, nil).Want(204)
	if got := d.content(vm.Id); len(got) != 1<<30 || bytes.ContainsFunc(got[:64<<20], func(r rune) bool { return r != 0 }) {
		t.Error("an aborted transfer has changed the disk")
	}

	open = d.transfer(vm.Id, spec)
	write(open)
	d.call("POST", "/v1/transfers/"+open.Id+"/finish", adminToken, nil).Want(200)
	if !bytes.Equal(d.content(vm.Id), want) {
		t.Error("the disk is not what was written")
	}
	if got := d.vm(vm.Id); got.DiskGib != 1 {
		t.Errorf("%+v", got)
	}
	events := d.call("GET", "/v1/vms/"+vm.Id+"/events?limit=5", adminToken, nil).Want(200)
	if !strings.Contains(events.Body, "the disk was written by") {
		t.Error(events.Body)
	}

	read := d.transfer(vm.Id, object{"direction": "read"})
	got := make([]byte, read.SizeBytes)
	if total := d.readInto(read, got); !bytes.Equal(got, want) || total > 20<<20 {
		t.Errorf("read %d bytes", total)
	}
	d.call("PUT", "/v1/transfers/"+read.Id+"/data?offset=0", adminToken, want[:512]).Refused(409, "transfer_reads", "")

	for _, bad := range []struct {
		spec  object
		field string
	}{
		{object{"direction": "write", "consumer": "x"}, "consumer"},
		{object{"direction": "read", "since": "x"}, "since"},
		{object{"direction": "both"}, "direction"},
		{object{"direction": "write", "size_bytes": 1<<20 + 1}, "size_bytes"},
	} {
		d.call("POST", path, adminToken, bad.spec).Refused(400, "invalid", bad.field)
	}
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200)
	d.call("POST", path, adminToken, object{"direction": "write"}).Refused(409, "wrong_state", "")
	d.halt(vm.Id)
	d.call("POST", "/v1/vms/"+vm.Id+"/snapshots", adminToken, object{"name": "s1"}).Want(201)
	d.call("POST", path, adminToken, object{"direction": "write"}).Refused(409, "has_snapshots", "")
}

func TestADaemonThatIsKilledDuringATransferOfAStoppedVMLeavesItUsable(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "one", "image": "demo", "memory_mib": 192, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	for _, direction := range []string{"read", "write"} {
		kill := d.mortal()
		open := d.transfer(vm.Id, object{"direction": direction})
		if direction == "write" {
			d.call("PUT", "/v1/transfers/"+open.Id+"/data?offset=0", adminToken, make([]byte, 4096)).Want(204)
		}
		kill()
		d.run()
		d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200)
		d.connected(vm.Id)
		d.halt(vm.Id)
	}
	left, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", vm.Id, "copy*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the VM's folder: %v %v", left, err)
	}
}

func TestAConsumerThatIsOneTooManyTakesThePlaceOfTheOldest(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	need(t, "qemu-system-x86_64", "qemu-img")
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	checkpoints := map[int]string{}
	for n := range 10 {
		read := d.transfer(vm.Id, object{"direction": "read", "consumer": fmt.Sprintf("consumer-%d", n)})
		d.call("POST", "/v1/transfers/"+read.Id+"/finish", adminToken, nil).Want(200)
		checkpoints[n] = *read.Checkpoint
	}
	for n := 9; n >= 0; n-- { // the newest first, since each of the lost ones takes another's place
		read := d.transfer(vm.Id, object{
			"direction": "read", "consumer": fmt.Sprintf("consumer-%d", n), "since": checkpoints[n],
		})
		d.call("DELETE", "/v1/transfers/"+read.Id, adminToken, nil).Want(204)
		if read.Changed != (n >= 2) {
			t.Errorf("consumer %d: %v", n, read.Changed)
		}
	}
}

func TestATransferBelongsToItsTenant(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	need(t, "qemu-system-x86_64", "qemu-img")
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	open := "/v1/transfers/" + d.transfer(vm.Id, object{"direction": "read"}).Id
	d.call("POST", "/v1/vms/"+vm.Id+"/transfers", acmeToken, object{"direction": "read"}).Refused(404, "not_found", "")
	d.call("GET", open, acmeToken, nil).Refused(404, "not_found", "")
	d.call("GET", open+"/ranges", acmeToken, nil).Refused(404, "not_found", "")
	d.call("GET", open+"/data?offset=0&length=512", acmeToken, nil).Refused(404, "not_found", "")
	d.call("PUT", open+"/data?offset=0", acmeToken, make([]byte, 512)).Refused(404, "not_found", "")
	d.call("POST", open+"/finish", acmeToken, nil).Refused(404, "not_found", "")
	d.call("DELETE", open, acmeToken, nil).Refused(404, "not_found", "")
	d.call("GET", open, adminToken, nil).Want(200)
}
