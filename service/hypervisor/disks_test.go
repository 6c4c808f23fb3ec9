//go:build linux

package hypervisor_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/relay"
)

// mounted mounts the file system on a guest's disk.
const mounted = "mkdir -p /mnt; mount -t ext4 /dev/vda /mnt"

// bootWithDisk is boot of a VM with a disk that has a file system.
func (d *daemon) bootWithDisk(name string) hypervisorapi.VM {
	d.Helper()
	need(d.T, "mke2fs", "qemu-system-x86_64", "qemu-img")
	guest := bootable(d.T)
	if d.call("GET", "/v1/images/catalog/blank", adminToken, nil).Status == 404 {
		raw := filepath.Join(d.TempDir(), "blank.raw")
		if out, err := exec.CommandContext(
			d.Context(), "mke2fs", "-q", "-t", "ext4", raw, "128M",
		).CombinedOutput(); err != nil { //nolint:gosec // the test's own
			d.Fatalf("%v: %s", err, out)
		}
		d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "blank", "path": raw}))
	}
	return d.boot(name, object{"image": "blank", "kernel": guest.Kernel, "initrd": guest.Initrd})
}

func TestADiskSnapshotBringsBackWhatTheDiskHeld(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.bootWithDisk("one")
	path := "/v1/vms/" + vm.Id
	d.sh(vm.Id, mounted+"; echo first >/mnt/f; sync")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "description": "before"}).Want(201)
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", path+"/events?limit=1", adminToken, nil).Want(200))
	if !strings.Contains(events[0].Message, "1 file systems at rest") {
		t.Errorf("%+v", events[0])
	}
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1"}).Refused(409, "name_taken", "")
	d.sh(vm.Id, "echo second >/mnt/f; sync; umount /mnt")
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Refused(409, "wrong_state", "")
	d.call("POST", path+"/snapshots/nope/revert", adminToken, nil).Refused(404, "not_found", "")
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s2", "kind": "full"}).Refused(
		409, "wrong_state", "",
	)
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s2"}).Want(201) // of a VM that is stopped
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
	read := func() string {
		t.Helper()
		d.call("POST", path+"/start", adminToken, nil).Want(200)
		d.connected(vm.Id)
		text := d.sh(vm.Id, "mkdir -p /mnt; mount -t ext4 /dev/vda /mnt; cat /mnt/f; umount /mnt")
		d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
		return text
	}
	if got := read(); got != "first" {
		t.Errorf("after reverting to s1: %q", got)
	}
	d.call("POST", path+"/snapshots/s2/revert", adminToken, nil).Want(200)
	d.call("DELETE", path+"/snapshots/s1", adminToken, nil).Want(204)
	if got := read(); got != "second" {
		t.Errorf("after reverting to s2: %q", got)
	}
	if left := contracttest.As[[]hypervisorapi.Snapshot](
		d.call("GET", path+"/snapshots", adminToken, nil).Want(200),
	); len(left) != 1 ||
		left[0].Name != "s2" {
		t.Errorf("%+v", left)
	}
}

func TestAFullSnapshotBringsBackMemoryAndTheAgentGetsANewSecret(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	secret := func() string { return d.sh(vm.Id, "cat /run/mainstay-guest/secret") }
	old := secret()
	d.sh(vm.Id, "echo kept >/tmp/in-memory")
	snap := contracttest.As[hypervisorapi.Snapshot](
		d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "kind": "full"}).Want(201),
	)
	if snap.MemoryBytes < 1<<20 {
		t.Errorf("%+v", snap)
	}
	d.sh(vm.Id, "rm /tmp/in-memory")
	var secrets []string
	for range 2 {
		d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
		deadline := time.Now().Add(time.Minute)
		for {
			a := d.call("POST", path+"/agent/exec", adminToken, object{"argv": []string{"/bin/cat", "/tmp/in-memory"}})
			if a.Status == 200 && strings.Contains(a.Body, "kept") {
				if s := secret(); s != old && (len(secrets) == 0 || s != secrets[len(secrets)-1]) {
					secrets = append(secrets, s)
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("the agent has not got a new secret: %s", a.Body)
			}
			time.Sleep(50 * time.Millisecond) // the daemon rotates it on its own
		}
		old = secrets[0] // the snapshot's is never the VM's again
	}
	d.restart(nil)
	d.connected(vm.Id)
	// From a VM that is stopped, too.
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
	d.connected(vm.Id)
	if got := d.sh(vm.Id, "cat /tmp/in-memory"); got != "kept" {
		t.Errorf("%q", got)
	}
}

