//go:build linux

package storage_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		require.Missing(t, "%s is not installed", name)
	}
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// base is a qcow2 file of 16 MiB that begins with a text, in a folder named for a sum.
func base(t *testing.T) *storage.Base {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "0123456789abcdef")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	raw := filepath.Join(folder, "raw")
	if err := os.WriteFile(raw, []byte("the base"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(raw, 16<<20); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "disk.qcow2")
	tool(t, "qemu-img", "convert", "-O", "qcow2", raw, path)
	return &storage.Base{Path: path, Format: "qcow2", Size: 16 << 20}
}

// proves what every storage does: disks with and without a base, that grow, and of which
// nothing is left. Url is how qemu-img reaches a disk.
func prove(t *testing.T, p storage.Pool, url func(v storage.Volume) string) {
	t.Helper()
	ctx, b := t.Context(), base(t)
	format := p.Disk(storage.Volume{VM: "x", Folder: "/x"}).Format
	size := func(v storage.Volume) string {
		t.Helper()
		return tool(t, "qemu-img", "info", "--output=json", "-f", format, url(v))
	}
	for _, one := range []struct {
		vm   string
		size int64
		base *storage.Base
		want string
	}{
		{"of-a-base", 0, b, `"virtual-size": 16777216`},
		{"larger", 32 << 20, b, `"virtual-size": 33554432`},
		{"empty", 8 << 20, nil, `"virtual-size": 8388608`},
	} {
		v := storage.Volume{VM: one.vm, Folder: t.TempDir(), Size: one.size}
		for range 2 { // a second time in place of the first, as after a crash
			if err := p.Create(ctx, v, one.base); err != nil {
				t.Fatalf("%s: %v", one.vm, err)
			}
		}
		if got := size(v); !strings.Contains(got, one.want) {
			t.Errorf("%s: %s; want %s", one.vm, got, one.want)
		}
		if one.base != nil {
			back := filepath.Join(t.TempDir(), "back")
			tool(t, "qemu-img", "dd", "-f", format, "-O", "raw", "bs=4096", "count=1", "if="+url(v), "of="+back)
			if raw, err := os.ReadFile(back); err != nil || !strings.HasPrefix(string(raw), "the base") {
				t.Errorf("%s holds %.20q, %v", one.vm, raw, err)
			}
		}
		if err := p.Resize(ctx, v, 64<<20); err != nil {
			t.Errorf("%s: %v", one.vm, err)
		}
		if got := size(v); !strings.Contains(got, `"virtual-size": 67108864`) {
			t.Errorf("%s, grown: %s", one.vm, got)
		}
		for range 2 {
			if err := p.Remove(ctx, v); err != nil {
				t.Errorf("%s: %v", one.vm, err)
			}
		}
	}
}

func TestDisksInFolders(t *testing.T) {
	t.Parallel()
	prove(t, storage.DirPool{}, func(v storage.Volume) string { return storage.DirPool{}.Disk(v).Target })
	prove(t, storage.RawPool{}, func(v storage.Volume) string { return storage.RawPool{}.Disk(v).Target })
}

func TestDisksInCeph(t *testing.T) {
	t.Parallel()
	c := cephtest.Start(t)
	images := func() string { return strings.TrimSpace(tool(t, "rbd", "-c", c.Conf, "ls", c.Pool)) }
	for _, inPlace := range []bool{false, true} {
		p := storage.RBDPool{Pool: c.Pool, User: "admin", Conf: c.Conf, InPlace: inPlace}
		prove(t, p, func(v storage.Volume) string {
			return "rbd:" + c.Pool + "/mainstay-" + v.VM + ":id=admin:conf=" + c.Conf
		})
		want := ""
		if inPlace {
			want = "mainstay-base-0123456789abcdef" // for the next clone
		}
		if got := images(); got != want {
			t.Errorf("in place %v: left %q, want %q", inPlace, got, want)
		}
	}
	// QEMU itself reaches a disk as the backend will be told.
	p := storage.RBDPool{Pool: c.Pool, User: "admin", Conf: c.Conf, InPlace: true}
	v := storage.Volume{VM: "booted", Folder: t.TempDir()}
	if err := p.Create(t.Context(), v, base(t)); err != nil {
		t.Fatal(err)
	}
	if got := p.Disk(v).Target; got != "rbd:vms/mainstay-booted?conf="+strings.ReplaceAll(
		c.Conf, "/", "%2F",
	)+"&user=admin" {
		t.Errorf("%s", got)
	}
	if out := tool(t, "rbd", "-c", c.Conf, "info", c.Pool+"/mainstay-booted"); !strings.Contains(
		out, "parent: vms/mainstay-base-0123456789abcdef@base",
	) {
		t.Errorf("it is not a clone: %s", out)
	}
}

