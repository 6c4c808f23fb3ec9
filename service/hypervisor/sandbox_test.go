//go:build linux

package hypervisor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

// rootFS makes a root file system out of busybox.
func rootFS(t *testing.T) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		require.Missing(t, "busybox-static is not installed")
	}
	if _, err := exec.LookPath("runsc"); err != nil {
		require.Missing(t, "runsc is not installed: sh bench/runsc/build.sh /usr/local/bin/runsc")
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "etc", "tmp", "proc", "dev", "run"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), raw, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "cat", "echo", "sleep", "ls", "mkdir", "rm", "touch", "sync"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestASandboxRunsFromAFolderWithinASecondAndGoesThroughItsLife(t *testing.T) {
	t.Parallel()
	root := rootFS(t)
	d := start(t, "")
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "busybox", "path": root}))
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken, object{"name": "box", "image": "busybox", "memory_mib": 64, "start": true},
		).Want(201),
	)
	if vm.Backend != "sandbox" || *vm.Network.Mode != "none" {
		t.Errorf("%+v", vm)
	}
	d.connected(vm.Id)
	path := "/v1/vms/" + vm.Id
	d.sh(vm.Id, "echo own >/tmp/f")
	d.call("POST", path+"/pause", adminToken, nil).Want(200)
	d.call("POST", path+"/resume", adminToken, nil).Want(200)
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1"}).Refused(400, "invalid", "kind")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1", "kind": "full"}).Want(201)
	d.sh(vm.Id, "rm /tmp/f")
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
	d.connected(vm.Id)
	deadline := time.Now().Add(time.Minute)
	for {
		a := d.call("POST", path+"/agent/exec", adminToken, object{"argv": []string{"/bin/cat", "/tmp/f"}})
		if strings.Contains(a.Body, "own") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s", a.Body)
		}
		time.Sleep(50 * time.Millisecond) // the agent connects on its own
	}
	d.call("DELETE", path+"/snapshots/s1", adminToken, nil).Want(204)
	pid := *d.vm(vm.Id).Pid
	d.restart(nil)
	d.connected(vm.Id)
	if again := d.vm(vm.Id); *again.Pid != pid {
		t.Errorf("process %d, was %d", *again.Pid, pid)
	}
	if metrics := contracttest.As[hypervisorapi.VMMetrics](
		d.call("GET", path+"/metrics", adminToken, nil).Want(200),
	); metrics.MemoryBytes == 0 {
		t.Errorf("%+v", metrics)
	}
	ticket := contracttest.As[hypervisorapi.Ticket](d.call("POST", path+"/tickets", adminToken, nil).Want(201)).Ticket
	conn := d.dial(path + "/console?ticket=" + ticket)
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(t.Context(), 2, []byte("echo answer $((6 * 7))\n")); err != nil {
		t.Fatal(err)
	}
	for seen := ""; !strings.Contains(seen, "answer 42"); {
		seen += string(socketReader{t, conn}.read())
	}
	d.call("POST", path+"/stop", adminToken, object{"grace_seconds": 20}).Want(200)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)
	d.call("DELETE", path, adminToken, nil).Want(204)
	if n := processesOf(t, vm.Id); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

func TestManySandboxesAreMadeAtOnceAndNoneIsLost(t *testing.T) {
	t.Parallel()
	root := rootFS(t)
	d := start(t, "")
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "busybox", "path": root}))
	var work sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		work.Go(func() {
			vm := contracttest.As[hypervisorapi.VM](
				d.call(
					"POST", "/v1/vms", adminToken,
					object{"name": fmt.Sprintf("box-%d", i), "image": "busybox", "memory_mib": 64, "start": true},
				).Want(201),
			)
			ids[i] = vm.Id
			d.connected(vm.Id)
			if got := d.sh(vm.Id, fmt.Sprintf("echo %d >/tmp/f; cat /tmp/f", i)); got != fmt.Sprint(i) {
				t.Errorf("%d: %q", i, got)
			}
		})
	}
	work.Wait()
	for _, id := range ids {
		work.Go(func() { d.call("DELETE", "/v1/vms/"+id, adminToken, nil).Want(204) })
	}
	work.Wait()
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestAutoSaysWhyAndWhatNoBackendCanRunIsRefused(t *testing.T) {
	t.Parallel()
	root := rootFS(t)
	d := start(t, "", func(cfg *hypervisor.Config) { cfg.QEMU = "no-such-qemu" })
	d.call("POST", "/v1/vms", adminToken, object{"name": "a", "memory_mib": 64}).Refused(
		503, "backend_unavailable", "",
	)
	d.call("POST", "/v1/vms", adminToken, object{"name": "a", "memory_mib": 64, "backend": "qemu"}).Refused(
		503, "backend_unavailable", "",
	)
	d.call("POST", "/v1/vms", adminToken, object{"name": "a", "image": root, "backend": "qemu"}).Refused(
		400, "invalid", "image",
	)
	d.call(
		"POST", "/v1/vms", adminToken, object{"name": "a", "image": root, "network": object{"mode": "user"}},
	).Refused(400, "invalid", "network.mode")
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{"name": "a", "image": root}).Want(201))
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+vm.Id+"/events", adminToken, nil).Want(200))
	if why := events[len(events)-1]; why.Kind != "backend" || !strings.Contains(why.Message, "sandbox") {
		t.Errorf("%+v", events)
	}
}
