//go:build linux

package hypervisor_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// bootableCD is a CD that prints a text to the serial console when a BIOS boots it (El Torito).
func bootableCD(t *testing.T, text string) string {
	t.Helper()
	const sector = 2048
	cd := make([]byte, 32*sector)
	copy(cd[17*sector:], "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(cd[17*sector+0x47:], 19)
	catalog := cd[19*sector:]
	catalog[0], catalog[0x1e], catalog[0x1f] = 1, 0x55, 0xaa
	catalog[0x20], catalog[0x26], catalog[0x28] = 0x88, 4, 20 // bootable, 4 sectors of 512 bytes, from sector 20
	copy(cd[20*sector:], "\x0e\x1f"+                          // push cs; pop ds
		"\xbe\x14\x7c"+ // mov si, 0x7c14
		"\xba\xf8\x03"+ // mov dx, 0x3f8
		"\xac\x84\xc0\x74\x03\xee\xeb\xf8"+ // lodsb; test al, al; jz +3; out dx, al; jmp -8
		"\xf4\xeb\xfd\x90"+ // hlt; jmp -3
		text+"\n\x00")
	path := filepath.Join(t.TempDir(), "cd.iso")
	if err := os.WriteFile(path, cd, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFirmwareBootsTheCDOfAnEmptyDiskAndSeesTheNextOne(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument)
	for _, name := range []string{"first", "second"} {
		d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": name, "path": bootableCD(t, "booted the "+name)}))
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	path := "/v1/vms/" + vm.Id
	inserted := contracttest.As[hypervisorapi.VM](d.call("PUT", path+"/cd", acmeToken, object{"image": "first"}).Want(200))
	if inserted.Cd == nil || inserted.Cd.Image != "first" || len(inserted.Pending) != 0 {
		t.Errorf("%+v", inserted)
	}
	d.call("POST", path+"/start", acmeToken, nil).Want(200)
	ticket := contracttest.As[hypervisorapi.Ticket](d.call("POST", path+"/tickets", adminToken, nil).Want(201)).Ticket
	console := d.dial(path + "/console?ticket=" + ticket)
	defer func() { _ = console.CloseNow() }()
	var printed bytes.Buffer
	await := func(text string) {
		t.Helper()
		for !strings.Contains(printed.String(), text) {
			printed.Write(socketReader{t, console}.read())
		}
	}
	await("booted the first")
	_ = console.CloseNow()
	// What is in a drive stays on the host, whatever becomes of its name.
	d.call("DELETE", "/v1/images/catalog/first", adminToken, nil).Want(204)
	d.call("POST", "/v1/images/clean", adminToken, nil).Want(200)
	d.call("POST", path+"/restart", acmeToken, object{"force": true}).Want(200)
	ticket = contracttest.As[hypervisorapi.Ticket](d.call("POST", path+"/tickets", adminToken, nil).Want(201)).Ticket
	again := d.dial(path + "/console?ticket=" + ticket)
	defer func() { _ = again.CloseNow() }()
	console, printed = again, bytes.Buffer{}
	await("booted the first")
	// Changed while the VM runs.
	changed := contracttest.As[hypervisorapi.VM](d.call("PUT", path+"/cd", acmeToken, object{"image": "second"}).Want(200))
	if len(changed.Pending) != 0 || changed.Cd.Image != "second" {
		t.Errorf("%+v", changed)
	}
	d.call("POST", path+"/reset", acmeToken, nil).Want(200)
	await("booted the second")
	for range 2 {
		if ejected := contracttest.As[hypervisorapi.VM](d.call("DELETE", path+"/cd", acmeToken, nil).Want(200)); ejected.Cd != nil {
			t.Errorf("%+v", ejected)
		}
	}
	if cleaned := contracttest.As[hypervisorapi.Cleaned](d.call("POST", "/v1/images/clean", adminToken, nil).Want(200)); cleaned.Files == 0 {
		t.Error("the CD that is in no drive any more is still on the host")
	}
	d.call("PUT", path+"/cd", acmeToken, object{"image": "first"}).Refused(400, "invalid", "image")
}

func TestAMachineWithoutPortsGetsItsDisksAndItsCDAtTheNextStart(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	cd := rawImage(t, "the CD\n", 1<<20)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "iso", "path": cd}))
	vm := d.boot("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	for i := range 8 {
		made := contracttest.As[hypervisorapi.Disk](d.call("POST", path+"/disks", adminToken, object{
			"name": fmt.Sprint("d", i), "size_gib": 1,
		}).Want(201))
		if made.State != "pending" {
			t.Errorf("%+v", made)
		}
	}
	if now := contracttest.As[hypervisorapi.VM](d.call("PUT", path+"/cd", adminToken, object{"image": "iso"}).Want(200)); !slices.Equal(now.Pending, []string{"disks", "cd"}) {
		t.Errorf("pending: %v", now.Pending)
	}
	// What waits can be withdrawn, and no snapshot leaves it out.
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s"}).Refused(409, "disks_pending", "")
	d.call("DELETE", path+"/disks/d7", adminToken, nil).Want(200)
	d.call("POST", path+"/restart", adminToken, object{"force": true}).Want(200)
	d.connected(vm.Id)
	if now := d.vm(vm.Id); len(now.Pending) != 0 {
		t.Errorf("pending after a restart: %v", now.Pending)
	}
	for i := range 7 {
		d.sh(vm.Id, writing(fmt.Sprint("d", i), "full"))
	}
	if got := d.sh(vm.Id, `for b in /dev/vd?; do head -c 7 $b | grep -a "the CD" || true; done`); got != "the CD" {
		t.Errorf("%q", got)
	}
	// A disk that is removed stays with the process, also after kill -9, and is gone with it.
	removed := contracttest.As[hypervisorapi.VM](d.call("DELETE", path+"/disks/d0", adminToken, nil).Want(200))
	if !slices.Equal(removed.Pending, []string{"disks"}) || removed.Disks[0].State != "removing" {
		t.Errorf("%+v", removed)
	}
	kill := d.mortal()
	d.connected(vm.Id)
	kill()
	d.run()
	d.connected(vm.Id)
	if got := d.sh(vm.Id, reading("d0")); got != "full" || len(d.diskFiles(vm.Id)) != 7 {
		t.Errorf("%q, %v", got, d.diskFiles(vm.Id))
	}
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	deadline := time.Now().Add(time.Minute)
	for len(d.diskFiles(vm.Id)) != 6 || len(d.vm(vm.Id).Disks) != 6 {
		if time.Now().After(deadline) {
			t.Fatalf("%v, %+v", d.diskFiles(vm.Id), d.vm(vm.Id).Disks)
		}
		time.Sleep(20 * time.Millisecond) // it is removed in the background
	}
}

