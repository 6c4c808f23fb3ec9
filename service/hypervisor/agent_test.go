//go:build linux

package hypervisor_test

import (
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// agentIs waits until a VM's agent is shown as connected, or as not, without asking it anything.
func (d *daemon) agentIs(id string, connected bool) {
	d.Helper()
	for deadline := time.Now().Add(90 * time.Second); d.vm(id).Agent.Connected != connected; {
		if time.Now().After(deadline) {
			d.Fatalf("connected is still %v: %+v", !connected, d.vm(id))
		}
		time.Sleep(10 * time.Millisecond) // the guest does it in its own time
	}
}

// quiesced makes a backup, and says how.
func (d *daemon) quiesced(id string) {
	d.Helper()
	d.finished(d.call("POST", "/v1/vms/"+id+"/backups", adminToken, nil))
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+id+"/events?limit=1", adminToken, nil).Want(200))
	if !strings.Contains(events[0].Message, "with the guest's file systems at rest") {
		d.Errorf("the backup: %s", events[0].Message)
	}
}

func TestTheAgentIsBackAfterItsGuestWasRebootedAndBackupsAreQuiescedAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	vm := d.bootWithDisk("one")
	d.sh(vm.Id, mounted)
	d.quiesced(vm.Id)
	d.alone(vm.Id, "sleep 2; reboot -f")
	d.agentIs(vm.Id, false)
	d.agentIs(vm.Id, true)
	if got := d.sh(vm.Id, "ls /tmp"); got != "" {
		t.Errorf("the guest was not rebooted: it has %s", got)
	}
	d.sh(vm.Id, mounted)
	d.quiesced(vm.Id)
}

func TestAnAgentThatIsStartedAnewIsMetAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	vm := d.boot("one", nil)
	for range 3 {
		before := d.sh(vm.Id, "cat /tmp/agent 2>/dev/null || true")
		d.alone(
			vm.Id,
			"sleep 2; kill -9 $(ps | grep [m]ainstay-guest | head -n 1 | awk \"{print \\$1}\"); echo x >>/tmp/agent; mainstay-guest >/dev/console 2>&1",
		)
		// It may be gone for a moment only, which nobody need see.
		after := ""
		for deadline := time.Now().Add(90 * time.Second); len(after) <= len(before); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				d.Fatalf("the agent is not found again: %+v; the console:\n%s", d.vm(vm.Id), d.printed(vm.Id))
			}
			a := d.call(
				"POST", "/v1/vms/"+vm.Id+"/agent/exec", adminToken, object{"argv": []string{"cat", "/tmp/agent"}},
			)
			if a.Status == 200 {
				after = contracttest.As[hypervisorapi.ExecOutcome](a).Stdout
			}
		}
		d.agentIs(vm.Id, true)
	}
}

// printed is what a VM has printed last on its console.
func (d *daemon) printed(id string) string {
	d.Helper()
	ticket := contracttest.As[hypervisorapi.Ticket](d.call("POST", "/v1/vms/"+id+"/tickets", adminToken, nil).Want(201)).Ticket
	conn := d.dial("/v1/vms/" + id + "/console?ticket=" + ticket)
	defer func() { _ = conn.CloseNow() }()
	_, b, _ := conn.Read(d.Context()) // the last of it comes at once
	return string(b)
}
