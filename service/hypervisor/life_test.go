//go:build linux

package hypervisor_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
)

func TestAVMIsStartedPausedResumedStoppedByItsGuestAndDeleted(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"labels": object{"role": "web"}, "disk_gib": 1})
	path := "/v1/vms/" + vm.Id
	if vm.State != "running" || vm.Pid == nil || vm.StartedAt == nil || !vm.Agent.Connected || vm.Agent.Version == "" ||
		vm.Backend != "qemu" {
		t.Errorf("%+v", vm)
	}
	d.call("POST", path+"/start", adminToken, nil).Refused(409, "wrong_state", "")
	d.sh(vm.Id, "(while :; do echo x >>/tmp/ticks; sleep 0.01; done) >/dev/null 2>&1 & sleep 0.2")
	d.call("POST", path+"/pause", adminToken, nil).Want(200)
	d.call("POST", path+"/pause", adminToken, nil).Refused(409, "wrong_state", "")
	before := contracttest.As[hypervisorapi.VMMetrics](d.call("GET", path+"/metrics", adminToken, nil).Want(200))
	time.Sleep(300 * time.Millisecond) // for a guest that stands still to spend something, if it did not
	if now := contracttest.As[hypervisorapi.VMMetrics](
		d.call("GET", path+"/metrics", adminToken, nil).Want(200),
	); now.CpuSeconds-before.CpuSeconds > 0.1 ||
		now.MemoryBytes == 0 {
		t.Errorf("a VM that is paused spent %v s of processor", now.CpuSeconds-before.CpuSeconds)
	}
	d.call("POST", path+"/resume", adminToken, nil).Want(200)
	d.connected(vm.Id)
	stopped := contracttest.As[hypervisorapi.VM](d.call("POST", path+"/stop", adminToken, object{"grace_seconds": 60}).Want(200))
	if stopped.State != "stopped" || stopped.Pid != nil || stopped.StartedAt != nil {
		t.Errorf("%+v", stopped)
	}
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", path+"/events", adminToken, nil).Want(200))
	if !strings.Contains(events[0].Message, "the guest powered off") {
		t.Errorf("it was not the guest that ended: %+v", events[0])
	}
	d.call("POST", path+"/agent/ping", adminToken, nil).Refused(409, "wrong_state", "")
	d.call("GET", path+"/metrics", adminToken, nil).Want(409)
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	d.call("DELETE", path, adminToken, nil).Want(204)
	d.call("GET", path, adminToken, nil).Refused(404, "not_found", "")
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if n := processesOf(t, vm.Id); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// processesOf counts the processes with a VM's id on their command line.
func processesOf(t *testing.T, id string) int {
	t.Helper()
	return len(pidsOf(t, id))
}

// pidsOf are their numbers.
func pidsOf(t *testing.T, id string) (pids []int) {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, path := range commands {
		if raw, err := os.ReadFile(path); err == nil && bytes.Contains(raw, []byte(id)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func TestAGuestThatDoesNotHearIsKilledWhenItsTimeIsOverOrSomebodyHasLessPatience(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	// Nothing boots from an empty disk, so nobody listens to the power button.
	deaf := func(name string) string {
		vm := contracttest.As[hypervisorapi.VM](
			d.call(
				"POST", "/v1/vms", adminToken,
				object{"name": name, "memory_mib": 64, "start": true, "network": object{"mode": "none"}},
			).Want(201),
		)
		d.await(vm.Id, "running")
		return "/v1/vms/" + vm.Id
	}
	one := deaf("one")
	began := time.Now()
	d.call("POST", one+"/stop", adminToken, object{"grace_seconds": 1}).Want(200)
	if took := time.Since(began); took < time.Second {
		t.Errorf("killed after %s of its second", took)
	}
	two := deaf("two")
	patient := make(chan int, 1)
	go func() { patient <- d.call("POST", two+"/stop", adminToken, object{"grace_seconds": 600}).Status }()
	d.await(strings.TrimPrefix(two, "/v1/vms/"), "stopping")
	d.call("POST", two+"/stop", adminToken, object{"force": true}).Want(200)
	if status := <-patient; status != 200 {
		t.Errorf("who had more patience got %d", status)
	}
}

func TestTheEventOfAStartThatFailedTellsWhy(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	need(t, "qemu-system-x86_64", "qemu-img")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}},
		).Want(201),
	)
	if err := os.Truncate(filepath.Join(d.cfg.Data, "vms", vm.Id, "disk.qcow2"), 0); err != nil {
		t.Fatal(err)
	}
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Refused(503, "start_failed", "")
	failed := d.vm(vm.Id)
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+vm.Id+"/events?limit=1", adminToken, nil).Want(200))
	if !strings.Contains(failed.LastError, "Image is not in qcow2 format") || len(events) != 1 ||
		!strings.HasSuffix(events[0].Message, failed.LastError) {
		t.Errorf("%q, %+v", failed.LastError, events)
	}
}

