//go:build linux

package hypervisor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

func TestEachVMsProcessHasAnOwnUIDLimitsAndAccessToItsOwnFilesOnly(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		require.Missing(t, "running processes under other uids takes root")
	}
	// A folder of the test's own is closed to other users.
	data, err := os.MkdirTemp("", "hypervisor-jailed-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	d := start(
		t, "[jailer]\nenabled = true\nenforce = true\nuid = 310000\n", func(cfg *hypervisor.Config) { cfg.Data = data },
	).withDemo()
	one, two := d.boot("one", object{"disk_gib": 1}), d.boot("two", object{"disk_gib": 1})
	status := func(vm hypervisorapi.VM, field string) string {
		t.Helper()
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", *vm.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if name, value, ok := strings.Cut(line, ":"); ok && name == field {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	for i, vm := range []hypervisorapi.VM{one, two} {
		uid := strings.Fields(status(vm, "Uid"))[0]
		if uid != fmt.Sprint(310000+i) || strings.Fields(status(vm, "Gid"))[0] != "310000" ||
			status(vm, "Seccomp") != "2" ||
			strings.Trim(status(vm, "CapEff"), "0") != "" {
			t.Errorf(
				"uid %s, gid %s, seccomp %s, capabilities %s", uid, status(vm, "Gid"), status(vm, "Seccomp"),
				status(vm, "CapEff"),
			)
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", *vm.Pid))
		if err != nil || !strings.Contains(string(raw), vm.Id) {
			t.Errorf("%s, %v", raw, err)
		}
	}
	// What the first VM's uid can reach: its own disk, the kernel, and nothing of the other's
	// or the daemon's.
	reachable := func(path string) bool {
		t.Helper()
		return asUser(t, 310000, path)
	}
	folder := filepath.Join(d.cfg.Data, "vms")
	contents, err := filepath.Glob(filepath.Join(d.cfg.Data, "images/content/*/kernel"))
	if err != nil || len(contents) == 0 {
		t.Fatal(contents, err)
	}
	for path, want := range map[string]bool{
		filepath.Join(folder, one.Id, "disk.qcow2"): true, filepath.Join(folder, one.Id, "seed.iso"): true, contents[0]: true,
		filepath.Join(folder, two.Id, "disk.qcow2"): false, filepath.Join(folder, two.Id, "seed.iso"): false, filepath.Join(folder, two.Id, "run/qmp.sock"): false,
		filepath.Join(d.cfg.Data, "state", "hypervisor.db"): false, filepath.Join(d.cfg.Data, "secret.key"): false, filepath.Join(folder, one.Id, "process.json"): false,
	} {
		if got := reachable(path); got != want {
			t.Errorf("%s: reachable %v", path, got)
		}
	}
	// All that is done to disks works as it does without.
	path := "/v1/vms/" + one.Id
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1"}).Want(201)
	d.finished(d.call("POST", path+"/backups", adminToken, nil))
	d.finished(d.call("POST", path+"/backups", adminToken, object{"kind": "incremental"}))
	d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "copy"}))
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
	d.call("DELETE", path+"/snapshots/s1", adminToken, nil).Want(204)
	linked := d.finished(d.call("POST", path+"/clone", adminToken, object{"name": "linked", "linked": true}))
	d.call("POST", "/v1/vms/"+*linked.VmId+"/start", adminToken, nil).Want(200)
	d.connected(*linked.VmId)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(one.Id)
	for _, vm := range d.vms() {
		d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/*mainstay-*/" + one.Id)
	if err != nil || len(left) > 0 {
		t.Errorf("groups are left: %v, %v", left, err)
	}
}

// asUser says whether a user can read a file, or connect to a socket.
func asUser(t *testing.T, uid uint32, path string) bool {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "test", "-r", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run() == nil
}
