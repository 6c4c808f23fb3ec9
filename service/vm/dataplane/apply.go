package dataplane

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const (
	// workers is the number of VMs whose policies are applied at once.
	workers = 8
	// attempts is how often a policy is computed anew because somebody else changed it at the daemon.
	attempts = 4
)

// modeNameless is the stored mode of a policy that the daemon has without its rules for names, because
// it has none. They allow nothing then.
const modeNameless = "nameless"

// Sync gives the daemon what differs from what it has, as far as that is stored.
func (d *Dataplane) Sync(ctx context.Context) error { return d.all(ctx, false) }

// Compare asks the daemon about the policies that it should have, and puts right what somebody else has
// changed there.
func (d *Dataplane) Compare(ctx context.Context) error { return d.all(ctx, true) }

func (d *Dataplane) all(ctx context.Context, verify bool) error {
	ctx = caller.ByItself(ctx)
	v, err := d.load(ctx)
	if err != nil {
		return err
	}
	if err := d.store.KeepIdentities(ctx, v.identities()); err != nil {
		return err
	}
	var due []*record.VM
	for i := range v.VMs {
		if r := &v.VMs[i]; d.due(v, r, verify) {
			due = append(due, r)
		}
	}
	for i, err := range d.each(ctx, due, func(_ int, r *record.VM) error { return d.settle(ctx, v, r.ID, verify) }) {
		d.noteFailure(ctx, due[i], err)
	}
	return ctx.Err()
}

// each calls f for VMs, a few at once, and returns its errors in their order.
func (d *Dataplane) each(ctx context.Context, vms []*record.VM, f func(i int, r *record.VM) error) []error {
	places := make(chan struct{}, workers)
	done := make([]<-chan error, len(vms))
	for i, r := range vms {
		places <- struct{}{}
		done[i] = routine.Start(d.log, "network policy of "+r.ID, func() error {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return f(i, r)
		})
	}
	out := make([]error, len(vms))
	for i := range done {
		out[i] = <-done[i]
	}
	return out
}

// due reports whether there may be something to do about a VM. It computes the VM's document, which
// must not be done by several workers at once.
func (d *Dataplane) due(v *view, r *record.VM, verify bool) bool {
	state, found := v.States[r.ID]
	if !r.Provisioned() || r.State == record.Missing || r.Unreachable {
		return false
	}
	effective, err := v.world.Effective(r.ID)
	if err != nil {
		d.noteFailure(caller.ByItself(context.Background()), r, err)
		return false
	}
	return found && (verify || state.Hash != effective.Document.Hash() || state.Error != "") || !found && effective.Document != nil
}

// noteFailure logs why a policy is not applied, once for each reason. Nil: it is applied.
func (d *Dataplane) noteFailure(ctx context.Context, r *record.VM, err error) {
	d.mu.Lock()
	if err == nil {
		delete(d.noted, r.ID)
		d.mu.Unlock()
		return
	}
	known := d.noted[r.ID] == err.Error()
	d.noted[r.ID] = err.Error()
	d.mu.Unlock()
	if ctx.Err() == nil && !known {
		d.log.Warn("a VM's network policy is not applied yet", "vm", r.ID, "name", r.Name, "error", err)
	}
}

// Apply gives the daemon the policy of a VM if it does not have it, and returns when it has. The VM must
// have been made.
func (d *Dataplane) Apply(ctx context.Context, id string) error {
	return d.settle(ctx, nil, id, true)
}

// settle gives the daemon the policy of a VM. v is what counts; nil: it is read. With verify, the daemon
// is asked what it has.
func (d *Dataplane) settle(ctx context.Context, v *view, id string, verify bool) (err error) {
	defer d.lock(id)()
	for range attempts {
		if v == nil {
			if v, err = d.load(ctx); err != nil {
				return err
			}
		}
		r := v.vms[id]
		if r == nil || !r.Provisioned() {
			return nil
		}
		var again bool
		if again, err = d.once(ctx, v, r, verify); !again {
			return err
		}
		v, verify = nil, true
	}
	return err
}

// wanted computes the document of a VM from a view that others may use, too.
func (v *view) wanted(id string) (*netpolicy.Document, error) {
	effective, err := netpolicy.NewWorld(v.in).Effective(id)
	return effective.Document, err
}

