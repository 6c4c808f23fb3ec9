package migrate

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Request asks for a migration.
type Request struct {
	Node    string // empty: the one with most room
	Restart bool   // shut down a VM that runs, and start it there
	Grace   time.Duration
}

// sendArgs are the arguments of the job of a migration.
type sendArgs struct {
	VM, Node string
	Start    bool // there; it is shut down here first
	Grace    time.Duration
	Actor    caller.Caller
	Asked    time.Time // zero for those of an earlier version
}

// Send starts an operation that moves a VM to another host. For a VM that was handed over before, it continues
// that.
func (m *Manager) Send(ctx context.Context, id string, q Request) (record.Operation, error) {
	r, err := m.store.VM(ctx, id)
	if err != nil {
		return record.Operation{}, err
	}
	if m.peers == nil {
		return record.Operation{}, fault.New(fault.Conflict, "this host is in no fleet; start it with --registry").
			WithCode("no_fleet")
	}
	args := sendArgs{VM: id, Grace: q.Grace, Actor: caller.From(ctx), Asked: m.now()}
	if to := r.HandedOver.V; to != nil {
		if q.Node != "" && q.Node != to.Node {
			return record.Operation{}, r.IsHere()
		}
		args.Node = to.Node
	} else {
		as := r
		if q.Restart && (r.State == vm.Running || r.State == vm.Paused) {
			args.Start, as.State = true, vm.Stopped
		}
		if err := m.movable(ctx, &as); err != nil {
			return record.Operation{}, err
		}
		args.Node, err = m.peers.Choose(ctx, q.Node, placement.Request{
			Resources: placement.Resources{VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB}, Backend: r.Backend,
		})
		if err != nil {
			return record.Operation{}, err
		}
	}
	op := record.NewOperation(record.OperationMigrate, r.Tenant)
	op.VM = id
	return m.operate.Begin(ctx, op, args, audit.Entry{
		Action: "vm.migrate", Target: id, Tenant: r.Tenant, Message: r.Name + " to " + args.Node,
	})
}

// send is the job of a migration.
func (m *Manager) send(ctx context.Context, a sendArgs, progress func(float64)) error {
	if m.peers == nil {
		return fault.New(fault.Conflict, "this host is in no fleet any more")
	}
	r, err := m.store.VM(ctx, a.VM)
	if fault.Is(err, fault.NotFound) {
		return nil // it had moved before the daemon ended
	}
	if err != nil {
		return err
	}
	if err := a.stands(&r); err != nil {
		return err
	}
	if a.Start && r.State.HasProcess() {
		if err := m.shutDown(ctx, a); err != nil {
			return err
		}
	}
	err = m.withLock(ctx, a.VM, func(ctx context.Context, r record.VM) error {
		if r.State == vm.Deleting {
			return nil // as above
		}
		if err := a.stands(&r); err != nil {
			return err
		}
		if r.HandedOver.V == nil {
			if err := m.handOver(ctx, &r, a, progress); err != nil {
				return err
			}
		}
		return m.conclude(ctx, r)
	})
	if err != nil && a.Start && !operation.BrokenOff(ctx) {
		m.startAgain(ctx, a.VM)
	}
	return err
}

// stands returns an error if the VM was taken back since the migration was asked for. An operation that was
// interrupted is repeated, and must not move the VM then.
func (a *sendArgs) stands(r *record.VM) error {
	if !a.Asked.IsZero() && r.TakenBackAt.After(a.Asked) {
		return errTakenBack
	}
	return nil
}

// shutDown stops a VM that will be started by the other host.
func (m *Manager) shutDown(ctx context.Context, a sendArgs) error {
	if _, err := m.life.Stop(ctx, a.VM, a.Grace, false); err != nil {
		return err
	}
	const margin = time.Minute // to kill it
	r, err := m.life.Wait(ctx, a.VM, vm.Stopped, a.Grace+margin)
	if err == nil && r.State != vm.Stopped {
		err = fault.New(fault.Conflict, "the VM is %s, and does not stop", r.State).WithCode("wrong_state")
	}
	return err
}

