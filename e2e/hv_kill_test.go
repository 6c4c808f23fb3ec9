//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// ledger is what the daemon has acknowledged.
type ledger struct {
	mu sync.Mutex
	// made are the names whose create was answered; tried those whose create, or delete,
	// was not, so that they may be there or not.
	made, tried map[string]bool
	backups     map[string]bool
}

// A daemon that is killed at any moment, in the middle of any operation, comes back to
// what it has acknowledged: no VM is lost or doubled, and nothing on the host is anybody's.
func TestADaemonThatIsKilledAtAnyMomentLosesDoublesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			require.Missing(t, "%s is not installed", program)
		}
	}
	lab := netlab.New()
	t.Cleanup(func() { _ = lab.Close() })
	d := newHypervisor(t, newLabHost(t, lab, "node"), "127.0.0.1:7070")
	l := &ledger{made: map[string]bool{}, tried: map[string]bool{}, backups: map[string]bool{}}
	d.start()
	for round := range kills(t) {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			var work sync.WaitGroup
			for worker := range 3 {
				work.Go(func() {
					l.operate(
						d, rand.New(rand.NewPCG(uint64(round), uint64(worker))), stop,
						fmt.Sprintf("r%dw%d", round, worker),
					)
				})
			}
			work.Wait()
		}()
		time.Sleep(time.Duration(100+rand.IntN(1500)) * time.Millisecond) // any moment will do
		d.process.kill()
		close(stop)
		<-done
		d.start()
		l.check(d, round)
	}
	for _, vm := range d.vms() {
		d.ok("DELETE", "/v1/vms/"+vm.Id, nil)
	}
	if n := len(d.processes()); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if n := taps(t, d.host, d.data); n != 0 {
		t.Errorf("%d taps are left", n)
	}
	for _, place := range []string{"vms", "bases", "images/incoming"} {
		if left, err := filepath.Glob(filepath.Join(d.data, place, "*")); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", place, left, err)
		}
	}
}

// operate makes VMs and does all kinds of things to them until the daemon is gone.
func (l *ledger) operate(d *hvDaemon, r *rand.Rand, stop <-chan struct{}, prefix string) {
	var ids []string
	names := map[string]string{}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		id := ""
		if len(ids) > 0 {
			id = ids[r.IntN(len(ids))]
		}
		path := "/v1/vms/" + id
		switch what := r.IntN(12); {
		case id == "" || what < 3:
			name := fmt.Sprintf("%s-%d", prefix, n)
			l.note(l.tried, name, true)
			mode := []string{"none", "bridge"}[r.IntN(2)]
			status, raw := d.call("POST", "/v1/vms", map[string]any{
				"name":       name,
				"memory_mib": 64,
				"start":      r.IntN(2) == 0,
				"network":    map[string]any{"mode": mode},
			})
			if status == 201 {
				vm := hvAs[hypervisorapi.VM](d.TB, raw)
				ids, names[vm.Id] = append(ids, vm.Id), name
				l.note(l.made, name, true)
				l.note(l.tried, name, false)
			}
		case what == 3:
			l.note(l.tried, names[id], true)
			if status, _ := d.call("DELETE", path, nil); status == 204 {
				l.note(l.made, names[id], false)
				l.note(l.tried, names[id], false)
				for i := range ids {
					if ids[i] == id {
						ids = append(ids[:i], ids[i+1:]...)
						break
					}
				}
			}
		case what == 4:
			d.call("POST", path+"/start", nil)
		case what == 5:
			d.call("POST", path+"/stop", map[string]any{"force": true})
		case what == 6:
			d.call("POST", path+"/pause", nil)
		case what == 7:
			d.call("POST", path+"/resume", nil)
		case what == 8:
			d.call("POST", path+"/snapshots", map[string]any{"name": fmt.Sprintf("s%d", n)})
		case what == 9:
			if status, raw := d.call("POST", path+"/backups", map[string]any{"kind": "incremental"}); status == 202 {
				op := hvAs[hypervisorapi.Operation](d.TB, raw)
				if status, raw := d.call("GET", "/v1/operations/"+op.Id+"?wait=20", nil); status == 200 &&
					hvAs[hypervisorapi.Operation](d.TB, raw).State == "succeeded" {
					l.note(l.backups, *op.BackupId, true)
				}
			}
		case what == 10:
			name := fmt.Sprintf("%s-c%d", prefix, n)
			l.note(l.tried, name, true)
			d.call("POST", path+"/clone", map[string]any{"name": name, "linked": r.IntN(2) == 0})
		case what == 11:
			d.call("POST", path+"/resize", map[string]any{"disk_gib": 2 + n})
		}
	}
}

