//go:build linux

package hypervisor_test

import (
	"bytes"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
		// It asks for an address of its own, and reaches out.
		d.sh(vm.Id, "for i in $(seq 300); do ip route | grep -q '^default via 10.0.2.2' && exit; sleep 0.1; done; ip addr; exit 1")
	}
}

// hasNoTemplateFiles fails if something of a template is on disk.
func (d *daemon) hasNoTemplateFiles() {
	d.Helper()
	for _, pattern := range []string{"templates/*", "bases/*"} {
		if left, err := filepath.Glob(filepath.Join(d.cfg.Data, pattern)); err != nil || len(left) > 0 {
			d.Errorf("left behind: %v, %v", left, err)
		}
	}
}

func (d *daemon) templates() []hypervisorapi.Template {
	d.Helper()
	return contracttest.As[[]hypervisorapi.Template](d.call("GET", "/v1/templates", acmeToken, nil).Want(200))
}

func TestAVMThatDoesNotFitATemplateBootsAndSaysWhy(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	d.withTemplate("warm", "demo", nil)
	for name, it := range map[string]struct {
		spec object
		why  string
	}{
		"memory":  {object{"memory_mib": 200}, "192 MiB of memory, and the VM 200 MiB"},
		"vcpus":   {object{"vcpus": 2}, "it has 1 processors, and the VM 2"},
		"network": {object{"network": object{"mode": "user"}}, "it has no network device"},
		"disk":    {object{"disk_gib": 1}, "it has no disk"},
		"args":    {object{"kernel_args": "console=ttyS0 quiet x"}, "it has other devices, or boots otherwise"},
		"data":    {object{"cloud_init": object{"user_data": "#cloud-config\n"}}, "are applied by a boot"},
		"agent":   {object{"agent": object{"enabled": false}}, "without an agent"},
		"asked":   {object{"memory_mib": 200, "template": "warm"}, "192 MiB of memory, and the VM 200 MiB"},
	} {
		spec := object{"name": name, "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "start": true}
		maps.Copy(spec, it.spec)
		vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, spec).Want(201))
		vm = d.await(vm.Id, "running")
		if vm.Template != nil || !strings.Contains(deref(vm.BootedBecause), it.why) || !d.happened(vm.Id, it.why) {
			t.Errorf("%s: %q %q", name, deref(vm.Template), deref(vm.BootedBecause))
		}
		d.call("DELETE", "/v1/vms/"+vm.Id, acmeToken, nil).Want(204)
	}
	// Without an answer to why, since nobody asked for a template.
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "off", "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "start": true, "instant": false,
	}).Want(201))
	if vm = d.await(vm.Id, "running"); vm.Template != nil || vm.BootedBecause != nil {
		t.Errorf("%+v", vm)
	}
	// A start with options boots, and so does every later one.
	vm = contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "later", "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "template": "warm",
	}).Want(201))
	vm = contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms/"+vm.Id+"/start", acmeToken, nil).Want(200))
	if deref(vm.Template) != "warm" {
		t.Errorf("%+v", vm)
	}
	d.connected(vm.Id)
	d.call("POST", "/v1/vms/"+vm.Id+"/stop", acmeToken, object{"force": true}).Want(200)
	vm = contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms/"+vm.Id+"/start", acmeToken, nil).Want(200))
	if vm.Template != nil || vm.BootedBecause != nil {
		t.Errorf("its second start: %+v", vm)
	}
}