func TestASnapshotHoldsAllDisksOfTheSameMoment(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	vm := d.pc("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	add := func(name string) {
		d.call("POST", path+"/disks", adminToken, object{"name": name, "size_gib": 1}).Want(201)
	}
	add("a")
	add("b")
	write := func(text string) {
		d.sh(vm.Id, writing("a", text)+"; "+writing("b", text)+"; echo "+text+" >/dev/vda; sync")
	}
	read := func() string { return d.sh(vm.Id, reading("a")+"; "+reading("b")+"; head -n 1 /dev/vda") }
	write("disk")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "disk"}).Want(201)
	write("later")
	d.call("PATCH", path+"/disks/a", adminToken, object{"size_gib": 3}).Want(200)
	d.call("DELETE", path+"/disks/a", adminToken, nil).Refused(409, "has_snapshots", "")
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	add("c")
	d.call("POST", path+"/snapshots/disk/revert", adminToken, nil).Refused(409, "disks_changed", "")
	d.call("DELETE", path+"/disks/c", adminToken, nil).Want(200)
	d.call("POST", path+"/snapshots/disk/revert", adminToken, nil).Want(200)
	if a := contracttest.As[hypervisorapi.Disk](d.call("GET", path+"/disks/a", adminToken, nil).Want(200)); a.SizeGib != 1 {
		t.Errorf("%+v", a)
	}
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	if got := read(); got != "disk\ndisk\ndisk" {
		t.Errorf("after the revert to disk: %q", got)
	}
	write("full")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "full", "kind": "full"}).Want(201)
	write("later")
	d.call("PATCH", path+"/disks/a", adminToken, object{"size_gib": 3}).Want(200)
	add("c")
	d.call("POST", path+"/snapshots/full/revert", adminToken, nil).Refused(409, "hardware_changed", "")
	d.call("DELETE", path+"/disks/c", adminToken, nil).Want(200)
	d.call("POST", path+"/snapshots/full/revert", adminToken, nil).Want(200)
	d.connected(vm.Id)
	if got := read(); got != "full\nfull\nfull" {
		t.Errorf("after the revert to full: %q", got)
	}
	for _, name := range []string{"disk", "full"} {
		d.call("DELETE", path+"/snapshots/"+name, adminToken, nil).Want(204)
	}
	for _, file := range d.diskFiles(vm.Id) {
		if left := innerSnapshots(t, file); len(left) != 0 {
			t.Errorf("%s holds the snapshots %v", file, left)
		}
	}
	d.call("DELETE", path+"/disks/a", adminToken, nil).Want(200)
	// What takes the system disk alone says so, or refuses.
	backup := d.finished(d.call("POST", path+"/backups", adminToken, nil))
	if b := contracttest.As[hypervisorapi.Backup](d.call("GET", "/v1/backups/"+*backup.BackupId, adminToken, nil).Want(200)); !slices.Equal(b.LeftOut, []string{"seed", "b"}) {
		t.Errorf("left out: %v", b.LeftOut)
	}
	d.call("POST", path+"/clone", adminToken, object{"name": "two"}).Refused(409, "has_disks", "")
}

