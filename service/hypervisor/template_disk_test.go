//go:build linux

package hypervisor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// bootableDisk is a disk that the BIOS boots: GRUB, and a file system with the demonstration's guest.
func bootableDisk(t *testing.T) string {
	t.Helper()
	need(t, "grub-mkimage", "mke2fs")
	const grub, size, begin = "/usr/lib/grub/i386-pc", 128 << 20, 1 << 20
	if _, err := os.Stat(filepath.Join(grub, "boot.img")); err != nil {
		require.Missing(t, "GRUB for BIOS is not installed: apt-get install grub-pc-bin")
	}
	built, dir := bootable(t), t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	root, menu, core := filepath.Join(dir, "root"), filepath.Join(dir, "menu"), filepath.Join(dir, "core.img")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	run("cp", built.Kernel, filepath.Join(root, "vmlinuz"))
	run("cp", built.Initrd, filepath.Join(root, "initrd.gz"))
	if err := os.WriteFile(menu, []byte(
		"set root=(hd0,msdos1)\nlinux /vmlinuz console=ttyS0 panic=-1 quiet\ninitrd /initrd.gz\nboot\n",
	), 0o600); err != nil {
		t.Fatal(err)
	}
	run("grub-mkimage", "-O", "i386-pc", "-d", grub, "-p", "/", "-c", menu, "-o", core,
		"biosdisk", "part_msdos", "ext2", "linux", "normal", "boot")
	system := filepath.Join(dir, "system")
	run("mke2fs", "-q", "-t", "ext4", "-d", root, system, "120M")
	disk := make([]byte, size)
	put := func(at int, path string, most int) {
		t.Helper()
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(disk[at:], raw[:min(len(raw), most)])
	}
	const code, sector = 440, 512
	put(0, filepath.Join(grub, "boot.img"), code)
	put(sector, core, begin-sector)
	put(begin, system, size-begin)
	// One partition, of Linux's type, that can be booted.
	entry := disk[446:462]
	entry[0], entry[4] = 0x80, 0x83
	for i, n := range []int{begin / sector, (size - begin) / sector} {
		for b := range 4 {
			entry[8+4*i+b] = byte(n >> (8 * b))
		}
	}
	disk[510], disk[511] = 0x55, 0xaa
	path := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVMsOfATemplateWithADiskHaveDisksOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "disk", "path": bootableDisk(t)}))
	template := d.withTemplate("warm", "disk", object{"network": true})
	if !strings.HasPrefix(template.Machine, "pc-q35-") || template.DiskBytes != 128<<20 {
		t.Errorf("%+v", template)
	}
	spec := object{"image": "disk", "network": object{"mode": "user"}}
	one, two := d.boot("one", spec), d.boot("two", spec)
	const mount = "mkdir -p /mnt; mount -t ext4 /dev/vda1 /mnt; "
	for _, vm := range []hypervisorapi.VM{one, two} {
		if deref(vm.Template) != "warm" {
			t.Fatalf("it booted: %s", deref(vm.BootedBecause))
		}
		if got := d.sh(vm.Id, "cat /sys/class/net/eth0/address"); got != vm.Mac {
			t.Errorf("the guest's MAC is %s, the VM's %s", got, vm.Mac)
		}
		if got := d.sh(vm.Id, mount+"ls /mnt; echo "+vm.Name+" >/mnt/mine; sync; umount /mnt"); strings.Contains(got, "mine") {
			t.Errorf("the disk of %s: %q", vm.Name, got)
		}
	}
	// A full snapshot is loaded with memory of QEMU's own, in a new process.
	path := "/v1/vms/" + one.Id
	d.sh(one.Id, "echo then >/tmp/then")
	d.call("POST", path+"/snapshots", adminToken, object{"name": "then", "kind": "full"}).Want(201)
	d.call("POST", path+"/stop", adminToken, object{"force": true}).Want(200)
	d.call("DELETE", "/v1/templates/warm", adminToken, nil).Want(204)
	d.call("POST", path+"/snapshots/then/revert", adminToken, nil).Want(200)
	d.connected(one.Id)
	if got := d.sh(one.Id, "cat /tmp/then"); got != "then" {
		t.Errorf("%q", got)
	}
	// The disk boots, and a copy of it too, though the template is gone.
	d.call("POST", path+"/restart", adminToken, object{"force": true}).Want(200)
	d.connected(one.Id)
	if got := d.sh(one.Id, mount+"cat /mnt/mine"); got != "one" {
		t.Errorf("%q", got)
	}
	d.finished(d.call("POST", path+"/backups", adminToken, nil))
	for _, vm := range []hypervisorapi.VM{one, two} {
		d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil).Want(204)
	}
	d.hasNoTemplateFiles() // the last VM that stood on its disk is gone
}

func TestADiskThatSomethingWasDoneToIsNotReplacedByATemplates(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "disk", "path": bootableDisk(t)}))
	d.withTemplate("warm", "disk", nil)
	made := func(name string) hypervisorapi.VM {
		return contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", acmeToken, object{
			"name": name, "image": "disk", "memory_mib": 192, "network": object{"mode": "none"},
		}).Want(201))
	}
	starts := func(vm hypervisorapi.VM) hypervisorapi.VM {
		t.Helper()
		return contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms/"+vm.Id+"/start", acmeToken, nil).Want(200))
	}
	// A snapshot of the disk would be lost.
	one := made("one")
	d.call("POST", "/v1/vms/"+one.Id+"/snapshots", acmeToken, object{"name": "s"}).Want(201)
	if one = starts(one); one.Template != nil {
		t.Errorf("%+v", one)
	}
	// Something that nobody told the daemon of.
	two := made("two")
	out, err := exec.CommandContext(t.Context(), "qemu-io", "-c", "write -P 1 0 64k",
		filepath.Join(d.cfg.Data, "vms", two.Id, "disk.qcow2")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if two = starts(two); two.Template != nil || !strings.Contains(deref(two.BootedBecause), "was written to its disk") {
		t.Errorf("%+v", two)
	}
	// A template that cannot be loaded leaves the disk as it is in the image.
	if err := os.Truncate(filepath.Join(d.cfg.Data, "templates", d.templates()[0].Id, "state"), 0); err != nil {
		t.Fatal(err)
	}
	three := starts(made("three"))
	if three.Template != nil {
		t.Errorf("%+v", three)
	}
	d.connected(three.Id)
}
