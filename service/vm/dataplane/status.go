package dataplane

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// States of a VM's policy.
const (
	None        = "none"
	Pending     = "pending"
	Applied     = "applied"
	Failed      = "failed"
	Unsupported = "unsupported"
)

// SchemaVersion is the version of the form of documents.
const SchemaVersion = 1

// Status is what the daemon has of a VM's policy.
type Status struct {
	State     string
	Reason    string // of Pending and Failed; may be empty
	Effective netpolicy.Effective
	Hash      string // of the document that is wanted
	AppliedAt time.Time
	Daemon    *driver.PolicyState // nil: the daemon did not answer, or has not made the VM
}

// Status returns what the daemon has of a VM's policy.
func (d *Dataplane) Status(ctx context.Context, r *record.VM) (Status, error) {
	v, err := d.load(ctx)
	if err != nil {
		return Status{}, err
	}
	out := v.status(r.ID)
	if r.Provisioned() && r.State != record.Missing {
		now, err := d.driver.NetworkPolicy(ctx, driver.PlaceOf(r))
		switch {
		case err == nil:
			out.Daemon = &now
			v.compare(r.ID, &out)
		case out.State == Pending:
			out.Reason = err.Error()
		}
	}
	return out, nil
}

// status returns the state of a VM's policy as it is stored.
func (v *view) status(id string) Status {
	has := v.States[id]
	out := Status{AppliedAt: has.AppliedAt.Time}
	var err error
	if out.Effective, err = v.world.Effective(id); err != nil {
		out.State, out.Reason = Failed, err.Error()
		return out
	}
	r := v.vms[id]
	out.Hash = out.Effective.Document.Hash()
	switch {
	case has.Error != "":
		out.State, out.Reason = Failed, has.Error
	case out.Hash != has.Hash && (r == nil || !r.Provisioned()):
		out.State, out.Reason = Pending, "the hypervisor daemon has not made the VM yet"
	case out.Hash != has.Hash && (r.Unreachable || r.State == record.Missing):
		out.State, out.Reason = Pending, "the VM's host does not answer"
	case out.Hash != has.Hash:
		out.State = Pending
	case out.Effective.Document == nil:
		out.State = None
	case has.Mode == modeNameless:
		out.State = Failed
		out.Reason = "the hypervisor daemon has no rules for names: those of this policy allow nothing, and the others are in force"
	case has.Mode == driver.ModeUnsupported:
		out.State = Unsupported
	default:
		out.State = Applied
	}
	return out
}

// compare corrects a status by what the daemon says now.
func (v *view) compare(id string, s *Status) {
	if s.State != Applied && s.State != Unsupported {
		return
	}
	switch {
	case s.Daemon.Revision != v.States[id].Revision:
		s.State, s.Reason = Pending, "somebody has changed the policy at the hypervisor daemon; it is put right soon"
	case string(s.Daemon.Mode) == driver.ModeUnsupported:
		s.State = Unsupported
	default:
		s.State = Applied
	}
}

// Effective returns the policy of a VM and what it is made of.
func (d *Dataplane) Effective(ctx context.Context, r *record.VM) (Status, error) {
	v, err := d.load(ctx)
	if err != nil {
		return Status{}, err
	}
	out := v.status(r.ID)
	if _, err := v.world.Effective(r.ID); err != nil {
		return out, err
	}
	return out, nil
}

// Counters returns what the daemon has counted of a VM. found is false if it has not made the VM.
func (d *Dataplane) Counters(ctx context.Context, r *record.VM) (state driver.PolicyState, found bool, err error) {
	if !r.Provisioned() || r.State == record.Missing {
		return state, false, nil
	}
	state, err = d.driver.NetworkPolicy(ctx, driver.PlaceOf(r))
	return state, err == nil, err
}

// Health is the state of all policies in the caller's scope.
type Health struct {
	States     map[string]int // VMs by the state of their policy
	Problems   []Problem
	Identities int
	Groups     int
	Policies   int
}

// Problem is a VM whose policy is not in force.
type Problem struct{ VM, Tenant, State, Reason string }

// maxProblems is the most problems that Health names.
const maxProblems = 100

// Health returns the state of all policies in the caller's scope.
func (d *Dataplane) Health(ctx context.Context) (Health, error) {
	v, err := d.load(ctx)
	if err != nil {
		return Health{}, err
	}
	out := Health{States: map[string]int{}}
	for _, r := range v.seen(ctx) {
		s := v.status(r.ID)
		out.States[s.State]++
		if s.State != None && s.State != Applied && len(out.Problems) < maxProblems {
			out.Problems = append(out.Problems, Problem{r.Name, r.Tenant, s.State, s.Reason})
		}
	}
	identities, err := d.store.Identities(ctx)
	if err != nil {
		return out, err
	}
	out.Identities = len(identities)
	for _, g := range v.NetworkView.Groups {
		if seesDocument(ctx, g.Tenant) {
			out.Groups++
		}
	}
	for _, p := range v.NetworkView.Cilium {
		if seesDocument(ctx, p.Tenant) {
			out.Policies++
		}
	}
	return out, nil
}