// once makes one attempt. again means that somebody else may have changed the policy meanwhile.
func (d *Dataplane) once(ctx context.Context, v *view, r *record.VM, verify bool) (again bool, err error) {
	has, found := v.States[r.ID]
	has.VM = r.ID
	want, err := v.wanted(r.ID)
	if err != nil {
		return false, d.failed(ctx, has, err)
	}
	if want == nil && !found {
		return false, nil
	}
	if verify {
		now, err := d.driver.NetworkPolicy(ctx, driver.PlaceOf(r))
		if err != nil {
			return false, d.failed(ctx, has, err)
		}
		asStored := want == nil && string(now.Mode) == driver.ModeNone || want != nil && now.Revision == has.Revision
		if asStored && has.Hash == want.Hash() {
			if has.Error == "" && (has.Mode == string(now.Mode) || has.Mode == modeNameless) {
				return false, nil
			}
			has.Error, has.Mode = "", string(now.Mode)
			return false, d.store.PolicyApplied(ctx, has)
		}
		// What replaces this revision must be computed from what is read now: it may be there because of
		// a change that v does not have.
		if want, r, has, err = d.anew(ctx, r.ID); err != nil || r == nil {
			return false, err
		}
		if want != nil && has.Revision == now.Revision && has.Hash == want.Hash() && has.Error == "" {
			return false, nil
		}
		has.Revision = now.Revision
	} else {
		if has.Hash == want.Hash() && has.Error == "" {
			return false, nil
		}
		// A request may have applied the policy since v was read. Then both are read again.
		stored, _, err := d.store.PolicyState(ctx, r.ID)
		if err != nil {
			return false, err
		}
		if stored.Hash != has.Hash || stored.Revision != has.Revision {
			return true, nil
		}
	}
	if want == nil {
		return d.remove(ctx, has)
	}
	now, err := d.driver.SetNetworkPolicy(ctx, driver.PlaceOf(r), want, has.Revision)
	mode := string(now.Mode)
	if driver.RefusesNames(err) && want.Names() {
		now, err = d.driver.SetNetworkPolicy(ctx, driver.PlaceOf(r), want.WithoutNames(), has.Revision)
		mode = modeNameless
	}
	switch {
	case err != nil && fault.From(err).Code == driver.CodeStaleRevision:
		return true, err
	case err != nil:
		return false, d.failed(ctx, has, err)
	}
	return false, d.store.PolicyApplied(context.WithoutCancel(ctx), record.PolicyState{
		VM: r.ID, Hash: want.Hash(), Revision: now.Revision, Mode: mode, AppliedAt: db.At(d.now()),
	})
}

// anew reads a VM and what the daemon has of its policy, and computes its document. The VM is nil if it
// is gone.
func (d *Dataplane) anew(
	ctx context.Context, id string,
) (want *netpolicy.Document, r *record.VM, has record.PolicyState, err error) {
	v, err := d.load(ctx)
	if err != nil || v.vms[id] == nil {
		return nil, nil, has, err
	}
	has = v.States[id]
	has.VM = id
	want, err = v.wanted(id)
	return want, v.vms[id], has, err
}

// remove removes a policy. A removal replaces any revision, so what counts is read again before it and
// after it.
func (d *Dataplane) remove(ctx context.Context, has record.PolicyState) (again bool, err error) {
	want, r, _, err := d.anew(ctx, has.VM)
	if err != nil || r == nil || want != nil {
		return want != nil, err
	}
	if err := d.driver.RemoveNetworkPolicy(ctx, driver.PlaceOf(r)); err != nil {
		return false, d.failed(ctx, has, err)
	}
	ctx = context.WithoutCancel(ctx)
	err = d.store.PolicyApplied(ctx, record.PolicyState{VM: has.VM, Mode: driver.ModeNone, AppliedAt: db.At(d.now())})
	if err != nil {
		return false, err
	}
	want, _, _, err = d.anew(ctx, has.VM)
	return want != nil, err
}

// failed stores why a policy was not applied, and returns the error. A daemon that is away is no failure
// of the policy.
func (d *Dataplane) failed(ctx context.Context, has record.PolicyState, cause error) error {
	f := fault.From(cause)
	if ctx.Err() != nil || f.Kind == fault.Unavailable || f.Kind == fault.NotFound || has.Error == f.Message {
		return cause
	}
	has.Error = f.Message
	if err := d.store.PolicyApplied(ctx, has); err != nil {
		d.log.Error("the state of a network policy was not stored", "vm", has.VM, "error", err)
	}
	return cause
}
