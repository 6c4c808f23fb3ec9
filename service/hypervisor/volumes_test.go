//go:build linux

package hypervisor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/volumes"
)

// partitioned makes a disk with one partition of each kind of file system, each with the same files.
func partitioned(t *testing.T) (path string) {
	t.Helper()
	need(t, "mke2fs", "mkfs.xfs", "mkfs.btrfs", "mkfs.vfat", "mkswap", "sfdisk")
	dir := t.TempDir()
	run := func(stdin, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Stdin, cmd.Dir = strings.NewReader(stdin), dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	content := filepath.Join(dir, "content")
	for name, text := range map[string]string{"etc/os-release": "NAME=test\n", "a b\nc": "odd\n"} {
		at := filepath.Join(content, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // the test's own
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o640); err != nil { //nolint:gosec // so
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"relative": "etc/os-release", "absolute": "/etc/os-release", "outside": "../../../etc/passwd",
		"circle": "circle", "dangling": "/nowhere", "etc/up": "..",
	} {
		if err := os.Symlink(target, filepath.Join(content, link)); err != nil {
			t.Fatal(err)
		}
	}
	proto := "/dev/null\n0 0\nd--755 0 0\netc d--755 0 0\nos-release ---640 0 0 " + content + "/etc/os-release\n$\n$\n"
	if err := os.WriteFile(filepath.Join(dir, "proto"), []byte(proto), 0o600); err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	parts := []struct {
		file string
		mib  int64
		make []string
	}{
		{"vfat", 64, []string{"mkfs.vfat", "-n", "EFI", "vfat"}},
		{"ext4", 64, []string{"mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", "content", "ext4"}},
		{"xfs", 320, []string{"mkfs.xfs", "-q", "-L", "data", "-p", "proto", "xfs"}},
		{"btrfs", 160, []string{"mkfs.btrfs", "-q", "-L", "more", "--rootdir", "content", "btrfs"}},
		{"swap", 16, []string{"mkswap", "-q", "swap"}},
		{"luks", 16, []string{"sh", "-c", `printf 'LUKS\272\276' | dd of=luks conv=notrunc status=none`}},
		{"empty", 16, []string{"true"}},
		{"broken", 64, []string{"sh", "-c", "mke2fs -q -t ext4 broken && dd if=/dev/urandom of=broken bs=1k seek=2 count=60 conv=notrunc status=none"}},
	}
	disk, err := os.Create(filepath.Join(dir, "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = disk.Close() }()
	table, at := "label: gpt\n", int64(1)
	for _, p := range parts {
		file := filepath.Join(dir, p.file)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, p.mib*mib); err != nil {
			t.Fatal(err)
		}
		run("", p.make[0], p.make[1:]...)
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.NewOffsetWriter(disk, at*mib), f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		table += fmt.Sprintf("start=%dMiB, size=%dMiB\n", at, p.mib)
		at += p.mib
	}
	if err := disk.Truncate((at + 1) * mib); err != nil {
		t.Fatal(err)
	}
	run(table, "sfdisk", "--quiet", disk.Name())
	return disk.Name()
}

// inspect runs a command of the agent's program in a guest.
func inspect[T any](d *daemon, id string, argv ...string) (out T, failed string, code int) {
	d.Helper()
	argv = append([]string{"/bin/mainstay-guest"}, argv...)
	o := contracttest.As[hypervisorapi.ExecOutcome](
		d.call("POST", "/v1/vms/"+id+"/agent/exec", adminToken, object{"argv": argv}).Want(200),
	)
	if o.ExitCode != 0 {
		return out, strings.TrimSpace(o.Stderr), o.ExitCode
	}
	if err := json.Unmarshal([]byte(o.Stdout), &out); err != nil {
		d.Fatalf("%v: %s", err, o.Stdout)
	}
	return out, "", 0
}

func TestAGuestReadsTheFileSystemsOfADiskThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	disk := partitioned(t)
	d := start(t, "").withDemo()
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, object{
		"name": "reader", "image": "demo", "memory_mib": 256, "network": object{"mode": "none"}, "served_disk": true,
	}).Want(201))
	stop := d.serveDisk(vm.Id, disk)
	defer stop()
	d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil).Want(200)
	d.connected(vm.Id)

	found, why, _ := inspect[[]volumes.Volume](d, vm.Id, "volumes")
	var kinds []string
	byKind := map[string]volumes.Volume{}
	for i, v := range found {
		kinds = append(kinds, v.Kind)
		if i == len(found)-1 {
			v.Kind = "broken"
		}
		byKind[v.Kind] = v
	}
	if got := strings.Join(kinds, " "); got != "vfat ext4 xfs btrfs swap luks  ext4" {
		t.Fatalf("the volumes are %q (%s)", got, why)
	}
	for kind, label := range map[string]string{"vfat": "EFI", "ext4": "root", "xfs": "data", "btrfs": "more"} {
		v := byKind[kind]
		if v.Label != label || v.Error != "" || v.Size < 64<<20 {
			t.Errorf("%s: %+v", kind, v)
		}
		if kind == "vfat" {
			continue // an empty one
		}
		page, why, _ := inspect[volumes.Page](d, vm.Id, "files", v.Name, "/etc")
		if len(page.Entries) == 0 || page.Entries[0].Name != "os-release" || page.Entries[0].Type != "file" ||
			page.Entries[0].Size != 10 || page.Entries[0].Mode != "-rw-r-----" || page.More {
			t.Errorf("%s: %+v %s", kind, page, why)
		}
		r, why, _ := inspect[volumes.Resolved](d, vm.Id, "resolve", v.Name, "/etc/os-release")
		if r.Size != 10 || d.sh(vm.Id, "cat "+r.Path) != "NAME=test" {
			t.Errorf("%s: %+v %s", kind, r, why)
		}
	}
	for kind, want := range map[string]string{
		"swap": "holds no files", "luks": "encrypted", "": "nothing that is known", "broken": "cannot be mounted",
	} {
		if got := byKind[kind].Error; !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", kind, got, want)
		}
	}
	again, _, _ := inspect[[]volumes.Volume](d, vm.Id, "volumes")
	if len(again) != len(found) || again[1] != found[1] {
		t.Errorf("asked again: %+v", again)
	}

	// Links stay in their file system, as they would in the VM whose disk it is.
	ext4 := byKind["ext4"].Name
	for path, want := range map[string]string{
		"/relative": "NAME=test", "/absolute": "NAME=test", "/etc/up/etc/../absolute": "NAME=test",
		"/../../etc/os-release": "NAME=test", "a b\nc": "odd",
	} {
		r, why, _ := inspect[volumes.Resolved](d, vm.Id, "resolve", ext4, path)
		if r.Path == "" {
			t.Errorf("%q: %s", path, why)
			continue
		}
		out := contracttest.As[hypervisorapi.ExecOutcome](d.call("POST", "/v1/vms/"+vm.Id+"/agent/exec", adminToken,
			object{"argv": []string{"/bin/cat", r.Path}}).Want(200))
		if strings.TrimSpace(out.Stdout) != want {
			t.Errorf("%q leads to %q with %q", path, r.Path, out.Stdout)
		}
	}
	for path, want := range map[string]string{
		"/outside": "", "/dangling": "", "/nope": "", "/etc": "does not lead to a file", "/circle": "lead in a circle",
		"/etc/os-release/x": "does not lead to a folder",
	} {
		if r, why, code := inspect[volumes.Resolved](d, vm.Id, "resolve", ext4, path); code == 0 ||
			want == "" && code != 4 || !strings.Contains(why, want) {
			t.Errorf("%q: %+v, %d %q", path, r, code, why)
		}
	}
	root, _, _ := inspect[volumes.Page](d, vm.Id, "files", ext4, "/")
	links := 0
	for _, e := range root.Entries {
		if e.Type == "link" && e.Target != "" {
			links++
		}
	}
	if links != 5 {
		t.Errorf("%d links in %+v", links, root)
	}
	rest, _, _ := inspect[volumes.Page](d, vm.Id, "files", ext4, "/", "dangling")
	if len(rest.Entries) == 0 || len(rest.Entries) >= len(root.Entries) || rest.Entries[0].Name <= "dangling" {
		t.Errorf("after dangling: %+v", rest)
	}
	for _, volume := range []string{"", "..", "nope", byKind["luks"].Name, "../" + ext4 + "/../x"} {
		if page, why, code := inspect[volumes.Page](d, vm.Id, "files", volume, "/"); code != 5 ||
			!strings.Contains(why, "no such volume") {
			t.Errorf("the volume %q: %+v, %d %q", volume, page, code, why)
		}
	}
	d.sh(vm.Id, "mkdir -p /run/volumes/many; mount -t tmpfs t /run/volumes/many; "+
		"i=0; while [ $i -lt 620 ]; do : >/run/volumes/many/f$i; i=$((i+1)); done")
	first, _, _ := inspect[volumes.Page](d, vm.Id, "files", "many", "/")
	if len(first.Entries) != volumes.PageSize || !first.More {
		t.Fatalf("%d entries, more: %v", len(first.Entries), first.More)
	}
	second, _, _ := inspect[volumes.Page](d, vm.Id, "files", "many", "/", first.Entries[volumes.PageSize-1].Name)
	if len(first.Entries)+len(second.Entries) != 620 || second.More {
		t.Errorf("then %d entries, more: %v", len(second.Entries), second.More)
	}
}