func TestAKilledDaemonLeavesADiskOrNone(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	vm := d.pc("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	acknowledged := []string{"seed"}
	for round := range 8 {
		kill := d.mortal()
		d.connected(vm.Id)
		var done sync.WaitGroup
		name := fmt.Sprint("k", round)
		body := fmt.Sprintf(`{"name":%q,"size_gib":1}`, name)
		method, at := "POST", d.url+path+"/disks"
		if round%2 == 1 && len(acknowledged) > 1 {
			method, at, body = "DELETE", d.url+path+"/disks/"+acknowledged[1], ""
		}
		var status int
		done.Go(func() {
			req, err := http.NewRequest(method, at, strings.NewReader(body))
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer "+adminToken)
			req.Header.Set("Content-Type", "application/json")
			if res, err := http.DefaultClient.Do(req); err == nil {
				status = res.StatusCode
				_ = res.Body.Close()
			}
		})
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) // a random moment of that
		kill()
		done.Wait()
		d.run()
		d.connected(vm.Id)
		switch status {
		case 201:
			acknowledged = append(acknowledged, name)
		case 200:
			acknowledged = slices.Delete(acknowledged, 1, 2)
		}
		// What was not acknowledged is there or not, but not in part.
		deadline := time.Now().Add(time.Minute)
		for {
			var names []string
			for _, one := range d.vm(vm.Id).Disks {
				if one.State == "attached" {
					names = append(names, one.Name)
				}
			}
			seen := strings.Fields(d.sh(vm.Id, serials))
			slices.Sort(seen)
			slices.Sort(names)
			if slices.Equal(seen, names) && len(d.diskFiles(vm.Id)) == len(names) {
				if missing := slices.DeleteFunc(slices.Clone(acknowledged), func(n string) bool {
					return slices.Contains(names, n) || method == "DELETE" && status == 0
				}); len(missing) > 0 {
					t.Errorf("%s was killed: lost %v of %v", method, missing, names)
				}
				acknowledged = append([]string{"seed"}, slices.DeleteFunc(names, func(n string) bool { return n == "seed" })...)
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s was killed: listed %v, the guest sees %v, files %v", method, names, seen, d.diskFiles(vm.Id))
			}
			time.Sleep(50 * time.Millisecond) // it is settled in the background
		}
	}
}