func (l *ledger) note(where map[string]bool, what string, in bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in {
		where[what] = true
	} else {
		delete(where, what)
	}
}

// check holds what there is against what was acknowledged.
func (l *ledger) check(d *hvDaemon, round int) {
	d.Helper()
	// What was under way is finished or undone first.
	within(d.TB, 2*time.Minute, "everything has settled", func() bool {
		for _, vm := range d.vms() {
			switch vm.State {
			case hypervisorapi.StateCreating,
				hypervisorapi.StateStarting,
				hypervisorapi.StateStopping,
				hypervisorapi.StateDeleting:
				return false
			}
		}
		for _, op := range hvAs[[]hypervisorapi.Operation](d.TB, d.ok("GET", "/v1/operations?limit=1000", nil)) {
			if op.FinishedAt == nil {
				return false
			}
		}
		return true
	})
	there, running := map[string]int{}, map[string]bool{}
	vms := d.vms()
	bridged := 0
	for _, vm := range vms {
		there[vm.Name]++
		if !l.made[vm.Name] && !l.tried[vm.Name] {
			d.Errorf("round %d: %s is there and was never asked for, or was deleted", round, vm.Name)
		}
		if vm.State == hypervisorapi.StateRunning || vm.State == hypervisorapi.StatePaused {
			running[vm.Id] = true
			if *vm.Network.Mode == "bridge" {
				bridged++
			}
		}
	}
	for name := range l.made {
		if there[name] != 1 && !l.tried[name] {
			d.Errorf("round %d: %s is there %d times", round, name, there[name])
		}
	}
	counts := map[string]int{}
	for _, p := range d.processes() {
		counts[p.vm]++
	}
	for id, n := range counts {
		if n != 1 || !running[id] {
			d.Errorf("round %d: VM %s has %d processes, running %v", round, id, n, running[id])
		}
	}
	for id := range running {
		if counts[id] != 1 {
			d.Errorf("round %d: VM %s runs with %d processes", round, id, counts[id])
		}
	}
	if n := taps(d.TB, d.host, d.data); n != bridged {
		d.Errorf("round %d: %d taps for %d VMs on the bridge", round, n, bridged)
	}
	folders, err := os.ReadDir(filepath.Join(d.data, "vms"))
	if err != nil || len(folders) != len(vms) {
		d.Errorf("round %d: %d folders for %d VMs, %v", round, len(folders), len(vms), err)
	}
	for _, f := range folders {
		if left, err := filepath.Glob(filepath.Join(d.data, "vms", f.Name(), "copy.qcow2")); err != nil ||
			len(left) > 0 {
			d.Errorf("round %d: %v, %v", round, left, err)
		}
	}
	backups := map[string]bool{}
	for _, b := range hvAs[[]hypervisorapi.Backup](d.TB, d.ok("GET", "/v1/backups?limit=1000", nil)) {
		backups[b.Id] = true
	}
	for id := range l.backups {
		if !backups[id] {
			d.Errorf("round %d: backup %s is lost", round, id)
		}
	}
	files, err := os.ReadDir(filepath.Join(d.data, "backups"))
	if err != nil || len(files) != len(backups) {
		d.Errorf("round %d: %d files for %d backups, %v", round, len(files), len(backups), err)
	}
	for _, f := range files {
		if out, err := exec.Command(
			"qemu-img", "check", "-q", filepath.Join(d.data, "backups", f.Name()),
		).CombinedOutput(); err != nil {
			d.Errorf("round %d: backup %s: %v: %s", round, f.Name(), err, strings.TrimSpace(string(out)))
		}
	}
}
