//go:build linux

package hypervisor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// innerSnapshots are the names of those within a disk, whoever has it open.
func innerSnapshots(t *testing.T, path string) (names []string) {
	t.Helper()
	out, err := exec.CommandContext(
		t.Context(), "qemu-img", "info", "-U", "--output=json", path,
	).Output() //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Snapshots []struct {
			Name string `json:"name"`
		} `json:"snapshots"`
	}
	if err := json.Unmarshal(out, &info); err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Snapshots {
		names = append(names, s.Name)
	}
	return names
}

func (d *daemon) snapshots(id string) []hypervisorapi.Snapshot {
	d.Helper()
	return contracttest.As[[]hypervisorapi.Snapshot](d.call("GET", "/v1/vms/"+id+"/snapshots", adminToken, nil).Want(200))
}

// happened says whether one of a VM's events has the text.
func (d *daemon) happened(id, text string) bool {
	d.Helper()
	for _, e := range contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+id+"/events?limit=1000", adminToken, nil).Want(200)) {
		if strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

func TestASnapshotThatFailedDoesNotKeepADiskFromBeingSharedOrReplaced(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	need(t, "qemu-system-x86_64", "qemu-img")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}},
		).Want(201),
	)
	path := "/v1/vms/" + vm.Id
	backup := d.finished(d.call("POST", path+"/backups", adminToken, nil))
	disk := filepath.Join(d.cfg.Data, "vms", vm.Id, "disk.qcow2")
	content, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	broken := func() {
		t.Helper()
		if err := os.Truncate(disk, 70_000); err != nil { // within the tables
			t.Fatal(err)
		}
		if status := d.call(
			"POST", path+"/snapshots", adminToken, object{"name": "s", "kind": "disk"},
		).Status; status < 400 {
			t.Fatalf("a snapshot of a broken disk: %d", status)
		}
	}
	broken()
	if err := os.WriteFile(disk, content, 0o600); err != nil {
		t.Fatal(err)
	}
	d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "linked", "linked": true}))
	broken()
	d.finished(d.call("POST", "/v1/backups/"+*backup.BackupId+"/restore", adminToken, object{"vm": vm.Id}))
	if names := d.snapshots(vm.Id); len(names) != 0 {
		t.Errorf("%+v", names)
	}
}

// alone begins a script in a guest that outlives the call: it has a session of its own, since
// what is left of a program's group is killed with it.
func (d *daemon) alone(id, script string) {
	d.Helper()
	d.sh(
		id,
		"rm -f /tmp/alone; setsid sh -c ': >/tmp/alone; "+script+"' </dev/null >/dev/null 2>&1 & while [ ! -e /tmp/alone ]; do sleep 0.05; done",
	)
}

// full fills a guest's memory, so that saving it takes a moment.
const full = "mkdir -p /big; mount -t tmpfs -o size=80m big /big; for i in 1 2 3 4 5 6; do cp /bin/mainstay-guest /big/$i; done"

// used is how much of the host's disk a file takes; 0 if it is not there.
func used(t *testing.T, path string) int64 {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); errors.Is(err, fs.ErrNotExist) {
		return 0
	} else if err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

