//go:build linux

package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
)

// Files are taken out of a backup of a VM that no longer exists, whose file system was not at rest.
func TestFilesAreTakenOutOfABackupWithoutRestoringIt(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := newHypervisor(t, nil, freeLoopback(t))
	d.start()
	d.withDemo(t)
	m := newVMManager(t, d.listen)
	m.start()
	m.ok("POST", "/api/vms", map[string]any{"name": "web", "image": "demo", "memory": 192, "disk": 1}, 201)
	m.ok("POST", "/api/vms/web/start", map[string]any{}, 202)
	eventually(t, "the VM runs", func() bool { return m.vm("web").State == "running" })
	below := d.vms()[0].Id
	d.connected(below)
	d.ok("POST", "/v1/vms/"+below+"/agent/put-file", map[string]any{"path": "/tmp/fs.gz", "content": emptyFileSystem(t)})
	said, code := d.sh(below, "set -ex; busybox zcat /tmp/fs.gz >/dev/vda; mkdir -p /mnt; mount -t ext4 /dev/vda /mnt; mkdir -p /mnt/etc; "+
		"echo kept >/mnt/etc/motd; ln -s /etc/motd /mnt/link; "+
		"dd if=/dev/urandom of=/mnt/large bs=1M count=20; cp /mnt/large /mnt/copy; rm /mnt/copy; sync")
	if code != 0 {
		t.Fatal(said)
	}
	out, _ := d.sh(below, "sha256sum </mnt/large")
	sum, _, _ := strings.Cut(out, " ")
	m.ok("POST", "/api/backups", map[string]any{"vm_name": "web"}, 201)
	b := m.settled()[0]
	if b.Status != vmapi.BackupStatusCompleted {
		t.Fatalf("%+v", b)
	}
	m.ok("DELETE", "/api/vms/web", map[string]any{}, 204)
	eventually(t, "the VM is gone below", func() bool { return len(d.vms()) == 0 })

	path := "/api/backups/" + b.Id
	j := hvAs[vmapi.Job](t, m.ok("POST", path+"/boot", map[string]any{}, 202))
	j = hvAs[vmapi.Job](t, m.ok("GET", "/api/jobs/"+j.Id+"?wait=120", map[string]any{}, 200))
	if b = hvAs[vmapi.Backup](t, m.ok("GET", path, map[string]any{}, 200)); j.Status != vmapi.JobStatusCompleted || b.Boot == nil ||
		b.Boot.Status != vmapi.BackupBootStatusPassed || len(d.vms()) != 0 {
		t.Fatalf("%+v, %+v; %d VMs", j, b.Boot, len(d.vms()))
	}
	all := hvAs[[]vmapi.BackupVolume](t, m.ok("GET", path+"/files/volumes", map[string]any{}, 200))
	if len(all) != 1 || all[0].Kind != "ext4" || all[0].Label != "data" || all[0].Error != "" {
		t.Fatalf("%+v", all)
	}
	volume := url.QueryEscape(all[0].Name)
	root := hvAs[vmapi.BackupFiles](t, m.ok("GET", path+"/files/list?volume="+volume, map[string]any{}, 200))
	names := ""
	for _, e := range root.Entries {
		names += e.Name + ":" + string(e.Type) + " "
	}
	if names != "etc:folder large:file link:link lost+found:folder " {
		t.Errorf("%s", names)
	}
	content := func(name string) string {
		return string(m.ok("GET", path+"/files/content?volume="+volume+"&path="+url.QueryEscape(name), map[string]any{}, 200))
	}
	if content("/etc/motd") != "kept\n" || content("/link") != "kept\n" {
		t.Errorf("%q, %q", content("/etc/motd"), content("/link"))
	}
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(content("/large")))); got != sum {
		t.Errorf("a large file has the sum %s, want %s", got, sum)
	}
	for name, want := range map[string]int{"/nope": 404, "/etc": 409, "/../../run/seed/mainstay-secret": 404} {
		if status, raw := m.call("GET", path+"/files/content?volume="+volume+"&path="+url.QueryEscape(name), map[string]any{}); status != want {
			t.Errorf("%s: %d %s", name, status, raw)
		}
	}
	if len(d.vms()) != 1 {
		t.Errorf("%d VMs read the backup", len(d.vms()))
	}
	// A daemon that is killed takes the connection with it. The backup can be opened again.
	d.process.kill()
	d.start()
	eventually(t, "the backup is opened again", func() bool {
		status, raw := m.call("GET", path+"/files/list?volume="+volume+"&path=/etc", map[string]any{})
		return status == 200 && strings.Contains(string(raw), "motd")
	})
	m.ok("DELETE", path+"/files/volumes", map[string]any{}, 204)
	eventually(t, "no VM is left", func() bool { return len(d.vms()) == 0 })
}

// emptyFileSystem returns an ext4 file system of 100 MiB with a journal, packed.
func emptyFileSystem(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fs")
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-L", "data", path, "100M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