func TestDisksThatSomebodyExports(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-nbd"); err != nil {
		require.Missing(t, "qemu-utils is not installed")
	}
	dir, err := os.MkdirTemp("", "nbd") // paths of sockets have little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, v := storage.NBDPool{Server: "unix:" + dir + "/%s.sock"}, storage.Volume{VM: "one"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Create(ctx, v, nil); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "storage.nbd_server") {
		t.Errorf("without an export: %v", err)
	}
	raw := filepath.Join(dir, "raw")
	tool(t, "qemu-img", "create", "-q", "-f", "raw", raw, "16M")
	server := exec.CommandContext(
		ctx, "qemu-nbd", "--persistent", "--shared=8", "-f", "raw", "-k", filepath.Join(dir, "one.sock"), raw,
	) //nolint:gosec // the test's own
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for err = p.Create(ctx, v, base(t)); err != nil && ctx.Err() == nil; err = p.Create(ctx, v, base(t)) {
		time.Sleep(20 * time.Millisecond) // the server begins in its own time
	}
	if content, readErr := os.ReadFile(raw); err != nil || readErr != nil ||
		!strings.HasPrefix(string(content), "the base") {
		t.Errorf("%v, %v", err, readErr)
	}
	if got := p.Disk(v).Target; got != "nbd:unix:"+dir+"/one.sock" {
		t.Errorf("%s", got)
	}
}

// The disk of a VM says itself what it stands on, and its process may have written that.
func TestAVMsDiskIsOpenedUnderItsUIDOnly(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		require.Missing(t, "running programs under other uids takes root")
	}
	top, err := os.MkdirTemp("", "storage-uid-") // a folder of the test's own is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	if err := os.Chmod(top, 0o711); err != nil { //nolint:gosec // the VM's uid passes through
		t.Fatal(err)
	}
	p, v := storage.DirPool{}, storage.Volume{VM: "one", Folder: top, Size: 16 << 20, UID: 310900, GID: 310900}
	if err := p.Create(t.Context(), v, nil); err != nil {
		t.Fatal(err)
	}
	tool(t, "qemu-img", "snapshot", "-c", "s1", p.Path(v))
	if err := p.Revert(t.Context(), v, "s1"); err != nil {
		t.Errorf("a disk as the daemon made it: %v", err)
	}
	secret := filepath.Join(top, "secret")
	if err := os.WriteFile(secret, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-b", secret, "-F", "raw", p.Path(v))
	for what, err := range map[string]error{"revert": p.Revert(t.Context(), v, "s1"), "resize": p.Resize(t.Context(), v, 32<<20)} {
		if err == nil || !strings.Contains(err.Error(), "Permission denied") {
			t.Errorf("%s opened root's file: %v", what, err)
		}
	}
	// What stands on such a disk is made without opening it.
	over := v
	over.Folder = filepath.Join(top, "over")
	if err := os.Mkdir(over.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	if err := p.Create(t.Context(), over, &storage.Base{Path: p.Path(v), Format: "qcow2", Size: 16 << 20}); err != nil {
		t.Errorf("%v", err)
	}
}