func TestRequestsForTemplatesThatMakeNoSenseChangeNothing(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument+"[images]\nmax_templates = 1\n").withDemo()
	d.finished(d.call("POST", "/v1/images/catalog/disk/upload", adminToken, make([]byte, 1<<20)))
	spec := func(name, image string) object { return object{"name": name, "image": image, "memory_mib": 64} }
	d.call("POST", "/v1/templates", adminToken, spec("a", "/etc/passwd")).Refused(400, "invalid", "image")
	d.call("POST", "/v1/templates", adminToken, spec("a", "none")).Refused(400, "invalid", "image")
	for _, name := range []string{"", "../x", "-a", "a/b", "a b", "ä", strings.Repeat("x", 129)} {
		d.call("POST", "/v1/templates", adminToken, spec(name, "demo")).Want(400)
	}
	d.call("POST", "/v1/templates", adminToken, object{"image": "demo", "memory_mib": 1}).Want(400)
	d.call("POST", "/v1/templates", acmeToken, spec("a", "demo")).Refused(403, "denied", "")
	d.call("GET", "/v1/templates/none", acmeToken, nil).Refused(404, "not_found", "")
	d.call("DELETE", "/v1/templates/none", adminToken, nil).Refused(404, "not_found", "")
	vm := object{"name": "x", "image": "demo", "template": "none"}
	d.call("POST", "/v1/vms", acmeToken, vm).Refused(400, "invalid", "template")
	d.call("POST", "/v1/vms", acmeToken, object{"name": "x", "image": "demo", "template": "none", "instant": false}).
		Refused(400, "invalid", "template")
	if all := d.templates(); len(all) != 0 || len(d.vms()) != 0 {
		t.Errorf("%+v", all)
	}
	d.hasNoTemplateFiles()
	// Two of one name, and one too many.
	d.withTemplate("warm", "demo", nil)
	d.call("POST", "/v1/templates", adminToken, spec("warm", "demo")).Refused(409, "name_taken", "")
	d.call("POST", "/v1/templates", adminToken, spec("more", "demo")).Refused(409, "too_many_templates", "")
	// The image of a template stays, unless another has its content.
	d.call("DELETE", "/v1/images/catalog/demo", adminToken, nil).Refused(409, "image_in_use", "")
	d.call("POST", "/v1/images/catalog/demo/clone", adminToken, object{"name": "again"}).Want(201)
	d.call("DELETE", "/v1/images/catalog/demo", adminToken, nil).Want(204)
	d.call("DELETE", "/v1/templates/warm", acmeToken, nil).Refused(403, "denied", "")
	d.call("DELETE", "/v1/templates/warm", adminToken, nil).Want(204)
	d.hasNoTemplateFiles()
	d.call("DELETE", "/v1/images/catalog/again", adminToken, nil).Want(204)
}

func TestTwoTemplatesOfOneNameBecomeOne(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	spec := object{"name": "warm", "image": "demo", "memory_mib": 192}
	var ended []string
	for _, a := range []answer{
		d.call("POST", "/v1/templates", adminToken, spec), d.call("POST", "/v1/templates", adminToken, spec),
	} {
		op := contracttest.As[hypervisorapi.Operation](a.Want(202))
		op = contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil).Want(200))
		ended = append(ended, string(op.State)+" "+op.Error)
	}
	slices.Sort(ended)
	if want := []string{"failed there is a template named warm already", "succeeded "}; !slices.Equal(ended, want) {
		t.Error(ended)
	}
	if all := d.templates(); len(all) != 1 || len(d.vms()) != 0 {
		t.Errorf("%+v, %+v", all, d.vms())
	}
	folders, err := filepath.Glob(filepath.Join(d.cfg.Data, "templates", "*"))
	if err != nil || len(folders) != 1 {
		t.Errorf("%v, %v", folders, err)
	}
}

