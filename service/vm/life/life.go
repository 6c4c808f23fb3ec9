// Package life creates, starts, stops and deletes VMs: it stores what is wanted, and has the
// hypervisor daemon do it.
//
// # Jobs
//
//	vm.provision    the daemon makes the VM; then a start that was asked for meanwhile begins
//	vm.start        the daemon makes the VM if that has failed before, and starts it
//
// Stop, restart, pause and resume last as long as their requests. A request that is broken off by a
// crash leaves what the daemon did; the reconciliation (package watch) stores it.
//
// # Invariants
//
//   - A job can be repeated at any point: the daemon's VM is found by its label, and a VM that runs
//     is started already.
//   - A failed job leaves the VM usable: the state that the daemon tells, and the reason in
//     last_error.
//   - A VM starts only after the daemon has its network policy.
//   - A deleted VM is removed from the daemon by a sweep, which repeats until the daemon has done
//     it.
//
// It imports caller, driver, job and record.
package life

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the dependencies of a Life.
type Config struct {
	Store  *record.Store
	Driver *driver.Driver
	Jobs   *job.Runner
	Sealer *auth.Sealer // of settings for cloud-init
	Log    *slog.Logger
	Now    func() time.Time
	// Guard has the daemon enforce a VM's network policy, and returns when it does. It is called before
	// the VM starts.
	Guard func(ctx context.Context, id string) error
}

// Life is what can be done with VMs.
type Life struct {
	store  *record.Store
	driver *driver.Driver
	jobs   *job.Runner
	sealer *auth.Sealer
	log    *slog.Logger
	now    func() time.Time
	guard  func(ctx context.Context, id string) error
	swept  chan struct{} // nudges the sweep of deleted VMs
}

// New returns a Life, and registers its kinds of jobs.
func New(c Config) *Life {
	l := &Life{
		store: c.Store, driver: c.Driver, jobs: c.Jobs, sealer: c.Sealer, log: c.Log, now: c.Now, guard: c.Guard,
		swept: make(chan struct{}, 1),
	}
	job.Register(l.jobs, record.JobProvision, job.Kind[target]{Run: l.provision, Cancelled: l.cancelled})
	job.Register(l.jobs, record.JobStart, job.Kind[target]{Run: l.start, Cancelled: l.cancelled})
	return l
}

// target is the argument of jobs about a VM.
type target struct {
	VM    string              `json:"vm"`
	Actor string              `json:"actor"` // who asked, as the daemon's audit log will say
	Start driver.StartOptions `json:"start"` // of vm.start
}

func targetOf(ctx context.Context, r *record.VM) target {
	return target{VM: r.ID, Actor: caller.From(ctx).Person()}
}

// begin returns a function that begins a job of a kind for a VM.
func (l *Life) begin(ctx context.Context, kind string) func(tx *db.Tx, r *record.VM) error {
	return func(tx *db.Tx, r *record.VM) error {
		j := record.NewJob(kind, r)
		return l.jobs.Begin(ctx, tx, &j, targetOf(ctx, r))
	}
}

// Create stores a new VM, and has the daemon make it in a job.
func (l *Life) Create(ctx context.Context, r record.VM, init record.CloudInit) (record.VM, error) {
	r.ID, r.State = record.NewID(), record.Stopped
	if init.UserData != "" || init.Hostname != "" || len(init.SSHAuthorizedKeys) > 0 {
		text, err := json.Marshal(init)
		if err != nil {
			return r, err
		}
		r.Secret = l.sealer.Seal(text, r.ID)
	}
	return l.store.Add(ctx, r, "vm.create", "created", l.begin(ctx, record.JobProvision))
}