func TestAVMWhoseProcessDiesHasFailedAndCanBeStartedAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", nil)
	if err := syscall.Kill(*vm.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	failed := d.await(vm.Id, "failed")
	if failed.LastError == "" || failed.Pid != nil {
		t.Errorf("%+v", failed)
	}
	if again := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200),
	); again.LastError != "" ||
		again.State != "running" {
		t.Errorf("%+v", again)
	}
	d.connected(vm.Id)
}

func TestVMsOutliveTheDaemonAndWhatHappenedMeanwhileIsNoticed(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	var ids []string
	for _, name := range []string{"stays", "paused", "ends", "dies"} {
		vm := contracttest.As[hypervisorapi.VM](
			d.call("POST", "/v1/vms", adminToken, object{
				"name":       name,
				"image":      "demo",
				"memory_mib": 160,
				"network":    object{"mode": "none"},
				"start":      true,
			}).Want(201),
		)
		ids = append(ids, vm.Id)
	}
	for _, id := range ids {
		d.connected(id)
	}
	d.call("POST", "/v1/vms/"+ids[1]+"/pause", adminToken, nil).Want(200)
	pids := map[string]int{} // while all of them have one
	for _, id := range ids {
		pids[id] = *d.vm(id).Pid
	}
	d.alone(ids[2], "sleep 0.5; poweroff -f")
	d.restart(func() {
		if err := syscall.Kill(pids[ids[3]], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		time.Sleep(1500 * time.Millisecond) // the guest powers off in its own time
	})
	d.connected(ids[0])
	if vm := d.vm(ids[0]); *vm.Pid != pids[ids[0]] || vm.State != "running" {
		t.Errorf("%+v", vm)
	}
	if vm := d.vm(ids[1]); vm.State != "paused" || *vm.Pid != pids[ids[1]] {
		t.Errorf("%+v", vm)
	}
	d.call("POST", "/v1/vms/"+ids[1]+"/resume", adminToken, nil).Want(200)
	d.connected(ids[1])
	d.await(ids[2], "stopped")
	if events := contracttest.As[[]hypervisorapi.Event](
		d.call("GET", "/v1/vms/"+ids[2]+"/events?limit=1", adminToken, nil),
	); !strings.Contains(events[0].Message, "powered off") {
		t.Errorf("%+v", events)
	}
	d.await(ids[3], "stopped")
}

func TestAVMWithATimeToLiveIsDeletedWhenItIsOver(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms", adminToken, object{"name": "short", "memory_mib": 64, "ttl_seconds": 3600}).Want(201),
	)
	if vm.ExpiresAt == nil || vm.ExpiresAt.Sub(vm.CreatedAt) != time.Hour {
		t.Errorf("%+v", vm)
	}
	d.ahead(2 * time.Hour)
	d.restart(nil) // which looks at once
	deadline := time.Now().Add(time.Minute)
	for d.call("GET", "/v1/vms/"+vm.Id, adminToken, nil).Status != 404 {
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
		time.Sleep(20 * time.Millisecond) // the daemon deletes it on its own
	}
}

func TestEnabledVMsStartWithTheHostAndNotWithTheDaemon(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	make := func(name string, autostart bool) string {
		return contracttest.As[hypervisorapi.VM](
			d.call(
				"POST", "/v1/vms", adminToken,
				object{"name": name, "memory_mib": 64, "autostart": autostart, "network": object{"mode": "none"}},
			).Want(201),
		).Id
	}
	on, off := make("on", true), make("off", false)
	d.call("POST", "/v1/vms/"+off+"/enable", adminToken, nil).Want(200)
	d.call("POST", "/v1/vms/"+off+"/disable", adminToken, nil).Want(200)
	d.restart(nil)
	if vm := d.vm(on); vm.State != "stopped" {
		t.Errorf("after the daemon's restart: %s", vm.State)
	}
	d.restart(func() {
		if err := os.WriteFile(filepath.Join(d.cfg.Data, "boot"), []byte("an earlier boot"), 0o600); err != nil {
			t.Error(err)
		}
	})
	d.await(on, "running")
	if vm := d.vm(off); vm.State != "stopped" {
		t.Errorf("one that is not enabled is %s", vm.State)
	}
}