func TestDisksAreRefusedThatCannotBe(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument+"[policy]\nmax_disk_gib = 4\n")
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{"name": "one", "disk_gib": 1}).Want(201))
	path := "/v1/vms/" + vm.Id + "/disks"
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "large", "path": rawImage(t, "x", 2<<30)}))
	for field, wrong := range map[string][]object{
		"name": {
			{"name": "a/b", "size_gib": 1}, {"name": strings.Repeat("n", 10_000), "size_gib": 1}, {"name": "", "size_gib": 1},
			{"name": "..", "size_gib": 1}, {"name": "a,b", "size_gib": 1}, {"name": "system", "size_gib": 1},
		},
		"size_gib": {
			{"name": "d", "size_gib": 0}, {"name": "d", "size_gib": -1}, {"name": "d", "size_gib": int64(1) << 62}, {"name": "d"},
			{"name": "d", "size_gib": 1, "image": "large"},
		},
		"image":            {{"name": "d", "image": "none"}, {"name": "d", "image": "/etc/passwd"}, {"name": "d", "image": "../x"}},
		"serial":           {{"name": "d", "size_gib": 1, "serial": "a b"}, {"name": "d", "size_gib": 1, "serial": strings.Repeat("s", 21)}},
		"iops":             {{"name": "d", "size_gib": 1, "iops": -1}, {"name": "d", "size_gib": 1, "iops": int64(1) << 62}},
		"bytes_per_second": {{"name": "d", "size_gib": 1, "bytes_per_second": -1}, {"name": "d", "size_gib": 1, "bytes_per_second": int64(1) << 62}},
	} {
		for _, body := range wrong {
			d.call("POST", path, acmeToken, body).Refused(400, "invalid", field)
		}
	}
	d.call("POST", path, acmeToken, object{"name": "d", "size_gib": 4}).Limited(400, "policy_limit", "size_gib", "policy.max_disk_gib")
	copied := contracttest.As[hypervisorapi.Disk](d.call("POST", path, acmeToken, object{"name": "d", "image": "large", "serial": "S"}).Want(201))
	if copied.SizeGib != 2 || copied.State != "attached" || deref(copied.Image) != "large" {
		t.Errorf("%+v", copied)
	}
	d.call("POST", path, acmeToken, object{"name": "d", "size_gib": 1}).Refused(409, "name_taken", "")
	d.call("POST", path, acmeToken, object{"name": "e", "size_gib": 1, "serial": "S"}).Refused(409, "serial_taken", "")
	d.call("PATCH", path+"/d", acmeToken, object{"size_gib": 1}).Refused(400, "invalid", "size_gib")
	d.call("PATCH", path+"/d", acmeToken, object{"size_gib": 4}).Limited(400, "policy_limit", "size_gib", "policy.max_disk_gib")
	d.call("PATCH", path+"/system", acmeToken, object{"size_gib": 3}).Limited(400, "policy_limit", "size_gib", "policy.max_disk_gib")
	d.call("POST", "/v1/vms/"+vm.Id+"/resize", acmeToken, object{"disk_gib": 3}).Limited(400, "policy_limit", "disk_gib", "policy.max_disk_gib")
	d.call("PATCH", path+"/d", acmeToken, object{}).Want(400)
	d.call("PATCH", path+"/none", acmeToken, object{"iops": 1}).Want(404)
	d.call("DELETE", path+"/none", acmeToken, nil).Want(404)
	d.call("DELETE", path+"/system", acmeToken, nil).Refused(409, "system_disk", "")
	limited := contracttest.As[hypervisorapi.Disk](d.call("PATCH", path+"/system", acmeToken, object{"size_gib": 2, "iops": 7}).Want(200))
	if limited.SizeGib != 2 || limited.Iops != 7 {
		t.Errorf("%+v", limited)
	}
	// They do not exist for another tenant.
	d.call("GET", path, otherToken, nil).Want(404)
	d.call("GET", path+"/d", otherToken, nil).Want(404)
	d.call("POST", path, otherToken, object{"name": "x", "size_gib": 1}).Want(404)
	d.call("PATCH", path+"/d", otherToken, object{"iops": 1}).Want(404)
	d.call("DELETE", path+"/d", otherToken, nil).Want(404)
	d.call("PUT", "/v1/vms/"+vm.Id+"/cd", otherToken, object{"image": "large"}).Want(404)
	d.call("DELETE", "/v1/vms/"+vm.Id+"/cd", otherToken, nil).Want(404)
	d.wantDisks(vm.Id, "system attached", "d attached")

	// Of two at once with the same name, or more than there is room for, one is made.
	two := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{"name": "two", "disk_gib": 1}).Want(201))
	var all sync.WaitGroup
	var made [6]int
	for i := range made {
		all.Go(func() {
			made[i] = d.call("POST", "/v1/vms/"+two.Id+"/disks", acmeToken, object{"name": fmt.Sprint("n", i/2), "size_gib": 2}).Status
		})
	}
	all.Wait()
	if n := len(slices.DeleteFunc(made[:], func(status int) bool { return status != 201 })); n != 1 || len(d.diskFiles(two.Id)) != 1 {
		t.Errorf("%v were made: %v", made, d.diskFiles(two.Id))
	}
}