// read is how much a process has read so far.
func read(t *testing.T, pid int) (n int64) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "rchar: %d", &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// duringCall begins a request and stops a process with SIGSTOP once something has grown by 8 MiB,
// and returns false if the request was answered before.
func (d *daemon) duringCall(pid int, grown func() int64, request func() answer) (stopped bool, answered <-chan answer) {
	d.Helper()
	before, done := grown(), make(chan answer, 1)
	go func() { done <- request() }()
	for grown() < before+8<<20 {
		select {
		case a := <-done:
			done <- a
			return false, done
		case <-time.After(time.Millisecond): // another process writes
		}
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	select {
	case a := <-done:
		done <- a
		_ = syscall.Kill(pid, syscall.SIGCONT)
		return false, done
	default:
		return true, done
	}
}

func TestAFullSnapshotThatTheDaemonDidNotSurviveLeavesNothingAndTheGuestGoesOn(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path, disk := "/v1/vms/"+vm.Id, filepath.Join(d.cfg.Data, "vms", vm.Id, "disk.qcow2")
	d.sh(vm.Id, full)
	kill := d.mortal()
	d.connected(vm.Id)
	for tries := 0; ; tries++ {
		if tries == 20 {
			t.Fatal("the snapshot is made too fast for this test")
		}
		stopped, answered := d.duringCall(*vm.Pid, func() int64 { return used(t, disk) }, func() answer {
			return answer{Body: d.attempt("POST", path+"/snapshots", object{"name": "s1", "kind": "full"})}
		})
		if stopped {
			kill()
			t.Logf("the caller got: %s", (<-answered).Body)
			break
		}
		t.Logf("the snapshot was made before it could be interrupted: %s", (<-answered).Body)
		d.call("DELETE", path+"/snapshots/s1", adminToken, nil).Want(204)
	}
	if err := syscall.Kill(*vm.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.run()
	d.connected(vm.Id)
	// This waits until what was begun is cleaned up.
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "kind": "full"}).Want(201)
	if got := d.vm(vm.Id); got.State != "running" {
		t.Errorf("the VM is %s", got.State)
	}
	if !d.happened(vm.Id, "snapshot s1 was not finished, and is removed") {
		t.Error("no event tells of the snapshot that was removed")
	}
	d.sh(vm.Id, "true") // the guest is not halted
	if got := innerSnapshots(t, disk); len(got) != 1 || len(d.snapshots(vm.Id)) != 1 {
		t.Errorf("the disk has the snapshots %v; listed are %v", got, d.snapshots(vm.Id))
	}
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
	d.connected(vm.Id)
}

func TestARevertThatTheDaemonDidNotSurviveIsDoneAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	d.sh(vm.Id, full+"; echo kept >/tmp/in-memory")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "kind": "full"}).Want(201)
	kill := d.mortal()
	d.connected(vm.Id)
	for tries := 0; ; tries++ {
		if tries == 20 {
			t.Fatal("the snapshot is loaded too fast for this test")
		}
		d.sh(vm.Id, "rm -f /tmp/in-memory")
		stopped, answered := d.duringCall(*vm.Pid, func() int64 { return read(t, *vm.Pid) }, func() answer {
			return answer{Body: d.attempt("POST", path+"/snapshots/s1/revert", nil)}
		})
		if stopped {
			kill()
			t.Logf("the caller got: %s", (<-answered).Body)
			break
		}
		t.Logf("the VM was put back before that could be interrupted: %s", (<-answered).Body)
		d.connected(vm.Id)
	}
	if err := syscall.Kill(*vm.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.run()
	d.call("DELETE", path+"/snapshots/s1", adminToken, nil).Want(204) // waits until the revert is over
	if got := d.vm(vm.Id); got.State != "running" {
		t.Errorf("the VM is %s", got.State)
	}
	d.connected(vm.Id)
	if got := d.sh(vm.Id, "cat /tmp/in-memory"); got != "kept" {
		t.Errorf("the memory is not the snapshot's: %q", got)
	}
}

// attempt is call of a daemon that may be killed meanwhile.
func (d *daemon) attempt(method, path string, body any) string {
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err.Error()
		}
	}
	req, err := http.NewRequest(method, d.url+path, bytes.NewReader(text))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%s %s %v", res.Status, raw, err)
}

// limited is a daemon whose data are on a file system of its own, of a size in MiB.
func limited(t *testing.T, mib string) (d *daemon, folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	folder = t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size="+mib+"m,mode=700"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d = &daemon{T: t, cfg: settings(t, folder, "")}
	d.begin()
	return d, folder
}

// fill leaves so many MiB on a file system. Calling it again leaves others.
func fill(t *testing.T, folder string, leave int64) {
	t.Helper()
	ballast := filepath.Join(folder, "ballast")
	if err := os.Remove(ballast); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if size := int64(stat.Bavail)*stat.Bsize - leave<<20; size > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
}

// shown waits until a VM is shown in a state. Nothing can be stored on a disk that is full.
func (d *daemon) shown(id, state string) hypervisorapi.VM {
	d.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		vm := d.vm(id)
		if string(vm.State) == state {
			return vm
		}
		if time.Now().After(deadline) {
			d.Fatalf("it is not %s: %+v", state, vm)
		}
		time.Sleep(20 * time.Millisecond) // the guest does it in its own time
	}
}

