//go:build linux

package hypervisor_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// templateVM waits until the VM of a template that is being made has a process, and returns it.
func (d *daemon) templateVM() hypervisorapi.VM {
	d.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, vm := range d.vms() {
			if strings.HasPrefix(vm.Name, "template-") && processesOf(d.T, vm.Id) > 0 {
				return vm
			}
		}
	}
	d.Fatal("no VM for the template")
	return hypervisorapi.VM{}
}

func TestATemplateWhoseDaemonIsKilledIsMadeAfterwardsAndLeavesNothingElse(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	for _, wait := range []time.Duration{0, 1500 * time.Millisecond, 3 * time.Second, 4500 * time.Millisecond} {
		name := fmt.Sprint("after-", wait.Milliseconds())
		kill := d.mortal()
		op := contracttest.As[hypervisorapi.Operation](
			d.call("POST", "/v1/templates", adminToken, object{"name": name, "image": "demo", "memory_mib": 192}).Want(202),
		)
		vm := d.templateVM()
		time.Sleep(wait) // anywhere between the start of its process and the end of the operation
		kill()
		d.run()
		op = contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil).Want(200))
		if op.State != "succeeded" {
			t.Errorf("%s: %+v", name, op)
		}
		if n := processesOf(t, vm.Id); n > 0 {
			t.Errorf("%s: %d processes are left", name, n)
		}
		if left := d.vms(); len(left) > 0 {
			t.Errorf("%s: VMs are left: %+v", name, left)
		}
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "one", "image": "demo", "memory_mib": 192, "start": true, "template": "after-1500",
	}).Want(201))
	d.connected(vm.Id)
	if vm = d.vm(vm.Id); deref(vm.Template) != "after-1500" {
		t.Errorf("%+v", vm)
	}
	for _, template := range d.templates() {
		d.call("DELETE", "/v1/templates/"+template.Name, adminToken, nil).Want(204)
	}
	d.hasNoTemplateFiles()
}

func TestAVMOfATemplateWhoseDaemonIsKilledComesUpOnce(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	d.withTemplate("warm", "demo", nil)
	for _, wait := range []time.Duration{0, 60 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond} {
		kill := d.mortal()
		vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
			"name": fmt.Sprint("after-", wait.Milliseconds()), "image": "demo", "memory_mib": 192, "start": true,
			"network": object{"mode": "none"},
		}).Want(201))
		time.Sleep(wait) // anywhere in its start
		kill()
		d.run()
		d.connected(vm.Id)
		if n := processesOf(t, vm.Id); n != 1 {
			t.Errorf("after %s: %d processes", wait, n)
		}
		if got, want := d.sh(vm.Id, "cat /etc/machine-id"), strings.ReplaceAll(vm.Id, "-", ""); got != want {
			t.Errorf("after %s: the machine id is %q, want %q; %s", wait, got, want, d.events(vm.Id))
		}
	}
}

func TestATemplateThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	op := contracttest.As[hypervisorapi.Operation](
		d.call("POST", "/v1/templates", adminToken, object{"name": "warm", "image": "demo", "memory_mib": 192}).Want(202),
	)
	vm := d.templateVM()
	// Nobody gets into it.
	d.call("POST", "/v1/vms/"+vm.Id+"/agent/exec", adminToken, object{"argv": []string{"id"}}).Refused(409, "wrong_state", "")
	d.call("POST", "/v1/vms/"+vm.Id+"/stop", adminToken, nil).Refused(409, "wrong_state", "")
	d.call("POST", "/v1/operations/"+op.Id+"/cancel", adminToken, nil).Want(200)
	op = contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil).Want(200))
	if op.State != "cancelled" || len(d.vms()) > 0 || len(d.templates()) > 0 || processesOf(t, vm.Id) > 0 {
		t.Errorf("%+v, %+v, %+v", op, d.vms(), d.templates())
	}
	d.hasNoTemplateFiles()
	// So does one whose VM is deleted.
	again := d.call("POST", "/v1/templates", adminToken, object{"name": "warm", "image": "demo", "memory_mib": 192})
	vm = d.templateVM()
	d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
	d.failed(again)
	if len(d.vms()) > 0 || processesOf(t, vm.Id) > 0 {
		t.Errorf("%+v", d.vms())
	}
	d.hasNoTemplateFiles()
}

func TestATemplateMayBeDeletedWhileVMsAreMadeOfIt(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	d.withTemplate("warm", "demo", nil)
	ids := make(chan string, 6)
	var making sync.WaitGroup
	for i := range cap(ids) {
		making.Go(func() {
			a := d.call("POST", "/v1/vms", acmeToken, object{
				"name": fmt.Sprint("vm", i), "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "start": true,
			})
			if a.Status != 201 {
				t.Errorf("%d %s", a.Status, a.Body)
				return
			}
			ids <- contracttest.As[hypervisorapi.VM](a).Id
		})
	}
	first := <-ids
	d.call("DELETE", "/v1/templates/warm", adminToken, nil).Want(204)
	making.Wait()
	close(ids)
	all := []string{first}
	for id := range ids {
		all = append(all, id)
	}
	for _, id := range all {
		d.connected(id)
		if got, want := d.sh(id, "uname -s"), "Linux"; got != want {
			t.Errorf("%q", got)
		}
	}
	d.hasNoTemplateFiles()
}
