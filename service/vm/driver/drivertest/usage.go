package drivertest

import (
	"net/http"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// metered is what the daemon has measured of a VM.
type metered struct {
	at     []time.Time
	counts bool
	sent   int64
}

// meteredOf returns what was measured of a VM. The caller holds the lock.
func (d *Daemon) meteredOf(name string) *metered {
	d.t.Helper()
	id := d.named(name).Id
	if d.metered[id] == nil {
		d.metered[id] = &metered{}
	}
	return d.metered[id]
}

// Move moves a VM to a state at a time, and tells it in the stream of events, as the daemon does when it
// does so by itself. A VM that begins to run has started then.
func (d *Daemon) Move(name string, state hypervisorapi.State, at time.Time) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	vm := d.named(name)
	switch {
	case state != hypervisorapi.StateRunning && state != hypervisorapi.StatePaused:
		vm.StartedAt = nil
	case vm.StartedAt == nil:
		vm.StartedAt = &at
	}
	vm.State, vm.Generation = state, vm.Generation+1
	d.tell(vm, state)
	d.told[len(d.told)-1].At = at
}

// Hide has the daemon not know a VM, without an event, until show is called.
func (d *Daemon) Hide(name string) (show func()) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	vm := d.named(name)
	delete(d.vms, vm.Id)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.vms[vm.Id] = vm
	}
}

// Measured has the daemon tell in a VM's history that it has measured its process in these minutes.
func (d *Daemon) Measured(name string, at ...time.Time) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.meteredOf(name)
	u.at = append(u.at, at...)
}

// Sent sets how many bytes the process of a VM has sent.
func (d *Daemon) Sent(name string, bytes int64) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.meteredOf(name)
	u.counts, u.sent = true, bytes
}

func (d *Daemon) history(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		h := hypervisorapi.VMHistory{StepSeconds: 60, Points: []hypervisorapi.UsagePoint{}}
		if u := d.metered[vm.Id]; u != nil {
			for _, at := range u.at {
				h.Points = append(h.Points, hypervisorapi.UsagePoint{At: at.Truncate(time.Minute)})
			}
		}
		return 200, h
	})
}