func TestARevertOfADiskThatTheDaemonDidNotSurviveIsDoneAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	id := d.withEmptyDisk("one").Id
	path := "/v1/vms/" + id
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s", "kind": "disk"}).Want(201)
	d.call("POST", path+"/resize", adminToken, object{"disk_gib": 2}).Want(200)
	d.restart(func() { tamper(t, d.cfg.Data, "UPDATE vms SET reverting = 's'") }) // as a revert begins
	for deadline := time.Now().Add(time.Minute); d.vm(id).DiskGib != 1; {
		if time.Now().After(deadline) {
			t.Fatalf("the disk is not put back: %+v", d.vm(id))
		}
		time.Sleep(20 * time.Millisecond) // the daemon does it on its own
	}
	if !d.happened(id, "the disk is as in snapshot s") {
		t.Error("nobody is told of it")
	}
}

func TestAFullSnapshotForWhichThereIsNoRoomLeavesNothingAndTheGuestGoesOn(t *testing.T) {
	t.Parallel()
	d, folder := limited(t, "700")
	d.withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	path, disk := "/v1/vms/"+vm.Id, filepath.Join(d.cfg.Data, "vms", vm.Id, "disk.qcow2")
	d.sh(vm.Id, full)
	fill(t, folder, 40)
	// QEMU reports either that there is no room, or only that it cannot write.
	if a := d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "kind": "full"}); a.Status != 409 &&
		a.Status != 507 {
		t.Fatalf("%d: %s", a.Status, a.Body)
	}
	fill(t, folder, 400)
	d.shown(vm.Id, "running")
	d.sh(vm.Id, "true") // the guest is not halted
	if got := innerSnapshots(t, disk); len(got) != 0 || len(d.snapshots(vm.Id)) != 0 {
		t.Errorf("the disk has the snapshots %v; listed are %v", got, d.snapshots(vm.Id))
	}
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "kind": "full"}).Want(201)
}

func TestADiskThatAFullHostCouldNotResizeIsResizedWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d, folder := limited(t, "200")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}},
		).Want(201),
	)
	path := "/v1/vms/" + vm.Id
	d.finished(d.call("POST", path+"/backups", adminToken, nil)) // its notes of what changed are in the disk
	fill(t, folder, 0)
	d.call("POST", path+"/resize", adminToken, object{"disk_gib": 600}).Want(507) // which takes a larger table
	if vm := d.vm(vm.Id); vm.DiskGib != 1 {
		t.Errorf("%+v", vm)
	}
	fill(t, folder, 100)
	if vm := contracttest.As[hypervisorapi.VM](
		d.call("POST", path+"/resize", adminToken, object{"disk_gib": 600}).Want(200),
	); vm.DiskGib != 600 {
		t.Errorf("%+v", vm)
	}
}

func TestAGuestThatTheHostHasNoRoomForIsPausedWithTheReasonAndGoesOnWhenThereIs(t *testing.T) {
	t.Parallel()
	d, folder := limited(t, "700")
	d.withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	fill(t, folder, 20)
	d.alone(vm.Id, "dd if=/dev/urandom of=/dev/vda bs=1M count=60 && : >/tmp/written")
	noSpace := func(what string) {
		t.Helper()
		vm := d.shown(vm.Id, "paused")
		if vm.PauseReason == nil || *vm.PauseReason != hypervisorapi.PauseReasonNoSpace || vm.Agent.Connected {
			t.Errorf("%s: %+v", what, vm)
		}
	}
	noSpace("with a full disk")
	fill(t, folder, 4) // which is too little to continue with, but the database can be written
	d.await(vm.Id, "paused")
	if !d.happened(vm.Id, "the host has no room") {
		t.Error("no event tells why")
	}
	d.restart(nil)
	noSpace("after a restart of the daemon")
	fill(t, folder, 200)
	if running := d.await(vm.Id, "running"); running.PauseReason != nil {
		t.Errorf("%+v", running)
	}
	d.connected(vm.Id)
	d.sh(vm.Id, "while [ ! -e /tmp/written ]; do sleep 0.05; done") // nothing that it wrote is lost
}

func TestAVMThatSomebodyPausedStaysPaused(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"disk_gib": 1})
	d.call("POST", "/v1/vms/"+vm.Id+"/pause", adminToken, nil).Want(200)
	d.restart(nil)
	if got := d.vm(vm.Id); got.State != "paused" || got.PauseReason != nil || got.Agent.Connected {
		t.Errorf("%+v", got)
	}
}