// checksum is the SHA-256 of what a guest sees of a qcow2 file.
func checksum(t *testing.T, path string) string {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	if out, err := exec.CommandContext(
		t.Context(), "qemu-img", "convert", "-U", "-O", "raw", path, raw,
	).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := f.WriteTo(hash); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func TestAChainOfIncrementalBackupsSurvivesAStopAndARestartAndIsRestoredByteByByte(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.bootWithDisk("one")
	path := "/v1/vms/" + vm.Id
	disk := filepath.Join(d.cfg.Data, "vms", vm.Id, "disk.qcow2")
	backup := func(kind string) hypervisorapi.Backup {
		t.Helper()
		op := d.finished(d.call("POST", path+"/backups", adminToken, object{"kind": kind}))
		return contracttest.As[hypervisorapi.Backup](d.call("GET", "/v1/backups/"+*op.BackupId, adminToken, nil).Want(200))
	}
	d.sh(vm.Id, mounted+"; head -c 30000000 /dev/urandom >/mnt/a; sync; umount /mnt")
	first := backup("incremental") // there is none to build on yet
	if first.Kind != "full" || first.ParentId != nil {
		t.Errorf("%+v", first)
	}
	d.sh(vm.Id, "mount -t ext4 /dev/vda /mnt; head -c 1000000 /dev/urandom >/mnt/b; sync; umount /mnt")
	second := backup("incremental")
	if second.Kind != "incremental" || deref(second.ParentId) != first.Id || second.SizeBytes > first.SizeBytes/4 {
		t.Errorf("%+v", second)
	}
	want := map[string]string{second.Id: checksum(t, disk)}
	// The notes of what changed outlive the VM's process and the daemon.
	d.sh(vm.Id, "mount -t ext4 /dev/vda /mnt; head -c 2000000 /dev/urandom >/mnt/c; rm /mnt/b; sync; umount /mnt")
	d.call("POST", path+"/stop", adminToken, object{"grace_seconds": 60}).Want(200)
	d.restart(nil)
	third := backup("incremental") // of a VM that is stopped
	want[third.Id] = checksum(t, disk)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	d.sh(vm.Id, "mkdir -p /mnt; mount -t ext4 /dev/vda /mnt; head -c 500000 /dev/urandom >/mnt/d; sync; umount /mnt")
	d.restart(nil)
	fourth := backup("incremental")
	want[fourth.Id] = checksum(t, disk)
	for i, b := range []hypervisorapi.Backup{third, fourth} {
		if b.Kind != "incremental" || deref(b.ParentId) != []string{second.Id, third.Id}[i] ||
			b.SizeBytes > first.SizeBytes/4 {
			t.Errorf("%+v", b)
		}
	}
	for id, sum := range want {
		restored := d.finished(d.call("POST", "/v1/backups/"+id+"/restore", adminToken, object{"name": "r-" + id}))
		if got := checksum(t, filepath.Join(d.cfg.Data, "vms", *restored.VmId, "disk.qcow2")); got != sum {
			t.Errorf("backup %s is restored as %s, was %s", id, got, sum)
		}
		exported := filepath.Join(t.TempDir(), "exported.qcow2")
		if err := os.WriteFile(
			exported, []byte(d.call("GET", "/v1/backups/"+id+"/export", adminToken, nil).Want(200).Body), 0o600,
		); err != nil {
			t.Fatal(err)
		}
		if got := checksum(t, exported); got != sum {
			t.Errorf("backup %s is exported as %s, was %s", id, got, sum)
		}
	}
	d.call("DELETE", "/v1/backups/"+second.Id, adminToken, nil).Refused(409, "backup_in_use", "")
	// A process that was killed from outside has not written its notes: the next one is full.
	if err := syscall.Kill(*d.vm(vm.Id).Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.await(vm.Id, "failed")
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	if b := backup("incremental"); b.Kind != "full" {
		t.Errorf("%+v", b)
	}
	// One that the daemon killed has.
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	if b := backup("incremental"); b.Kind != "incremental" {
		t.Errorf("%+v", b)
	}
	// Put back into the VM itself; what was noted is of no use then.
	d.call("POST", "/v1/backups/"+second.Id+"/restore", adminToken, object{"vm": vm.Id}).Refused(
		409, "wrong_state", "",
	)
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.finished(d.call("POST", "/v1/backups/"+second.Id+"/restore", adminToken, object{"vm": vm.Id}))
	if got := checksum(t, disk); got != want[second.Id] {
		t.Errorf("put back as %s, was %s", got, want[second.Id])
	}
	if fifth := backup("incremental"); fifth.Kind != "full" {
		t.Errorf("%+v", fifth)
	}
	// Backups outlive their VM, with the kernel that it was given as a file.
	d.call("DELETE", path, adminToken, nil).Want(204)
	d.call("GET", "/v1/backups/"+fourth.Id+"/export", adminToken, nil).Want(200)
	again := d.finished(d.call("POST", "/v1/backups/"+fourth.Id+"/restore", adminToken, object{"name": "again"}))
	d.call("POST", "/v1/vms/"+*again.VmId+"/start", adminToken, nil).Want(200)
	d.connected(*again.VmId)
}

func TestClonesHaveTheDiskAndASecretOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.bootWithDisk("one")
	path := "/v1/vms/" + vm.Id
	d.sh(vm.Id, mounted+"; echo original >/mnt/f; sync; umount /mnt")
	secret := d.sh(vm.Id, "cat /run/mainstay-guest/secret")
	full := d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "full"})) // of one that runs
	d.call("POST", path+"/clone", adminToken, object{"name": "linked", "linked": true}).Refused(
		409, "wrong_state", "",
	)
	d.call("POST", path+"/clone", adminToken, object{"name": "full"}).Refused(409, "name_taken", "")
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	linked := d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "linked", "linked": true}))
	again := d.finished(
		d.call("POST", "/v1/vms/"+*linked.VmId+"/clone", adminToken, object{"name": "again", "linked": true}),
	)
	if info, err := os.Stat(filepath.Join(d.cfg.Data, "vms", *linked.VmId, "disk.qcow2")); err != nil ||
		info.Size() > 1<<20 {
		t.Errorf("a linked clone takes %v, %v", info, err)
	}
	// Each goes its own way, and the original can go.
	for name, id := range map[string]string{"one": vm.Id, "full": *full.VmId, "linked": *linked.VmId, "again": *again.VmId} {
		d.call("POST", "/v1/vms/"+id+"/start", adminToken, nil).Want(200)
		d.connected(id)
		if got := d.sh(
			id, "mkdir -p /mnt; mount -t ext4 /dev/vda /mnt; cat /mnt/f; echo "+name+" >/mnt/f; sync; umount /mnt",
		); got != "original" {
			t.Errorf("%s: %q", name, got)
		}
		if own := d.sh(id, "cat /run/mainstay-guest/secret"); (own == secret) != (name == "one") {
			t.Errorf("%s: the secret is %q, the original's %q", name, own, secret)
		}
		d.call("POST", "/v1/vms/"+id+"/stop", adminToken, object{"force": true}).Want(200)
	}
	bases := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(d.cfg.Data, "bases", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := bases(); n != 2 {
		t.Errorf("%d shared disks, want 2", n)
	}
	d.call("DELETE", path, adminToken, nil).Want(204)
	d.call("DELETE", "/v1/vms/"+*linked.VmId, adminToken, nil).Want(204)
	d.call("POST", "/v1/vms/"+*again.VmId+"/start", adminToken, nil).Want(200)
	d.connected(*again.VmId)
	if got := d.sh(*again.VmId, "mkdir -p /mnt; mount -t ext4 /dev/vda /mnt; cat /mnt/f"); got != "again" {
		t.Errorf("%q", got)
	}
	d.call("DELETE", "/v1/vms/"+*again.VmId, adminToken, nil).Want(204)
	if n := bases(); n != 0 {
		t.Errorf("%d shared disks are left", n)
	}
}

