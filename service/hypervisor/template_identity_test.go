//go:build linux

package hypervisor_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// withFiles adds files of the host, by their paths in the guest, to a copy of an initial RAM disk. The
// kernel unpacks one archive after another.
func withFiles(t *testing.T, initrd string, files map[string]string) string {
	t.Helper()
	need(t, "cpio")
	root := t.TempDir()
	for to, from := range files {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	pack := exec.CommandContext(t.Context(), "sh", "-c", "find . -mindepth 1 | cpio --create --format=newc --quiet --owner=0:0")
	pack.Dir = root
	archive, err := pack.Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(initrd)
	if err != nil {
		t.Fatal(err)
	}
	for len(raw)%4 != 0 { // where the next archive begins
		raw = append(raw, 0)
	}
	out := filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(out, append(raw, archive...), 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

// withSSH adds host keys and what makes them to an initial RAM disk.
func withSSH(t *testing.T, initrd string) string {
	t.Helper()
	need(t, "ssh-keygen", "ldd")
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"usr/bin/ssh-keygen": program}
	libraries, err := exec.CommandContext(t.Context(), "ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if filepath.IsAbs(word) {
			files[strings.TrimPrefix(word, "/")] = word
		}
	}
	keys := t.TempDir()
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		name := "ssh_host_" + kind + "_key"
		key := filepath.Join(keys, name)
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		files["etc/ssh/"+name], files["etc/ssh/"+name+".pub"] = key, key+".pub"
	}
	return withFiles(t, initrd, files)
}

func TestVMsOfATemplateShareNoHostKeys(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	need(t, "qemu-system-x86_64", "qemu-img")
	built := bootable(t)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{
		"name": "ssh", "kernel": built.Kernel, "initrd": withSSH(t, built.Initrd),
	}))
	cold := d.boot("cold", object{"image": "ssh", "instant": false})
	const read = "cd /etc/ssh; for kind in ed25519 ecdsa rsa; do cat ssh_host_${kind}_key.pub; done | awk '{print $2}'"
	seen := map[string]string{}
	for _, key := range strings.Fields(d.sh(cold.Id, read)) {
		seen[key] = "the image"
	}
	d.withTemplate("warm", "ssh", nil)
	for _, name := range []string{"one", "two"} {
		vm := d.boot(name, object{"image": "ssh"})
		if deref(vm.Template) != "warm" {
			t.Fatalf("it booted: %s", deref(vm.BootedBecause))
		}
		// The keys that can be made at once are there before anybody gets in, the other later.
		if modes := d.sh(vm.Id, "stat -c %a /etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_ecdsa_key"); modes != "600\n600" {
			t.Errorf("%q", modes)
		}
		for deadline := time.Now().Add(5 * time.Minute); d.sh(vm.Id, "ls /etc/ssh | grep -c rsa_key.pub || true") != "1"; {
			if time.Now().After(deadline) {
				t.Fatal("no RSA key was made")
			}
			time.Sleep(100 * time.Millisecond) // the guest makes it in its own time
		}
		keys := strings.Fields(d.sh(vm.Id, read))
		if len(keys) != 3 {
			t.Fatalf("%q", keys)
		}
		for _, key := range keys {
			if other := seen[key]; other != "" {
				t.Errorf("%s has the key of %s: %s", name, other, key)
			}
			seen[key] = name
		}
	}
}

// Guests that draw at once what the kernel gives them must not draw the same.
func TestVMsOfATemplateShareNoRandomNumbers(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	d.withTemplate("warm", "demo", nil)
	seen := map[string]string{}
	for i := range 4 {
		vm := d.boot(fmt.Sprint("vm", i), nil)
		if deref(vm.Template) != "warm" {
			t.Fatalf("it booted: %s", deref(vm.BootedBecause))
		}
		// getrandom(2), by busybox's mktemp, and the devices.
		for _, draw := range strings.Fields(d.sh(vm.Id, `
			for i in 1 2 3 4; do
				cat /proc/sys/kernel/random/uuid
				head -c 16 /dev/urandom | sha256sum | cut -c 1-64
				head -c 16 /dev/random | sha256sum | cut -c 1-64
				busybox mktemp -u /tmp/XXXXXXXXXXXXXXXXXXXXXXXX
			done`)) {
			if other := seen[draw]; other != "" {
				t.Errorf("%s and %s drew %s", other, vm.Name, draw)
			}
			seen[draw] = vm.Name
		}
	}
	if len(seen) < 64 {
		t.Errorf("only %d numbers were drawn", len(seen))
	}
}