func TestOnlyANetworkWithADeviceOnTheHostHasLimits(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	vm := d.withEmptyDisk("one")
	path := "/v1/vms/" + vm.Id
	limits := func(receive, send int64) object {
		return object{"network_limits": object{"receive_bits_per_second": receive, "send_bits_per_second": send}}
	}
	d.call("PATCH", path, adminToken, limits(100_000, 0)).Refused(400, "invalid", "network_limits")
	d.change(vm.Id, object{"network": object{"mode": "tap"}})
	for field, wrong := range map[string]object{
		"network_limits.receive_bits_per_second": limits(-1, 0), "network_limits.send_bits_per_second": limits(0, 1<<62),
	} {
		d.call("PATCH", path, adminToken, wrong).Refused(400, "invalid", field)
	}
	d.call("PATCH", path, adminToken, limits(7, 0)).Refused(400, "invalid", "network_limits.receive_bits_per_second")
	limited := d.change(vm.Id, limits(1_000_000, 2_000_000))
	if l := limited.NetworkLimits; l == nil || *l.ReceiveBitsPerSecond != 1_000_000 || *l.SendBitsPerSecond != 2_000_000 {
		t.Fatalf("%+v", limited)
	}
	d.restart(nil)
	if l := d.vm(vm.Id).NetworkLimits; l == nil || *l.SendBitsPerSecond != 2_000_000 {
		t.Errorf("after a restart: %+v", l)
	}
	if l := d.change(vm.Id, limits(0, 64_000)).NetworkLimits; l == nil || *l.ReceiveBitsPerSecond != 0 || *l.SendBitsPerSecond != 64_000 {
		t.Errorf("%+v", l)
	}
	if l := d.change(vm.Id, object{"network": object{"mode": "user"}}).NetworkLimits; l != nil {
		t.Errorf("limits of a network that has none: %+v", l)
	}
}