func TestATemplateThatIsDamagedOrGoneOrOfAnotherImageIsNotUsed(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	template := d.withTemplate("warm", "demo", nil)
	folder := filepath.Join(d.cfg.Data, "templates", template.Id)
	spec := func(name string) object {
		return object{"name": name, "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "template": "warm"}
	}
	boots := func(name, why string) {
		t.Helper()
		vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, spec(name)).Want(201))
		vm = contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms/"+vm.Id+"/start", acmeToken, nil).Want(200))
		if vm.Template != nil || !strings.Contains(deref(vm.BootedBecause), why) {
			t.Errorf("%s: %q %q", name, deref(vm.Template), deref(vm.BootedBecause))
		}
		d.connected(vm.Id)
		d.call("DELETE", "/v1/vms/"+vm.Id, acmeToken, nil).Want(204)
	}
	for _, name := range []string{"memory", "state"} {
		path := filepath.Join(folder, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)/2] ^= 1
		for damage, content := range map[string][]byte{"flipped": bad, "cut": good[:len(good)/2], "empty": nil} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			boots(name+"-"+damage, "its file "+name+" is damaged")
			if now := d.templates()[0]; now.Usable || !strings.Contains(now.Detail, "its file "+name+" is damaged; delete it") {
				t.Errorf("%s-%s: %+v", name, damage, now)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		boots(name+"-missing", "its file "+name+" is missing")
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if now := d.templates()[0]; !now.Usable || now.Detail != "" {
		t.Errorf("with its files back: %+v", now)
	}
	if vm := d.boot("good", nil); deref(vm.Template) != "warm" {
		t.Errorf("as before: %+v", vm)
	}
	// What is damaged once it is in memory changes nothing.
	if err := os.Truncate(filepath.Join(folder, "memory"), 0); err != nil {
		t.Fatal(err)
	}
	if vm := d.boot("held", nil); deref(vm.Template) != "warm" {
		t.Errorf("from memory: %+v", vm)
	}
	// The image is another one now.
	d.call("POST", "/v1/images/catalog/demo/rename", adminToken, object{"name": "old"}).Want(200)
	guest := bootable(t)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "demo", "kernel": guest.Kernel}))
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, spec("other")).Want(201))
	vm = contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms/"+vm.Id+"/start", acmeToken, nil).Want(200))
	if vm.Template != nil || !strings.Contains(deref(vm.BootedBecause), "is of another image") {
		t.Errorf("%+v", vm)
	}
	// Deleted between the creation and the start.
	last := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, spec("last")).Want(201))
	d.call("DELETE", "/v1/templates/warm", adminToken, nil).Want(204)
	last = contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms/"+last.Id+"/start", acmeToken, nil).Want(200))
	if last.Template != nil || !strings.Contains(deref(last.BootedBecause), "is deleted") {
		t.Errorf("%+v", last)
	}
	if got := d.sh(d.vms()[0].Id, "echo fine"); got != "fine" { // one that started from it
		t.Error(got)
	}
}

func TestAVMOfATemplateIsLikeAnyOtherAfterwards(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	d.withTemplate("warm", "demo", nil)
	vm := d.boot("one", nil)
	path := "/v1/vms/" + vm.Id
	if deref(vm.Template) != "warm" {
		t.Fatalf("it booted: %+v", vm)
	}
	d.sh(vm.Id, "echo mine >/tmp/mine")
	d.call("POST", path+"/pause", adminToken, nil).Want(200)
	d.call("POST", path+"/resume", adminToken, nil).Want(200)
	d.connected(vm.Id)
	// The daemon comes back, and the agent has the VM's secret.
	d.restart(nil)
	d.connected(vm.Id)
	if got := d.sh(vm.Id, "cat /tmp/mine"); got != "mine" {
		t.Errorf("%q", got)
	}
	if again := d.vm(vm.Id); deref(again.Template) != "warm" || *again.Pid != *vm.Pid {
		t.Errorf("%+v", again)
	}
	d.call("POST", path+"/reset", adminToken, nil).Want(200)
	d.connected(vm.Id)
	if left := d.sh(vm.Id, "ls /tmp"); strings.Contains(left, "mine") {
		t.Errorf("it was not reset: %q", left)
	}
	if got := d.sh(vm.Id, "hostname"); got != "demo" { // it booted, and this guest knows no other name
		t.Errorf("%q", got)
	}
	// The other VMs of the template do not have what this one changed in the memory.
	if got := d.sh(d.boot("two", nil).Id, "ls /tmp"); strings.Contains(got, "mine") {
		t.Errorf("the memory of another VM: %q", got)
	}
	if vm := contracttest.As[hypervisorapi.VM](
		d.call("POST", path+"/stop", adminToken, object{"grace_seconds": 60}).Want(200),
	); vm.State != "stopped" || vm.Template != nil {
		t.Errorf("%+v", vm)
	}
}