func TestACopyThatAKilledDaemonLeftGoesThoughNobodyRepeatsTheOperation(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken, object{"name": "one", "memory_mib": 64, "network": object{"mode": "none"}},
		).Want(201),
	)
	left := filepath.Join(d.cfg.Data, "vms", vm.Id, "copy.qcow2")
	d.restart(func() {
		if err := os.WriteFile(left, []byte("half a disk"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	d.call("POST", "/v1/vms/"+vm.Id+"/enable", adminToken, nil).Want(200) // changes wait until all is brought back
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

func TestFilesOfAnySizeGoIntoAGuestAndComeBack(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", object{"memory_mib": 512})
	content := make([]byte, 100<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content) // it never fails
	put := contracttest.As[hypervisorapi.File](
		d.call("POST", "/v1/vms/"+vm.Id+"/agent/put-file?path=/tmp/big&mode=0640", adminToken, content).Want(200),
	)
	if put.Size != int64(len(content)) || put.Mode != "0640" ||
		!strings.HasPrefix(d.sh(vm.Id, "sha256sum /tmp/big; stat -c %a /tmp/big"), put.Sha256) {
		t.Errorf("%+v", put)
	}
	got := d.call("POST", "/v1/vms/"+vm.Id+"/agent/get-file", adminToken, object{"path": "/tmp/big"}).Want(200)
	if got.Body != string(content) || got.Header.Get("X-File-Mode") != "0640" {
		t.Errorf("%d bytes, mode %s", len(got.Body), got.Header.Get("X-File-Mode"))
	}
	d.call("POST", "/v1/vms/"+vm.Id+"/agent/put-file?path=relative", adminToken, []byte("x")).Refused(
		400, "invalid", "path",
	)
	d.call("POST", "/v1/vms/"+vm.Id+"/agent/put-file?path=/a&mode=rw", adminToken, []byte("x")).Refused(
		400, "invalid", "mode",
	)
	d.call("POST", "/v1/vms/"+vm.Id+"/agent/get-file", adminToken, object{"path": "/nope"}).Refused(
		400, "agent_not_found", "",
	)
}

func TestAProgramsOutputIsStreamedAndItsEndIsTold(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", nil)
	exec := func(body object) answer { return d.call("POST", "/v1/vms/"+vm.Id+"/agent/exec", adminToken, body) }
	out := contracttest.As[hypervisorapi.ExecOutcome](
		exec(object{
			"argv":  []string{"sh", "-c", "cat; echo $A; pwd; echo e >&2; exit 3"},
			"stdin": "in\n",
			"env":   object{"A": "b c"},
			"cwd":   "/tmp",
		}).Want(200),
	)
	if out.Stdout != "in\nb c\n/tmp\n" || out.Stderr != "e\n" || out.ExitCode != 3 {
		t.Errorf("%+v", out)
	}
	if out := contracttest.As[hypervisorapi.ExecOutcome](
		exec(object{"argv": []string{"sh", "-c", "kill -9 $$"}}).Want(200),
	); out.ExitCode != 128+9 {
		t.Errorf("%+v", out)
	}
	if out := contracttest.As[hypervisorapi.ExecOutcome](
		exec(object{"argv": []string{"sh", "-c", "head -c 3000000 /dev/zero"}}).Want(200),
	); !out.Truncated ||
		len(out.Stdout) != 1<<20 {
		t.Errorf("%d bytes, truncated %v", len(out.Stdout), out.Truncated)
	}
	streamed := exec(object{"argv": []string{"sh", "-c", "echo a; sleep 0.2; echo b >&2; exit 4"}, "stream": true})
	lines := strings.Split(strings.TrimSpace(streamed.Want(200).Body), "\n")
	if got := strings.Join(lines, " "); got != `{"data":"YQo=","stream":"stdout"} {"data":"Ygo=","stream":"stderr"} {"exit_code":4}` {
		t.Errorf("%s", got)
	}
	late := exec(object{"argv": []string{"sleep", "60"}, "timeout_seconds": 1, "stream": true}).Want(200)
	if !strings.Contains(late.Body, "the time was over") {
		t.Errorf("%s", late.Body)
	}
	exec(object{"argv": []string{}}).Refused(400, "invalid", "argv")
	exec(object{"argv": []string{"nope"}}).Refused(400, "agent_not_found", "")
	exec(object{"argv": []string{"sh"}, "env": object{"A=B": "c"}}).Refused(400, "invalid", "env")
}

func TestListsArePagedAndFilteredByLabelStateAndTenant(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	for i := range 7 {
		d.call("POST", "/v1/vms", adminToken, object{
			"name":       fmt.Sprintf("vm-%d", i),
			"memory_mib": 64,
			"tenant":     []string{"acme", "other"}[i%2],
			"labels":     object{"odd": fmt.Sprint(i % 2), "all": "yes"},
		}).Want(201)
	}
	names := func(path, token string) string {
		t.Helper()
		var all []string
		for path != "" {
			a := d.call("GET", path, token, nil).Want(200)
			for _, vm := range contracttest.As[[]hypervisorapi.VM](a) {
				all = append(all, strings.TrimPrefix(vm.Name, "vm-"))
			}
			path = ""
			if link := a.Header.Get("Link"); link != "" {
				path = strings.TrimPrefix(link[1:strings.Index(link, ">")], d.url)
			}
		}
		return strings.Join(all, "")
	}
	for path, want := range map[string]string{
		"/v1/vms": "0123456", "/v1/vms?limit=2": "0123456", "/v1/vms?label=odd=1&limit=1": "135", "/v1/vms?label=odd=1&label=all=yes": "135", "/v1/vms?label=odd=7": "",
		"/v1/vms?tenant=acme": "0246", "/v1/vms?state=running": "", "/v1/vms?state=stopped&limit=3": "0123456",
	} {
		if got := names(path, adminToken); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := names("/v1/vms?limit=1", acmeToken); got != "0246" {
		t.Errorf("the tenant sees %s", got)
	}
	if got := names("/v1/vms?tenant=other", acmeToken); got != "" {
		t.Errorf("the tenant sees of another %s", got)
	}
	d.call("GET", "/v1/vms?label=x", adminToken, nil).Refused(400, "invalid", "label")
	d.call("GET", "/v1/vms?limit=0", adminToken, nil).Refused(400, "invalid", "limit")
}

func TestAVMBootsByUEFIAndKeepsItsOwnVariables(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	if plan.Firmware() == "" {
		require.Missing(t, "ovmf is not installed")
	}
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 256, "firmware": "uefi", "network": object{"mode": "none"}},
		).Want(201),
	)
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	ticket := contracttest.As[hypervisorapi.Ticket](d.call("POST", path+"/tickets", adminToken, nil).Want(201)).Ticket
	conn := d.dial(path + "/console?ticket=" + ticket)
	defer func() { _ = conn.CloseNow() }()
	for seen := ""; !strings.Contains(seen, "BdsDxe"); { // the part of UEFI that looks for what to boot
		seen += string(socketReader{t, conn}.read())
	}
	if info, err := os.Stat(filepath.Join(d.cfg.Data, "vms", vm.Id, "vars.fd")); err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	d.call("POST", "/v1/vms", adminToken, object{"name": "two", "memory_mib": 64, "firmware": "/etc/passwd"}).Refused(
		400, "invalid", "firmware",
	)
}

func TestWaitingForAVMOfAnotherTenantDoesNotDisturbIt(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument)
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", acmeToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}},
		).Want(201),
	)
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/start", acmeToken, nil).Want(200)
	d.call("GET", path+"/wait?state=running&timeout=1", otherToken, nil).Refused(404, "not_found", "")
	d.call("GET", "/v1/vms/made-up/wait?state=running&timeout=1", otherToken, nil).Refused(404, "not_found", "")
	d.call("GET", path+"/metrics", acmeToken, nil).Want(200) // the daemon still knows its process
	d.call("POST", path+"/stop", acmeToken, object{"force": true}).Want(200)
	if got := d.vm(vm.Id); got.State != "stopped" {
		t.Errorf("the VM is %s", got.State)
	}
}