func TestADiskGrowsAlsoWhileTheVMRunsAndNeverShrinks(t *testing.T) {
	t.Parallel()
	d := start(t, "[policy]\nmax_disk_gib = 4\n").withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	grown := contracttest.As[hypervisorapi.VM](d.call("POST", path+"/resize", adminToken, object{"disk_gib": 2}).Want(200))
	if got := d.sh(vm.Id, "cat /sys/block/vda/size"); grown.DiskGib != 2 || got != "4194304" {
		t.Errorf("%d GiB; the guest sees %s sectors", grown.DiskGib, got)
	}
	d.call("POST", path+"/resize", adminToken, object{"disk_gib": 2}).Refused(400, "invalid", "disk_gib")
	d.call("POST", path+"/resize", adminToken, object{"disk_gib": 5}).Limited(
		400, "policy_limit", "disk_gib", "policy.max_disk_gib",
	)
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("POST", path+"/resize", adminToken, object{"disk_gib": 3}).Want(200)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	if got := d.sh(vm.Id, "cat /sys/block/vda/size"); got != "6291456" {
		t.Errorf("the guest sees %s sectors", got)
	}
	none := d.boot("none", nil)
	d.call("POST", "/v1/vms/"+none.Id+"/resize", adminToken, object{"disk_gib": 3}).Refused(409, "no_disk", "")
	d.call("POST", "/v1/vms/"+none.Id+"/backups", adminToken, nil).Refused(409, "no_disk", "")
}