func TestAVMDoesNotTakeTheSecretOfItsTemplate(t *testing.T) {
	t.Parallel()
	d := start(t, "").withDemo()
	template := d.withTemplate("warm", "demo", nil)
	vm := d.boot("one", nil)
	if deref(vm.Template) != "warm" {
		t.Fatalf("it booted: %s", deref(vm.BootedBecause))
	}
	d.restart(func() { // while the daemon is away, its place at the agent is free
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		text, err := os.ReadFile(filepath.Join(d.cfg.Data, "secret.key"))
		if err != nil {
			t.Fatal(err)
		}
		key, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		sealer, err := record.NewSealer(key)
		if err != nil {
			t.Fatal(err)
		}
		database, err := db.Open(ctx, db.Config{Path: filepath.Join(d.cfg.Data, "state", "hypervisor.db"), CacheKiB: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = database.Close() }()
		store := record.New(record.Config{DB: database, Sealer: sealer, Now: time.Now})
		row, err := store.TemplateByID(ctx, template.Id)
		if err != nil {
			t.Fatal(err)
		}
		old, err := store.TemplateSecret(&row)
		if err != nil {
			t.Fatal(err)
		}
		own, err := store.Secrets(ctx, vm.Id)
		if err != nil {
			t.Fatal(err)
		}
		ping := func(secret string) error {
			t.Helper()
			conn, err := process.Dial(ctx, filepath.Join(d.cfg.Data, "vms", vm.Id, "run"), "agent.sock", *vm.Pid)
			if err != nil {
				t.Fatal(err)
			}
			client, err := guest.Connect(ctx, conn, secret)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			return client.Ping(ctx)
		}
		if err := ping(old); !guest.IsRefusal(err, wire.Denied) {
			t.Errorf("with the template's secret: %v", err)
		}
		if err := ping(own[0]); err != nil {
			t.Errorf("with its own: %v", err)
		}
	})
}

func TestAProcessUnderItsOwnUserCannotChangeWhatOthersStartFrom(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		require.Missing(t, "running processes under other uids takes root")
	}
	data, err := os.MkdirTemp("", "hypervisor-jailed-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	d := start(
		t, "[jailer]\nenabled = true\nenforce = true\nuid = 320000\n", func(cfg *hypervisor.Config) { cfg.Data = data },
	).withDemo()
	template := d.withTemplate("warm", "demo", nil)
	for _, vm := range []hypervisorapi.VM{d.boot("one", nil), d.boot("two", nil)} {
		if deref(vm.Template) != "warm" {
			t.Fatalf("it booted: %s", deref(vm.BootedBecause))
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", *vm.Pid))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range bytes.Lines(maps) {
			if bytes.Contains(line, []byte("memfd:template-"+template.Id)) {
				found++
				if !bytes.Contains(line, []byte("rw-p")) {
					t.Errorf("not mapped privately: %s", line)
				}
			}
		}
		if found == 0 {
			t.Errorf("the template's memory is not mapped:\n%s", maps)
		}
		// What the process has open is sealed, for root too.
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", *vm.Pid))
		if err != nil {
			t.Fatal(err)
		}
		tried := 0
		for _, path := range files {
			if to, err := os.Readlink(path); err != nil || !strings.Contains(to, "memfd:template-") {
				continue
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("x"), 0); err == nil {
				t.Errorf("%s was written to", path)
			}
			if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
				t.Errorf("%s was mapped for others to see", path)
			}
			tried++
			_ = f.Close()
		}
		if tried == 0 {
			t.Error("the process does not have the template's memory open")
		}
	}
	for _, name := range []string{"memory", "state"} {
		if path := filepath.Join(data, "templates", template.Id, name); asUser(t, 320000, path) {
			t.Errorf("a VM's user reads %s", path)
		}
	}
}
