//go:build linux

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// image waits for the end of an image's job, which takes a minute or two.
func (m *vmManager) image(made vmapi.Image) vmapi.Image {
	m.Helper()
	for range 30 {
		j := hvAs[vmapi.Job](m.TB, m.ok("GET", "/api/jobs/"+*made.JobId+"?wait=20", map[string]any{}, 200))
		if j.Finished != nil {
			break
		}
	}
	return hvAs[vmapi.Image](m.TB, m.ok("GET", "/api/images/"+made.Id.String(), map[string]any{}, 200))
}

// imageLog returns the end of an image's log.
func (m *vmManager) imageLog(id string) string {
	m.Helper()
	return tail(hvAs[vmapi.ImageLog](m.TB, m.ok("GET", "/api/images/"+id+"/log", map[string]any{}, 200)).Text, 30)
}

var loginPrompt = regexp.MustCompile(`(?m)^\S+ login: `)

// A Debian image is built of packages, and boots to a login with its agent and the package that was asked for.
// Two machines of it have different host keys and machine ids, and root cannot log in with a password.
func TestABuiltDebianImageBootsToALogin(t *testing.T) {
	t.Parallel()
	needRoot(t)
	require.Program(t, "mmdebstrap", "mmdebstrap")
	require.Program(t, "grub-mkimage", "grub-pc-bin")
	d := newHypervisor(t, nil, freeLoopback(t))
	d.start()
	agent, err := guestAgent()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	for dir := work; dir != "/"; dir = filepath.Dir(dir) { // the tools run under other ids
		if info, err := os.Stat(dir); err != nil || info.Mode()&1 == 0 {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := newVMManager(t, d.listen)
	m.args = append(m.args, "--guest-agent", agent, "--image-folder", filepath.Join(work, "images"))
	m.start()
	made := hvAs[vmapi.Image](t, m.ok("POST", "/api/images/build", map[string]any{
		"name": "web", "distribution": "debian", "version": "12", "packages": []string{"hello", "openssh-server"},
	}, 201))
	if i := m.image(made); i.State != "completed" || i.VirtualSizeBytes != 2<<30 || !i.Agent {
		t.Fatalf("%+v\n%s", i, m.imageLog(made.Id.String()))
	}
	if left, err := os.ReadDir(filepath.Join(work, "images")); err != nil || len(left) != 0 {
		t.Errorf("the build left %v (%v)", left, err)
	}
	identities := map[string]bool{}
	for _, name := range []string{"one", "two"} {
		m.ok("POST", "/api/vms", map[string]any{"name": name, "image": "web", "memory": 512, "disk": 4}, 201)
		m.ok("POST", "/api/vms/"+name+"/start", map[string]any{}, 202)
	}
	eventually(t, "both run", func() bool { return m.vm("one").State == "running" && m.vm("two").State == "running" })
	for _, vm := range d.vms() {
		d.connected(vm.Id)
		within(t, 3*patience, "the first boot is over", func() bool {
			_, code := d.sh(vm.Id, "systemctl is-active mainstay-prepare ssh")
			return code == 0
		})
		out, code := d.sh(vm.Id, "set -e; hello; cat /etc/machine-id; cat /etc/ssh/ssh_host_ed25519_key.pub; "+
			"grep '^root:\\*:' /etc/shadow; df --output=size / | tail -1")
		words := strings.Fields(out)
		if code != 0 || !strings.HasPrefix(out, "Hello, world!") || len(words) < 8 {
			t.Fatalf("%d %s", code, out)
		}
		for _, own := range []string{words[2], words[4]} { // the machine id, the host key
			if identities[own] || len(own) < 32 {
				t.Errorf("not the machine's own: %s", own)
			}
			identities[own] = true
		}
		if kib := words[len(words)-1]; len(kib) != 7 || kib < "3500000" {
			t.Errorf("the root file system has %s KiB of a disk of 4 GiB", kib)
		}
		eventually(t, "the console asks for a login", func() bool { return loginPrompt.MatchString(d.console(vm.Id)) })
	}
	if len(identities) != 4 {
		t.Errorf("%d machine ids and host keys were compared", len(identities))
	}
	m.ok("DELETE", "/api/images/"+made.Id.String(), map[string]any{}, 409)

	// A backup that boots from its own disk passes a trial boot, and nothing of that is left.
	m.ok("POST", "/api/vms/two/stop", map[string]any{"force": true}, 200)
	m.addsDiskToRunning("one", d)
	m.ok("POST", "/api/backups", map[string]any{"vm_name": "one"}, 201)
	b := m.settled()[0]
	if b.Status != vmapi.BackupStatusCompleted {
		t.Fatalf("%+v", b)
	}
	j := hvAs[vmapi.Job](t, m.ok("POST", "/api/backups/"+b.Id+"/boot", map[string]any{}, 202))
	within(t, 5*patience, "the trial boot is over", func() bool {
		j = hvAs[vmapi.Job](t, m.ok("GET", "/api/jobs/"+j.Id+"?wait=20", map[string]any{}, 200))
		return j.Finished != nil
	})
	b = hvAs[vmapi.Backup](t, m.ok("GET", "/api/backups/"+b.Id, map[string]any{}, 200))
	if b.Boot == nil || b.Boot.Status != vmapi.BackupBootStatusPassed || len(d.vms()) != 2 {
		t.Errorf("%+v, %+v; %d VMs", j, b.Boot, len(d.vms()))
	}
}

// below returns the id at the daemon of a VM.
func (d *hvDaemon) below(name string) string {
	d.Helper()
	for _, vm := range d.vms() {
		if vm.Name == name {
			return vm.Id
		}
	}
	d.Fatalf("the daemon has no VM %s", name)
	return ""
}

// addsDiskToRunning adds a disk to a VM that runs; its guest has it at once, and lets go of it.
func (m *vmManager) addsDiskToRunning(name string, d *hvDaemon) {
	m.Helper()
	path := "/api/vms/" + name + "/disks"
	disk := hvAs[vmapi.Disk](m.TB, m.ok("POST", path, map[string]any{"name": "data", "size": 1}, 201))
	if disk.State != vmapi.DiskStateAttached {
		m.Errorf("%+v", disk)
	}
	const at = "/dev/disk/by-id/virtio-data"
	eventually(m.TB, "the guest has the disk", func() bool {
		out, code := d.sh(d.below(name), "blockdev --getsize64 "+at)
		return code == 0 && strings.TrimSpace(out) == "1073741824"
	})
	m.ok("PATCH", path+"/data", map[string]any{"size": 2}, 200)
	eventually(m.TB, "the guest sees its new size", func() bool {
		out, _ := d.sh(d.below(name), "blockdev --getsize64 "+at)
		return strings.TrimSpace(out) == "2147483648"
	})
	if v := hvAs[vmapi.VM](m.TB, m.ok("DELETE", path+"/data", nil, 200)); len(v.Disks) != 0 {
		m.Errorf("%+v", v.Disks)
	}
	if _, code := d.sh(d.below(name), "test -e "+at); code == 0 {
		m.Error("the guest still has the disk")
	}
}

// console returns what the serial console of a VM has printed last.
func (d *hvDaemon) console(id string) string {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 2*time.Second)
	defer cancel()
	socket, res, err := websocket.Dial(ctx, "ws://"+d.listen+"/v1/vms/"+id+"/console", &websocket.DialOptions{
		HTTPClient: d.client, HTTPHeader: http.Header{"Authorization": {"Bearer " + hvToken}},
	})
	if err != nil {
		d.Fatal(err)
	}
	if res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	defer func() { _ = socket.CloseNow() }()
	socket.SetReadLimit(-1)
	var text strings.Builder
	for {
		_, frame, err := socket.Read(ctx)
		if err != nil || loginPrompt.MatchString(text.String()) {
			return text.String()
		}
		text.Write(frame)
	}
}

// kill -9 in any step of a build ends its tools with the service. The next start removes what is left, and builds
// again; and once that is cancelled, nothing is left either.
func TestABuildDuringWhichTheServiceIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	require.Program(t, "mmdebstrap", "mmdebstrap")
	d := newHypervisor(t, nil, freeLoopback(t))
	d.start()
	parent, err := os.MkdirTemp("/var/tmp", "mainstay-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(parent, "images")
	m := newVMManager(t, d.listen)
	m.args = append(m.args, "--image-folder", folder)
	m.start()
	made := hvAs[vmapi.Image](t, m.ok("POST", "/api/images/build", map[string]any{"name": "web", "distribution": "debian"}, 201))
	for _, step := range []string{"running apt-get update", "downloading packages", "extracting archives"} {
		before := strings.Count(m.imageLog(made.Id.String()), "Building debian")
		eventually(t, step, func() bool {
			log := m.imageLog(made.Id.String())
			last := strings.LastIndex(log, "Building debian")
			return strings.Count(log, "Building debian") >= max(1, before) && last >= 0 && strings.Contains(log[last:], step)
		})
		m.process.kill()
		eventually(t, "the tools end", func() bool { return exec.Command("pgrep", "-f", folder).Run() != nil })
		m.start()
	}
	m.call("POST", "/api/jobs/"+*made.JobId+"/cancel", map[string]any{}) // it may have been interrupted too often already
	eventually(t, "the image has ended", func() bool { return m.image(made).Completed != nil })
	eventually(t, "nothing is left", func() bool {
		left, err := os.ReadDir(folder)
		return err == nil && len(left) == 0
	})
	if status, _ := d.call("GET", "/v1/images/catalog/web", nil); status != 404 {
		t.Errorf("the catalog has the image: %d", status)
	}
}
