//go:build linux

// Package demotest provides tests with a bootable guest.
package demotest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
)

// Guest returns the demo guest without an agent.
func Guest(t testing.TB) demo.Guest {
	t.Helper()
	return GuestWith(t, "")
}

// GuestWith returns a demo guest with this program as its agent. Concurrent and later test runs
// share the download. If the host lacks what is needed, it ends the test like require.Missing.
func GuestWith(t testing.TB, agent string) demo.Guest {
	t.Helper()
	guest, _, unlock := build(t, agent)
	defer unlock()
	// The next one that is built takes the place of these files.
	own := t.TempDir()
	kept := demo.Guest{Kernel: filepath.Join(own, "vmlinuz"), Initrd: filepath.Join(own, "initrd.gz")}
	for from, to := range map[string]string{guest.Kernel: kept.Kernel, guest.Initrd: kept.Initrd} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	return kept
}

// Kernel returns the package of the kernel from which guests are built. It ends the test like
// GuestWith.
func Kernel(t testing.TB) string {
	t.Helper()
	_, folder, unlock := build(t, "")
	defer unlock()
	found, err := filepath.Glob(filepath.Join(folder, "linux-image-*.deb"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no kernel's package in %s: %v", folder, err)
	}
	return found[0]
}

// build builds a guest in the folder that all tests share, and locks that until unlock is called.
func build(t testing.TB, agent string) (guest demo.Guest, shared string, unlock func()) {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-deb", "cpio", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			require.Missing(t, "%s is not installed, and the guest is built with it", program)
		}
	}
	shared = filepath.Join(os.TempDir(), fmt.Sprintf("mainstay-demo-guest-%d", os.Getuid()))
	if err := os.MkdirAll(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock = locked(t, shared)
	guest, err := demo.Build(t.Context(), demo.Options{Folder: shared, Host: shared, Agent: agent})
	if err != nil {
		unlock()
		t.Fatal(err)
	}
	return guest, shared, unlock
}

// locked locks a folder until the returned function is called.
func locked(t testing.TB, folder string) (unlock func()) {
	t.Helper()
	f, err := os.Open(folder) //nolint:gosec // of our own
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // a file's number is small
		t.Fatal(err)
	}
	return func() { _ = f.Close() } // which unlocks it
}