// startAgain starts a VM that ran before its migration failed.
func (m *Manager) startAgain(ctx context.Context, id string) {
	_, err := m.life.Start(context.WithoutCancel(ctx), id)
	if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
		m.log.Error("a VM that was shut down to move did not move, and does not start again", "vm", id, "error", err)
	}
}

// withLock calls work with the work lock of a VM, which may be handed over. Deleting the VM, and taking it back,
// cancel the work.
func (m *Manager) withLock(ctx context.Context, id string, work func(ctx context.Context, r record.VM) error) error {
	one := m.machines.Get(id)
	release, err := one.Work(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := m.store.VM(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, done := one.Breakable(ctx)
	defer done()
	err = work(ctx, r)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// handOver copies a VM to another host and stores that it is that host's from now on.
func (m *Manager) handOver(ctx context.Context, r *record.VM, a sendArgs, progress func(float64)) error {
	if err := m.movable(ctx, r); err != nil {
		return err
	}
	peer, err := m.peers.Peer(ctx, a.Node)
	if err != nil {
		return err
	}
	defer m.catalog.Hold()()
	id := record.NewID()
	offer, files, err := m.offer(ctx, id, r)
	if err != nil {
		return err
	}
	defer files.close()
	err = func() error {
		needed, err := peer.Offer(ctx, offer)
		if err != nil {
			return err
		}
		sums, err := copyTo(ctx, peer, id, files, needed, progress)
		if err != nil {
			return err
		}
		return peer.Prepare(ctx, id, sums)
	}()
	if err == nil {
		// A cancellation that comes later than this is too late.
		*r, err = m.store.HandOver(ctx, r.ID, r.Generation, record.HandOver{Migration: id, Node: a.Node, Start: a.Start})
	}
	if err == nil {
		return nil
	}
	// It is not known to the other host, or that one gives up by itself, unless it is prepared.
	if abortErr := peer.Abort(context.WithoutCancel(ctx), id); abortErr != nil && !fault.Is(abortErr, fault.NotFound) {
		m.log.Warn("a host was not told that a VM does not come", "vm", r.ID, "node", a.Node, "migration", id, "error", abortErr)
	}
	return err
}

// patience is how long a migration waits for the confirmation of the other host. After that, it fails, and the
// host is asked once a minute.
const patience = 2 * time.Minute

var retries = backoff.Schedule{Base: 500 * time.Millisecond, Max: 10 * time.Second}

// conclude ends the migration of a VM that was handed over. The caller holds the VM's work lock.
func (m *Manager) conclude(ctx context.Context, r record.VM) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := m.settle(waiting, r)
		if err == nil || r.HandedOver.V == nil || !errors.Is(err, errUndecided) {
			return err
		}
		timer := time.NewTimer(retries.Delay(attempt, rand.Float64))
		select {
		case <-timer.C:
		case <-waiting.Done():
			timer.Stop()
			return fault.Wrap(fault.Unavailable, err, "the host %s has everything, but does not confirm that it has the VM: %s; "+
				"it is asked again each minute; if it never comes back, take the VM back", r.HandedOver.V.Node, fault.From(err).Message).
				WithCode("handed_over")
		}
	}
}

// errUndecided means that the other host has not said whether it has the VM.
var errUndecided = errors.New("it is not known whether the other host has the VM")

// settle asks the other host to commit, and acts on its answer. The caller holds the VM's work lock.
func (m *Manager) settle(ctx context.Context, r record.VM) error {
	to := r.HandedOver.V
	peer, err := m.peers.Peer(ctx, to.Node)
	if err != nil {
		return errors.Join(err, errUndecided)
	}
	switch err := peer.Commit(ctx, to.Migration, to.Start); {
	case err == nil:
		return m.leave(ctx, r)
	case isAborted(err):
		_, backErr := m.store.TakeBack(context.WithoutCancel(ctx), r.ID, to.Migration, "", fault.From(err).Message)
		return errors.Join(err, backErr)
	default:
		return errors.Join(err, errUndecided)
	}
}

// isAborted reports whether the other host does not have the VM, and never will by this migration.
func isAborted(err error) bool {
	switch fault.From(err).PublicCode() {
	case record.CodeAborted, record.ErrUnknownMigration.PublicCode():
		return true
	}
	return false
}

// leave erases a VM that is another host's. If that fails, it is retried like the deletion of a VM.
func (m *Manager) leave(ctx context.Context, r record.VM) error {
	ctx = context.WithoutCancel(ctx)
	message := "it moved to the host " + r.HandedOver.V.Node
	r, err := m.store.Move(ctx, r.ID, vm.Left, "", message, nil)
	if err != nil {
		return err
	}
	if err := m.life.Erase(ctx, r); err != nil {
		m.log.Error("a VM that has moved is not removed; that is tried again", "vm", r.ID, "error", err)
	}
	return nil
}

// settleHandedOver asks the other hosts about VMs whose migration was interrupted after the hand-over.
func (m *Manager) settleHandedOver(ctx context.Context) {
	if m.peers == nil {
		return
	}
	all, err := m.store.HandedOver(ctx)
	if err != nil {
		m.log.Error("the VMs that were handed over to other hosts are not known", "error", err)
	}
	for _, r := range all {
		release, ok := m.machines.Get(r.ID).TryWork()
		if !ok {
			continue // its operation does this
		}
		r, err := m.store.VM(ctx, r.ID)
		if err == nil && r.HandedOver.V != nil && r.State != vm.Deleting {
			err = m.settle(ctx, r)
		}
		release()
		if err != nil && ctx.Err() == nil {
			m.log.Warn("a VM that was handed over is not confirmed", "vm", r.ID, "error", err)
		}
	}
}

// errTakenBack is the cause with which a migration ends whose VM is taken back.
var errTakenBack = fault.New(fault.Conflict, "the VM was taken back")

// TakeBack keeps a VM that was handed over, unless the other host has it. If lost is set, that host is not asked.
func (m *Manager) TakeBack(ctx context.Context, id string, lost bool) (record.VM, error) {
	r, err := m.store.VM(ctx, id)
	if err != nil {
		return r, err
	}
	one := m.machines.Get(id)
	if r.HandedOver.V != nil {
		one.BreakOff(errTakenBack)
	}
	var back record.VM
	err = m.withLock(ctx, id, func(ctx context.Context, r record.VM) error {
		migration, why := "", "an admin took it back"
		if to := r.HandedOver.V; to != nil {
			migration = to.Migration
			if lost {
				why += ", and said that the host " + to.Node + " is lost"
			} else if err := m.askToAbort(ctx, r); err != nil {
				return err
			}
		}
		var err error
		back, err = m.store.TakeBack(context.WithoutCancel(ctx), id, migration, "vm.take_back", why)
		return err
	})
	return back, err
}

// askToAbort asks the other host to abort. If it has the VM already, this host erases its own.
func (m *Manager) askToAbort(ctx context.Context, r record.VM) error {
	to := r.HandedOver.V
	if m.peers == nil {
		return fault.New(fault.Conflict, "this host is in no fleet; it cannot ask the host %s", to.Node).WithCode("no_fleet")
	}
	peer, err := m.peers.Peer(ctx, to.Node)
	if err == nil {
		err = peer.Abort(ctx, to.Migration)
	}
	switch {
	case err == nil || isAborted(err):
		return nil
	case fault.From(err).PublicCode() == record.CodeCommitted:
		return errors.Join(m.leave(ctx, r),
			fault.New(fault.Conflict, "the host %s has the VM", to.Node).WithCode("migrated"))
	}
	return err
}
