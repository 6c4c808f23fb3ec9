package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// NetworkPolicy is the network policy of a VM.
type NetworkPolicy struct {
	VM       string                     `db:"vm_id"`
	Revision int64                      `db:"revision"` // increases with each change; 0: there never was one
	Policy   db.JSON[*netpolicy.Policy] `db:"policy"`   // nil: none
}

// NetworkPolicy returns the network policy of a VM in the caller's scope, and the VM.
func (s *Store) NetworkPolicy(ctx context.Context, id string) (NetworkPolicy, VM, error) {
	r, err := s.VM(ctx, id)
	if err != nil {
		return NetworkPolicy{}, r, err
	}
	p, err := policyIn(ctx, s.db, id)
	return p, r, err
}

func policyIn(ctx context.Context, q db.Querier, id string) (NetworkPolicy, error) {
	p := NetworkPolicy{VM: id}
	err := q.Get(ctx, &p, "SELECT * FROM network_policies WHERE vm_id = ?", id)
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return p, err
}

// NetworkPolicies returns all that are not removed.
func (s *Store) NetworkPolicies(ctx context.Context) (all []NetworkPolicy, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM network_policies WHERE policy <> 'null' ORDER BY vm_id")
}

// SetNetworkPolicy replaces the network policy of a VM in the caller's scope; nil removes it. It fails
// if before is given and is not the current revision.
func (s *Store) SetNetworkPolicy(
	ctx context.Context, id string, before *int64, policy *netpolicy.Policy,
) (p NetworkPolicy, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		r, err := vmIn(ctx, tx, id)
		if err != nil {
			return err
		}
		if p, err = policyIn(ctx, tx, id); err != nil {
			return err
		}
		if err := p.Replaces(&r, before); err != nil {
			return err
		}
		action, message := "vm.network_policy.delete", "the network policy is removed"
		if policy != nil {
			action = "vm.network_policy"
			message = fmt.Sprintf("a network policy of %d rules", len(policy.Ingress.Rules)+len(policy.Egress.Rules))
		}
		p.Revision++
		p.Policy.V = policy
		if _, err := tx.Exec(ctx, `INSERT INTO network_policies (vm_id, revision, policy) VALUES (?, ?, ?)
			ON CONFLICT (vm_id) DO UPDATE SET revision = excluded.revision, policy = excluded.policy`,
			id, p.Revision, p.Policy); err != nil {
			return err
		}
		message = fmt.Sprintf("%s, revision %d", message, p.Revision)
		if err := s.tell(ctx, tx, &r, EventConfig, message); err != nil {
			return err
		}
		e := audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message}
		if err := s.note(ctx, tx, e); err != nil {
			return err
		}
		return save(ctx, tx, &r)
	})
	return p, err
}

// Replaces returns a fault.Conflict if the policy of a VM cannot be replaced by one that is based on
// the revision before.
func (p *NetworkPolicy) Replaces(r *VM, before *int64) error {
	if r.State == vm.Deleting {
		return fault.New(fault.Conflict, "the VM is being deleted")
	}
	if err := r.IsHere(); err != nil {
		return err
	}
	if before != nil && *before != p.Revision {
		return fault.New(fault.Conflict, "the network policy has revision %d, not %d; read it again", p.Revision, *before).
			WithCode("stale_revision")
	}
	return nil
}
