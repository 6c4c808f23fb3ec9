//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
)

func (m *vmManager) ok(method, path string, body any, want int) []byte {
	m.Helper()
	status, raw := m.call(method, path, body)
	if status != want {
		m.Fatalf("%s %s: %d %s", method, path, status, raw)
	}
	return raw
}

// settled waits until no backup is being made or restored, and returns the backups, newest first.
func (m *vmManager) settled() (all []vmapi.Backup) {
	m.Helper()
	eventually(m.TB, "no backup is being made", func() bool {
		all = hvAs[[]vmapi.Backup](m.TB, m.ok("GET", "/api/backups", map[string]any{}, 200))
		for _, b := range all {
			if b.Status == vmapi.BackupStatusPending || b.Status == vmapi.BackupStatusRunning {
				return false
			}
		}
		for _, j := range hvAs[[]vmapi.BackupJob](m.TB, m.ok("GET", "/api/backups/jobs", map[string]any{}, 200)) {
			if j.Status == vmapi.BackupJobStatusQueued || j.Status == vmapi.BackupJobStatusRunning {
				return false
			}
		}
		return true
	})
	return all
}

// VM management and the daemon below it are killed while a VM that writes all the time is backed up:
// no half backup is complete, no change is missed, the guest does not notice, and nothing stays
// locked.
func TestBackupsDuringWhichTheServiceOrTheDaemonIsKilledAreWholeOrNotThere(t *testing.T) {
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
	d.sh(below, "dd if=/dev/urandom of=/dev/vda bs=1M count=64; sync")

	completed := 0
	for round := range max(2, kills(t)/8) { // with a guest that boots, a round takes half a minute
		stop := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				m.call("POST", "/api/backups", map[string]any{
					"vm_name": "web", "backup_type": []string{"incremental", "full"}[n%2],
				})
				time.Sleep(50 * time.Millisecond) // the service may be dead
			}
		})
		script := fmt.Sprintf(
			"dd if=/dev/urandom of=/dev/vda bs=64k count=40 seek=%d conv=notrunc; sync", rand.IntN(1500))
		d.sh(below, script)
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond) // any moment will do
		if round%2 == 1 {
			d.process.kill()
			d.start()
			d.connected(below)
		} else {
			m.process.kill()
			m.start()
		}
		d.sh(below, script)
		close(stop)
		work.Wait()
		all := m.settled()

		// What the guest has now is what a backup of now brings back.
		want := d.sum(below)
		last := hvAs[vmapi.Backup](t, m.ok("POST", "/api/backups", map[string]any{
			"vm_name": "web", "backup_type": "incremental",
		}, 201))
		now := m.settled()[0]
		if now.Id != last.Id || now.Status != vmapi.BackupStatusCompleted {
			t.Fatalf("round %d: %+v", round, now)
		}
		copied := fmt.Sprintf("copy-%d", round)
		m.ok("POST", "/api/backups/restore", map[string]any{"backup_id": last.Id, "target_vm_name": copied}, 200)
		m.settled()
		if v := m.vm(copied); v.LastError != "" {
			t.Fatalf("round %d: %s", round, v.LastError)
		}
		m.ok("POST", "/api/vms/"+copied+"/start", map[string]any{}, 202)
		eventually(t, "the copy runs", func() bool { return m.vm(copied).State == "running" })
		for _, vm := range d.vms() {
			if vm.Name != copied {
				continue
			}
			d.connected(vm.Id)
			if got := d.sum(vm.Id); got != want {
				t.Fatalf("round %d: the backup brings back %s, and the guest has %s", round, got, want)
			}
		}
		m.ok("DELETE", "/api/vms/"+copied, map[string]any{}, 204)
		for _, b := range all {
			if b.Status == vmapi.BackupStatusCompleted {
				completed++
			}
		}
	}
	if completed == 0 {
		t.Error("no backup was completed beside the kills")
	}
	j := hvAs[vmapi.Job](t, m.ok("POST", "/api/backups/verify", map[string]any{}, 202))
	j = hvAs[vmapi.Job](t, m.ok("GET", "/api/jobs/"+j.Id+"?wait=120", map[string]any{}, 200))
	if j.Status != vmapi.JobStatusCompleted {
		t.Errorf("the repository is not whole: %+v", j)
	}
}

// sum returns a checksum of the part of a guest's disk that the test writes to.
func (d *hvDaemon) sum(id string) string {
	d.Helper()
	out := hvAs[hypervisorapi.ExecOutcome](d.TB, d.ok("POST", "/v1/vms/"+id+"/agent/exec", map[string]any{
		"argv": []string{"/bin/sh", "-ec", "sync; head -c 104857600 /dev/vda | md5sum"}, "timeout_seconds": 600,
	}))
	if out.ExitCode != 0 || len(out.Stdout) < 32 {
		d.Fatalf("the guest's disk cannot be read: %+v", out)
	}
	return out.Stdout
}

func (m *vmManager) vm(name string) vmapi.VM {
	m.Helper()
	return hvAs[vmapi.VM](m.TB, m.ok("GET", "/api/vms/"+name, map[string]any{}, 200))
}
