//go:build linux

package demo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo/demotest"
)

// offline makes apt know a kernel that it cannot fetch.
func offline(t *testing.T) {
	t.Helper()
	bin := t.TempDir()
	for name, text := range map[string]string{
		"apt-cache": "#!/bin/sh\necho '  Depends: linux-image-6.1.0-99-cloud-amd64'\n",
		"apt-get":   "#!/bin/sh\necho 'E: Temporary failure resolving deb.debian.org' >&2\nexit 100\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// host is the root folder of a system with the kernel of Debian's package installed. Some
// of its modules are packed, each by the program that is named.
func host(t *testing.T, packed map[string][]string) string {
	t.Helper()
	root := t.TempDir()
	if out, err := exec.Command(
		"dpkg-deb", "-x", demotest.Kernel(t), root,
	).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("%v: %s", err, out)
	}
	for name, program := range packed {
		path := moduleOf(t, root, name)
		if out, err := exec.Command(
			program[0],
			append(program[1:], path)...).CombinedOutput(); err != nil { //nolint:gosec // the test's own
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s is not packed", path)
		}
	}
	return root
}

// moduleOf is the file of a module of the kernel that is installed below root.
func moduleOf(t *testing.T, root, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "*/modules/*/kernel", name+".ko"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", name, found, err)
	}
	return found[0]
}

func TestWithoutANetworkAPackageThatWasFetchedBeforeIsTaken(t *testing.T) {
	need(t, "apt-get", "dpkg-deb", "cpio", "busybox")
	kept := demotest.Kernel(t)
	for _, place := range []string{"folder", "cache of apt"} {
		t.Run(place, func(t *testing.T) {
			offline(t)
			o := demo.Options{Folder: t.TempDir(), Host: t.TempDir()}
			target := o.Folder
			if place != "folder" {
				target = filepath.Join(o.Host, "var/cache/apt/archives")
			}
			if err := os.MkdirAll(target, 0o700); err != nil {
				t.Fatal(err)
			}
			// A package of no other kernel is mistaken for it.
			for _, other := range []string{"linux-image-cloud-amd64_6.1_amd64.deb", "linux-image-6.1.0-99-rt-amd64_6.1_amd64.deb"} {
				if err := os.WriteFile(filepath.Join(target, other), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(kept, filepath.Join(target, filepath.Base(kept))); err != nil {
				t.Fatal(err)
			}
			guest, err := demo.Build(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(guest.Kernel); err != nil || info.Size() < 1<<20 {
				t.Errorf("the kernel: %v %v", info, err)
			}
		})
	}
}

func TestWithoutANetworkAnInstalledKernelIsTakenAndBoots(t *testing.T) {
	need(t, "apt-get", "dpkg-deb", "cpio", "busybox", "qemu-system-x86_64", "xz", "zstd", "gzip")
	// Debian 13 packs them with xz, Ubuntu with zstd.
	root := host(t, map[string][]string{
		"drivers/virtio/virtio_pci": {"xz", "-0"}, "drivers/virtio/virtio_ring": {"xz", "-0"},
		"drivers/net/virtio_net": {"zstd", "-q", "--rm"}, "fs/isofs/isofs": {"gzip", "-1"},
	})
	offline(t)
	guest, err := demo.Build(t.Context(), demo.Options{Folder: t.TempDir(), Host: root})
	if err != nil {
		t.Fatal(err)
	}
	boots(t, guest)
	if left, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*")); err != nil || len(left) != 1 {
		t.Errorf("the host's own kernel is gone: %v %v", left, err)
	}
}

func TestWithoutAnyKernelItSaysWhatFailedAndWhatToDo(t *testing.T) {
	need(t, "apt-get", "dpkg-deb", "cpio", "busybox")
	root := host(t, nil)
	if err := os.Remove(moduleOf(t, root, "drivers/block/virtio_blk")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, host, want string }{
		{"none is installed", t.TempDir(), "there is no boot/vmlinuz-*"},
		{"the one that is installed lacks a module", root, "has no drivers/block/virtio_blk.ko"},
	} {
		t.Run(c.name, func(t *testing.T) {
			offline(t)
			folder := t.TempDir()
			_, err := demo.Build(t.Context(), demo.Options{Folder: folder, Host: c.host})
			if !fault.Is(err, fault.Unavailable) {
				t.Fatalf("%v", err)
			}
			message := fault.From(err).Message // what a caller may read
			for _, part := range []string{c.want, "apt-get failed: E: Temporary failure resolving deb.debian.org", "put the package linux-image-*-cloud-", folder} {
				if !strings.Contains(message, part) {
					t.Errorf("it does not say %q: %s", part, message)
				}
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("it left %v %v", left, err)
			}
		})
	}
}
