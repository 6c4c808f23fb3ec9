//go:build linux

package hypervisor_test

import (
	"strings"
	"syscall"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestARestartAsksTheGuestAndGivesItANewProcess(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", nil)
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/pause", adminToken, nil).Want(200) // also a paused VM restarts
	again := contracttest.As[hypervisorapi.VM](
		d.call("POST", path+"/restart", adminToken, object{"grace_seconds": 60}).Want(200),
	)
	if again.State != "running" || *again.Pid == *vm.Pid {
		t.Errorf("%+v, was process %d", again, *vm.Pid)
	}
	d.connected(vm.Id)
	if !d.happened(vm.Id, "the guest powered off") || !d.happened(vm.Id, "starting, was stopped: it restarts") {
		t.Error("the events do not tell of a restart")
	}
	d.call("POST", path+"/stop", adminToken, nil).Want(200)
	d.call("POST", path+"/restart", adminToken, nil).Refused(409, "wrong_state", "")
	refused := d.call("POST", path+"/reset", adminToken, nil).Refused(409, "wrong_state", "").Problem()
	if refused.Message != "the VM is stopped; it cannot be reset now" {
		t.Error(refused.Message)
	}
}

func TestAResetRestartsTheGuestInTheSameProcess(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", nil)
	d.sh(vm.Id, "echo x >/tmp/in-memory")
	after := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms/"+vm.Id+"/reset", adminToken, nil).Want(200),
	)
	if after.State != "running" || *after.Pid != *vm.Pid {
		t.Errorf("%+v, was process %d", after, *vm.Pid)
	}
	d.connected(vm.Id)
	if left := d.sh(vm.Id, "ls /tmp"); strings.Contains(left, "in-memory") {
		t.Errorf("the guest was not reset: /tmp has %q", left)
	}
}

func TestTheLatestOfAStopAndARestartCounts(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.deaf(adminToken, "one", nil)
	path := "/v1/vms/" + vm.Id
	during := func(patient, then string) (first, second answer) {
		t.Helper()
		answers := make(chan answer, 1)
		go func() { answers <- d.call("POST", path+"/"+patient, adminToken, object{"grace_seconds": 600}) }()
		d.await(vm.Id, "stopping")
		second = d.call("POST", path+"/"+then, adminToken, object{"force": true})
		return <-answers, second
	}
	first, second := during("restart", "stop")
	second.Want(200)
	first.Want(409)
	if got := d.vm(vm.Id); got.State != "stopped" {
		t.Fatalf("a stop during a restart leaves the VM %s", got.State)
	}
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	first, second = during("stop", "restart")
	second.Want(200)
	first.Want(200)
	if got := d.vm(vm.Id); got.State != "running" {
		t.Errorf("a restart during a stop leaves the VM %s", got.State)
	}
}

func TestARestartIsCompletedByTheNextDaemon(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	waiting := d.deaf(adminToken, "waiting", nil)
	over := d.deaf(adminToken, "over", nil)
	end := func(vm hypervisorapi.VM) {
		t.Helper()
		if err := syscall.Kill(*vm.Pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	kill := d.mortal()
	for _, vm := range []hypervisorapi.VM{waiting, over} {
		go d.attempt("POST", "/v1/vms/"+vm.Id+"/restart", object{"grace_seconds": 600})
		d.await(vm.Id, "stopping")
	}
	kill()
	end(over) // it ends while no daemon is there
	d.run()
	if got := d.await(over.Id, "running"); *got.Pid == *over.Pid {
		t.Errorf("%+v", got)
	}
	if got := d.vm(waiting.Id); got.State != "stopping" || *got.Pid != *waiting.Pid {
		t.Errorf("the guest that has time is not waited for: %+v", got)
	}
	end(waiting) // it ends before its time is over
	if got := d.await(waiting.Id, "running"); *got.Pid == *waiting.Pid {
		t.Errorf("%+v", got)
	}
}

func TestADeletedVMDoesNotRestart(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.deaf(adminToken, "one", nil)
	answers := make(chan answer, 1)
	go func() {
		answers <- d.call("POST", "/v1/vms/"+vm.Id+"/restart", adminToken, object{"grace_seconds": 600})
	}()
	d.await(vm.Id, "stopping")
	d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
	if got := <-answers; got.Status != 404 && got.Status != 409 {
		t.Errorf("the restart got %d %s", got.Status, got.Body)
	}
	if n := processesOf(t, vm.Id); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}
