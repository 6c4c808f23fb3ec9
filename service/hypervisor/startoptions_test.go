//go:build linux

package hypervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

func TestOptionsHoldForOneStartAlsoIfTheDaemonIsKilled(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument).withDemo()
	guest := bootable(t)
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "one", "disk_gib": 1, "memory_mib": 192, "network": object{"mode": "none"},
	}).Want(201)) // it has nothing to boot
	path := "/v1/vms/" + vm.Id
	const args = "console=ttyS0 reboot=t panic=-1 quiet once=1"
	started := contracttest.As[hypervisorapi.VM](d.call("POST", path+"/start", adminToken, object{
		"kernel": guest.Kernel, "initrd": guest.Initrd, "kernel_args": args,
		"extra_args": []string{"-rtc", "base=2001-02-03T04:05:06"},
	}).Want(200))
	if started.StartedWith == nil || deref(started.StartedWith.Kernel) != guest.Kernel || deref(started.Kernel) != "" {
		t.Errorf("%+v", started)
	}
	check := func(when string) {
		t.Helper()
		d.connected(vm.Id)
		if got := d.sh(vm.Id, "cat /proc/cmdline; date +%Y-%m-%d"); !strings.Contains(got, "once=1") ||
			!strings.HasSuffix(got, "2001-02-03") {
			t.Errorf("%s, the guest runs with %q", when, got)
		}
		if now := d.vm(vm.Id); now.StartedWith == nil {
			t.Errorf("%s, the options are forgotten", when)
		}
	}
	check("started")
	kill := d.mortal()
	kill()
	d.run()
	check("after kill -9")
	// The daemon is killed between the move and the process: it starts the VM alike.
	pid := d.vm(vm.Id).Pid
	d.stop()
	if err := syscall.Kill(*pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tamper(t, d.cfg.Data, "UPDATE vms SET state = 'starting'")
	d.run()
	check("started again by recovery")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s", "kind": "full"}).Refused(409, "hardware_changed", "")
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	if now := d.vm(vm.Id); now.StartedWith != nil {
		t.Errorf("%+v", now.StartedWith)
	}
	var entry string
	for _, e := range contracttest.As[[]hypervisorapi.Event](d.call("GET", path+"/events", adminToken, nil).Want(200)) {
		entry += e.Message + "\n"
	}
	for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit?action=vm.start", adminToken, nil).Want(200)) {
		entry += e.Message + "\n"
	}
	if strings.Count(entry, guest.Kernel) != 2 {
		t.Errorf("the events and the audit log do not both name the kernel: %s", entry)
	}
}

func TestAGuestSeesOnlyFoldersThatMayBeShared(t *testing.T) {
	t.Parallel()
	shared, outside := t.TempDir(), t.TempDir()
	for link, to := range map[string]string{"link": outside, "up": "..", "inside": "data"} {
		if err := os.Symlink(to, filepath.Join(shared, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(shared, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(shared, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "data")
	d := start(
		t, usualDocument+"[policy]\nallowed_share_dirs = [\""+shared+"\", \""+own+"\"]\n",
		func(c *hypervisor.Config) { c.Data = own },
	).withDemo()
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
		"name": "one", "image": "demo", "memory_mib": 192, "network": object{"mode": "none"},
	}).Want(201))
	path := "/v1/vms/" + vm.Id
	share := func(source, tag string) object { return object{"shares": []object{{"source": source, "tag": tag}}} }
	for what, c := range map[string]struct {
		source, tag, field string
	}{
		"outside":          {outside, "t", "shares.0.source"},
		"a link outside":   {filepath.Join(shared, "link"), "t", "shares.0.source"},
		"a link up":        {filepath.Join(shared, "up"), "t", "shares.0.source"},
		"dots":             {shared + "/../" + filepath.Base(outside), "t", "shares.0.source"},
		"a relative path":  {"data", "t", "shares.0.source"},
		"a file":           {filepath.Join(shared, "file"), "t", "shares.0.source"},
		"nothing":          {filepath.Join(shared, "none"), "t", "shares.0.source"},
		"the daemon's own": {own, "t", "shares.0.source"},
		"VMs of others":    {filepath.Join(own, "vms"), "t", "shares.0.source"},
		"a bad tag":        {shared, "a,path=/", "shares.0.tag"},
	} {
		a := d.call("POST", path+"/start", adminToken, share(c.source, c.tag))
		if p := a.Problem(); a.Status != 400 || p.Field != c.field {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	d.call("POST", path+"/start", acmeToken, share(shared, "t")).Refused(400, "invalid", "shares")
	d.callAs(as("acme", ""), "POST", path+"/start", adminToken, share(shared, "t")).Refused(400, "invalid", "shares")
	d.call("POST", path+"/start", acmeToken, object{"extra_args": []string{"-rtc", "base=utc"}}).Refused(400, "invalid", "extra_args")
	d.call("POST", path+"/start", acmeToken, object{"kernel": "/boot/vmlinuz"}).Limited(
		400, "policy_limit", "kernel", "policy.allowed_image_dirs",
	)
	for field, wrong := range map[string]object{
		"extra_args.0": {"extra_args": []string{"-device", "vfio-pci"}},
		"extra_args.1": {"extra_args": []string{"-rtc", "base=utc,file=/etc/shadow"}},
		"extra_args.2": {"extra_args": []string{"-rtc", "base=utc", "-boot"}},
		"initrd":       {"initrd": "boot/initrd"},
		"kernel_args":  {"kernel_args": "a\nb"},
		"firmware":     {"firmware": "coreboot"},
		"unknown":      {"unknown": true},
	} {
		d.call("POST", path+"/start", adminToken, wrong).Refused(400, "invalid", field)
	}
	if now := d.vm(vm.Id); now.State != "stopped" || now.StartedWith != nil {
		t.Errorf("%+v", now)
	}

	both := object{"shares": []object{
		{"source": filepath.Join(shared, "inside"), "tag": "data"}, {"source": shared, "tag": "all", "read_only": true},
	}}
	d.call("POST", path+"/start", adminToken, both).Want(200)
	d.connected(vm.Id)
	if n := d.sh(vm.Id, "cat /sys/bus/virtio/devices/*/device | grep -c 0x0009"); n != "2" {
		t.Errorf("the guest has %s devices for folders", n)
	}
	// A link that is swapped in later leads the next start nowhere.
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	if err := os.Remove(filepath.Join(shared, "inside")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(shared, "inside")); err != nil {
		t.Fatal(err)
	}
	d.call("POST", path+"/start", adminToken, both).Refused(400, "invalid", "shares.0.source")
}