func TestBackupsAndClonesKeepTheFirmwareAndWhatItRemembers(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument)
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "firmware": firmwareAt(t, t.TempDir())},
		).Want(201),
	)
	path, folder := "/v1/vms/"+vm.Id, func(id string) string { return filepath.Join(d.cfg.Data, "vms", id) }
	never := d.finished(d.call("POST", path+"/backups", adminToken, nil)) // it has no variables yet
	if err := os.WriteFile(filepath.Join(folder(vm.Id), "vars.fd"), []byte("what it remembers"), 0o600); err != nil {
		t.Fatal(err)
	}
	backup := d.finished(d.call("POST", path+"/backups", adminToken, nil))
	made := map[string]string{
		"full clone": *d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "full"})).VmId,
	}
	made["linked clone"] = *d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "linked", "linked": true})).VmId
	d.call("DELETE", path, adminToken, nil).Want(204)
	d.restart(nil) // which sweeps what is of no backup
	made["restored"] = *d.finished(d.call("POST", "/v1/backups/"+*backup.BackupId+"/restore", adminToken, object{"name": "restored"})).VmId
	for what, id := range made {
		if got, err := os.ReadFile(filepath.Join(folder(id), "vars.fd")); err != nil ||
			string(got) != "what it remembers" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if info, err := os.Stat(filepath.Join(folder(id), "firmware_CODE.fd")); err != nil || info.Size() != 1<<20 {
			t.Errorf("%s: %v, %v", what, info, err)
		}
	}
	d.finished(d.call("POST", "/v1/backups/"+*never.BackupId+"/restore", adminToken, object{"name": "never"}))
	for _, op := range []hypervisorapi.Operation{never, backup} {
		d.call("DELETE", "/v1/backups/"+*op.BackupId, adminToken, nil).Want(204)
	}
	if left, err := os.ReadDir(filepath.Join(d.cfg.Data, "backups")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestARevertBringsBackTheSizeOfTheDiskToo(t *testing.T) {
	t.Parallel()
	d, _, vm := withTakenOver(t) // which is QEMU as usual, unless it is told otherwise
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/snapshots", acmeToken, object{"name": "s1"}).Want(201)
	d.call("POST", path+"/resize", acmeToken, object{"disk_gib": 3}).Want(200)
	reverted := contracttest.As[hypervisorapi.VM](d.call("POST", path+"/snapshots/s1/revert", acmeToken, nil).Want(200))
	if reverted.DiskGib != 1 {
		t.Errorf("%d GiB after the revert", reverted.DiskGib)
	}
	if again := contracttest.As[hypervisorapi.VM](
		d.call("POST", path+"/resize", acmeToken, object{"disk_gib": 2}).Want(200),
	); again.DiskGib != 2 {
		t.Errorf("%d GiB", again.DiskGib)
	}
	// With its memory, of a VM that runs.
	d.call("POST", path+"/start", acmeToken, nil).Want(200)
	d.await(vm.Id, "running")
	d.call("POST", path+"/snapshots", acmeToken, object{"name": "s2", "kind": "full"}).Want(201)
	d.call("POST", path+"/resize", acmeToken, object{"disk_gib": 3}).Want(200)
	d.call("POST", path+"/snapshots/s2/revert", acmeToken, nil).Want(200)
	if vm := d.vm(vm.Id); vm.DiskGib != 2 {
		t.Errorf("%d GiB after the revert with memory", vm.DiskGib)
	}
}

func TestTheConsoleIsReplayedSharedAndWritten(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", nil)
	path := "/v1/vms/" + vm.Id
	ticket := func() string {
		t.Helper()
		return contracttest.As[hypervisorapi.Ticket](d.call("POST", path+"/tickets", adminToken, nil).Want(201)).Ticket
	}
	word := ticket()
	d.call("GET", path+"/console?ticket="+word, "", nil).Refused(426, "upgrade_required", "") // and spends nothing
	one, two := d.dial(path+"/console?ticket="+word), d.dial(path+"/console?ticket="+ticket())
	defer func() { _ = one.CloseNow() }()
	defer func() { _ = two.CloseNow() }()
	d.refusedSocket(path+"/console?ticket="+word, "").Refused(401, "unauthenticated", "") // it was good once
	other := d.boot("other", nil)
	d.refusedSocket("/v1/vms/"+other.Id+"/console?ticket="+ticket(), "").Refused(401, "unauthenticated", "")
	var seen [2]bytes.Buffer
	await := func(i int, text string) {
		t.Helper()
		conn := []interface{ read() []byte }{socketReader{t, one}, socketReader{t, two}}[i]
		for !bytes.Contains(seen[i].Bytes(), []byte(text)) {
			seen[i].Write(conn.read())
		}
	}
	await(0, "mainstay demo guest: ready") // which was printed before anybody looked
	await(1, "mainstay demo guest: ready")
	if err := one.Write(t.Context(), 2, []byte("echo answer $((6 * 7))\n")); err != nil {
		t.Fatal(err)
	}
	await(0, "answer 42")
	await(1, "answer 42")
	// Who counts what was printed comes back and misses nothing.
	var all []byte
	var reached relay.Position
	for round, want := range []string{"answer 42", "answer 43"} {
		back := d.dial(fmt.Sprintf("%s/console?offset=%d&log=%s&ticket=%s", path, reached.Offset, reached.Log, ticket()))
		r := socketReader{t, back}
		var start relay.Position
		if err := json.Unmarshal(r.read(), &start); err != nil || start.Log == "" || round > 0 && start != reached {
			t.Fatalf("%+v, want %+v, %v", start, reached, err)
		}
		for !bytes.Contains(all, []byte(want)) {
			all = append(all, r.read()...)
		}
		_ = back.CloseNow()
		reached = relay.Position{Log: start.Log, Offset: int64(len(all))}
		if err := one.Write(t.Context(), 2, []byte("echo answer $((42 + 1))\n")); err != nil {
			t.Fatal(err)
		}
		await(0, "answer 43")
	}
	if got := seen[0].Bytes(); !bytes.HasPrefix(got, all) && !bytes.HasPrefix(all, got) {
		t.Errorf("in two parts:\n%q\nat once:\n%q", all, got)
	}
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	for err := error(nil); err == nil; {
		if _, _, err = one.Read(t.Context()); err != nil &&
			websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("the console ended with %v", err)
		}
	}
	openings := func() (n int) {
		for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit?limit=1000", adminToken, nil).Want(200)) {
			if e.Action == "vm.console" && e.Target == vm.Id {
				n++
			}
		}
		return n
	}
	before := openings()
	for _, channel := range []string{"/console", "/vnc"} {
		d.refusedSocket(path+channel, adminToken).Refused(409, "wrong_state", "")
		d.call("GET", path+channel, adminToken, nil).Refused(409, "wrong_state", "") // opens nothing, and leaves no entry
	}
	if n := openings() - before; n != 2 {
		t.Errorf("a console and a screen that were asked for with a token left %d audit entries", n)
	}
}

func TestTheScreenSpeaksRFB(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "start": true, "network": object{"mode": "none"}},
		).Want(201),
	)
	d.await(vm.Id, "running")
	ticket := contracttest.As[hypervisorapi.Ticket](d.call("POST", "/v1/vms/"+vm.Id+"/tickets", adminToken, nil).Want(201)).Ticket
	conn := d.dial("/v1/vms/" + vm.Id + "/vnc?ticket=" + ticket)
	defer func() { _ = conn.CloseNow() }()
	r := socketReader{t, conn}
	if hello := r.read(); string(hello) != "RFB 003.008\n" {
		t.Fatalf("%q", hello)
	}
	if err := conn.Write(t.Context(), 2, []byte("RFB 003.008\n")); err != nil {
		t.Fatal(err)
	}
	if types := r.read(); !bytes.Equal(types, []byte{1, 1}) { // one type of security: none
		t.Errorf("%v", types)
	}
}
