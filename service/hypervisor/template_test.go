//go:build linux

package hypervisor_test

import (
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// withTemplate makes a template of an image, for VMs such as boot makes unless more says otherwise.
func (d *daemon) withTemplate(name, image string, more object) hypervisorapi.Template {
	d.Helper()
	spec := object{"name": name, "image": image, "memory_mib": 192, "network": false}
	maps.Copy(spec, more)
	d.finished(d.call("POST", "/v1/templates", adminToken, spec))
	return contracttest.As[hypervisorapi.Template](d.call("GET", "/v1/templates/"+url.PathEscape(name), adminToken, nil).Want(200))
}

// events returns the messages of a VM's events, newest first.
func (d *daemon) events(id string) string {
	d.Helper()
	all := contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+id+"/events?limit=1000", adminToken, nil).Want(200))
	var text strings.Builder
	for _, e := range all {
		text.WriteString(e.Kind + ": " + e.Message + "\n")
	}
	return text.String()
}

func TestVMsOfATemplateStartFromItsMemoryWithIdentitiesOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	template := d.withTemplate("warm", "demo", object{"network": true})
	if !template.Usable || template.AgentVersion == "" || template.SizeBytes == 0 || template.Machine != "microvm" ||
		template.Cpu != "max" || template.Accelerator != "tcg" || template.BackendVersion == "" {
		t.Errorf("%+v", template)
	}
	if left := d.vms(); len(left) != 0 {
		t.Errorf("the VM of the template is left: %+v", left)
	}
	user := object{"network": object{"mode": "user"}}
	one, two := d.boot("one", user), d.boot("two_b", user)
	seen := map[string]string{}
	for _, vm := range []hypervisorapi.VM{one, two} {
		if deref(vm.Template) != "warm" || vm.BootedBecause != nil {
			t.Fatalf("it booted: %s\n%s", deref(vm.BootedBecause), d.events(vm.Id))
		}
		if !strings.Contains(d.events(vm.Id), "from the template warm") {
			t.Errorf("its events: %s", d.events(vm.Id))
		}
		if got, want := d.sh(vm.Id, "hostname"), strings.ReplaceAll(vm.Name, "_", "-"); got != want {
			t.Errorf("the host name is %q, want %q", got, want)
		}
		if got, want := d.sh(vm.Id, "cat /etc/machine-id"), strings.ReplaceAll(vm.Id, "-", ""); got != want {
			t.Errorf("the machine id is %q, want %q", got, want)
		}
		if got := d.sh(vm.Id, "cat /sys/class/net/eth0/address"); got != vm.Mac {
			t.Errorf("the guest's MAC is %s, the VM's %s", got, vm.Mac)
		}
		guest, err := time.Parse("2006-01-02 15:04:05", d.sh(vm.Id, "date -u '+%Y-%m-%d %H:%M:%S'"))
		if err != nil || time.Since(guest).Abs() > time.Minute {
			t.Errorf("the guest's clock says %s, %v", guest, err)
		}
		for what, script := range map[string]string{
			"/dev/urandom": "head -c 32 /dev/urandom | sha256sum",
			"a UUID":       "cat /proc/sys/kernel/random/uuid",
			"a secret":     "cat /run/mainstay-guest/secret",
		} {
			got := d.sh(vm.Id, script)
			if other := seen[got]; other != "" {
				t.Errorf("%s of %s is that of %s: %s", what, vm.Name, other, got)
			}
			seen[got] = vm.Name
		}
		d.await(vm.Id, "running")
	}
}