func TestTheSerialLogOutlivesTheVMAndTheDaemon(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	vm := d.boot("one", nil)
	path := "/v1/vms/" + vm.Id
	log := func(query string) string {
		t.Helper()
		return d.call("GET", path+"/log"+query, adminToken, nil).Want(200).Body
	}
	awaitLog := func(text string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(log("?tail=2097152"), text); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the log does not have %q: %q", text, log("?tail=2097152"))
			}
		}
	}
	d.sh(vm.Id, "echo before the kill >/dev/console")
	awaitLog("before the kill")
	kill := d.mortal()
	d.connected(vm.Id)
	kill()
	d.run()
	d.connected(vm.Id)
	d.sh(vm.Id, "echo after the kill >/dev/console")
	awaitLog("after the kill")
	d.call("POST", path+"/restart", adminToken, object{"force": true}).Want(200)
	d.connected(vm.Id)
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	whole := log("?tail=2097152")
	if strings.Count(whole, "mainstay demo guest: ready") != 2 || !strings.Contains(whole, "before the kill") {
		t.Errorf("%q", whole)
	}
	if end := log("?tail=10"); end != whole[len(whole)-10:] {
		t.Errorf("the last 10 bytes are %q", end)
	}
	for _, wrong := range []string{"0", "-1", "2097153", "x"} {
		d.call("GET", path+"/log?tail="+wrong, adminToken, nil).Refused(400, "invalid", "tail")
	}
	d.call("GET", path+"/log", otherToken, nil).Want(404)
}

func TestAGuestThatDoesNotLetGoKeepsItsDiskUntilTheVMStops(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument)
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}, "start": true,
	}).Want(201))
	d.await(vm.Id, "running")
	path := "/v1/vms/" + vm.Id + "/disks"
	d.call("POST", path, acmeToken, object{"name": "data", "size_gib": 1}).Want(201)
	// Nothing runs in the guest that could.
	d.call("DELETE", path+"/data", acmeToken, nil).Refused(409, "disk_in_use", "")
	d.wantDisks(vm.Id, "system attached", "data attached")
	if len(d.diskFiles(vm.Id)) != 1 {
		t.Error("the disk is gone")
	}
	d.call("PATCH", path+"/data", acmeToken, object{"iops": 5}).Want(200)
	d.call("POST", "/v1/vms/"+vm.Id+"/stop", acmeToken, object{"force": true}).Want(200)
	d.call("DELETE", path+"/data", acmeToken, nil).Want(200)
	d.wantDisks(vm.Id, "system attached")
	if left := d.diskFiles(vm.Id); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestADiskThatIsRemovedDuringASnapshotIsInItOrGone(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	vm := d.withEmptyDisk("one")
	path := "/v1/vms/" + vm.Id
	for round := range 4 {
		name := fmt.Sprint("d", round)
		d.call("POST", path+"/disks", adminToken, object{"name": name, "size_gib": 1}).Want(201)
		var removed, kept int
		var both sync.WaitGroup
		both.Go(func() { kept = d.call("POST", path+"/snapshots", adminToken, object{"name": name}).Status })
		both.Go(func() { removed = d.call("DELETE", path+"/disks/"+name, adminToken, nil).Status })
		both.Wait()
		has := slices.Contains(d.disks(vm.Id), name+" attached")
		if kept != 201 || removed != 200 && removed != 409 || has != (removed == 409) || len(d.diskFiles(vm.Id)) != map[bool]int{true: 1}[has] {
			t.Errorf("the snapshot %d, the removal %d; the disk is there: %v, %v", kept, removed, has, d.diskFiles(vm.Id))
		}
		d.call("POST", path+"/snapshots/"+name+"/revert", adminToken, nil).Want(200)
		d.call("DELETE", path+"/snapshots/"+name, adminToken, nil).Want(204)
		if has {
			d.call("DELETE", path+"/disks/"+name, adminToken, nil).Want(200)
		}
	}
}