// Clone stores a VM that gets a copy of another one's disk, and has the daemon make it in a job.
func (l *Life) Clone(ctx context.Context, source *record.VM, name string, linked bool) (record.VM, error) {
	switch {
	case source.Name == name:
		return record.VM{}, fault.InvalidField("target_name", "is the name of the VM itself")
	case !source.Provisioned():
		return record.VM{}, fault.New(fault.NotFound, "VM %s has no disk yet: the daemon has not made it", source.Name)
	case linked && source.State != record.Stopped && source.State != record.Failed:
		return record.VM{}, fault.New(fault.Conflict, "VM %s is %s; a linked clone takes a stopped VM", source.Name, source.State)
	}
	r := *source
	r.ID, r.Name, r.State = record.NewID(), name, record.Stopped
	r.Spec.V.Source, r.Spec.V.Linked = source.ID, linked
	r.Spec.V.Network.Forwards = nil // two VMs cannot share a port of the host
	r.DriverID, r.Node, r.DriverGen, r.IPs.V, r.MAC, r.LastError = "", "", 0, nil, "", ""
	r.Disks.V, r.Reservations.V, r.DataDisk = nil, nil, 0
	r.Agent.V, r.SnapshotID, r.Secret, r.StartedAt, r.Protected = record.Agent{}, "", "", db.Time{}, false
	begin := l.begin(ctx, record.JobProvision)
	return l.store.Add(ctx, r, "vm.clone", "cloned from "+source.Name, func(tx *db.Tx, r *record.VM) error {
		if err := l.store.CopyVMPolicy(ctx, tx, r.Spec.V.Source, r.ID); err != nil {
			return err
		}
		return begin(tx, r)
	})
}

// Delete marks a VM as deleted and has it removed from the daemon.
func (l *Life) Delete(ctx context.Context, id string) error {
	err := l.store.Delete(ctx, id, func(tx *db.Tx, j string) error {
		err := l.jobs.CancelIn(ctx, tx, j)
		if fault.Is(err, fault.Conflict) {
			return nil // it has ended meanwhile
		}
		return err
	})
	if err == nil {
		l.nudge()
	}
	return err
}

// Discard removes a VM that a job has made and failed to finish. The job stays as it is.
func (l *Life) Discard(ctx context.Context, id string) error {
	err := l.store.Delete(ctx, id, func(*db.Tx, string) error { return nil })
	if fault.Is(err, fault.NotFound) {
		return nil // deleted meanwhile
	}
	if err == nil {
		l.nudge()
	}
	return err
}

func (l *Life) nudge() {
	select {
	case l.swept <- struct{}{}:
	default:
	}
}

// Nudged receives a value when Sweep should run soon.
func (l *Life) Nudged() <-chan struct{} { return l.swept }

// lost is how long after its deletion a VM that was never made is looked for at the daemon, because
// a request to make it may have been under way.
const lost = 15 * time.Minute

// Sweep removes deleted VMs from the daemon.
func (l *Life) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	const page = 100
	all, err := l.store.Deleted(ctx, page)
	for i := 0; i < len(all) && err == nil; i++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		gone, err := l.remove(ctx, &all[i])
		switch {
		case fault.Is(err, fault.Unavailable) && !l.driver.Fleet():
			l.log.Debug("deleted VMs are not removed while the daemon does not answer", "error", err)
			return nil
		case err != nil:
			l.log.Warn("a deleted VM was not removed from the daemon yet", "vm", all[i].ID, "name", all[i].Name, "error", err)
		case gone:
			if err := l.store.Removed(ctx, all[i].ID); err != nil {
				return err
			}
		}
	}
	return err
}

// remove removes a VM from the daemon, and reports whether it is certainly gone.
func (l *Life) remove(ctx context.Context, r *record.VM) (gone bool, err error) {
	if r.Provisioned() {
		return true, l.driver.Delete(ctx, driver.PlaceOf(r))
	}
	seen, err := l.driver.Find(ctx, r)
	if err != nil {
		return false, err
	}
	if seen != nil {
		at := driver.Place{Node: seen.Node, ID: seen.DriverID, Tenant: r.Tenant}
		return true, l.driver.Delete(ctx, at)
	}
	return l.now().Sub(r.DeletedAt.Time) > lost, nil
}

// Update changes a VM's record, and has the daemon know what concerns it. If the daemon refuses, the
// record is as before.
func (l *Life) Update(ctx context.Context, id string, c record.Change) (record.VM, error) {
	before, err := l.store.VM(ctx, id)
	if err != nil {
		return before, err
	}
	below, any := c.Below(&before)
	after, err := l.store.Update(ctx, id, c)
	if err != nil || !any || !before.Provisioned() {
		return after, err
	}
	seen, err := l.driver.Change(ctx, driver.PlaceOf(&before), below)
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		if _, undone := l.store.Update(ctx, id, below.Reverse(&before)); undone != nil {
			l.log.Error("a change that the daemon refused was not undone", "vm", id, "error", undone)
		}
		return before, err
	}
	if err := l.store.Observed(ctx, id, seen, true); err != nil {
		return after, err
	}
	return l.store.VM(ctx, id)
}
