package record

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
)

// VMPolicy is a VM's own network policy.
type VMPolicy struct {
	VM        string                    `db:"vm_id"`
	Document  db.JSON[netpolicy.Policy] `db:"document"`
	UpdatedAt db.Time                   `db:"updated_at"`
}

// PolicyState is what the hypervisor daemon has of a VM's policy.
type PolicyState struct {
	VM        string  `db:"vm_id"`
	Hash      string  `db:"hash"`     // of the document; empty: none
	Revision  int64   `db:"revision"` // the daemon's
	Mode      string  `db:"mode"`
	Error     string  `db:"error"` // why the last attempt failed; empty: it did not
	AppliedAt db.Time `db:"applied_at"`
}

// VMPolicy returns the own policy of a VM that the caller has read. Without one, it is empty.
func (s *Store) VMPolicy(ctx context.Context, id string) (p VMPolicy, err error) {
	err = s.db.Get(ctx, &p, "SELECT * FROM vm_policies WHERE vm_id = ?", id)
	if errors.Is(err, db.ErrNoRows) {
		return VMPolicy{VM: id}, nil
	}
	return p, err
}

// PutVMPolicy replaces the own policy of a VM. The caller has checked it.
func (s *Store) PutVMPolicy(ctx context.Context, id string, p netpolicy.Policy) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := lockNetwork(ctx, tx); err != nil {
			return err
		}
		r, err := s.change(ctx, tx, id, func(*VM) (kind, message string, err error) {
			return EventConfig, "network policy set", nil
		})
		if err != nil {
			return err
		}
		if err := policyGroupsExist(ctx, tx, r.Tenant, &p); err != nil {
			return err
		}
		if err := putVMPolicy(ctx, tx, VMPolicy{id, db.JSON[netpolicy.Policy]{V: p}, db.At(s.now())}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "vm.network_policy", Target: id, Tenant: r.Tenant})
	})
}

func putVMPolicy(ctx context.Context, tx *db.Tx, p VMPolicy) error {
	_, err := tx.Exec(ctx, `INSERT INTO vm_policies (vm_id, document, updated_at) VALUES (?, ?, ?)
		ON CONFLICT (vm_id) DO UPDATE SET document = excluded.document, updated_at = excluded.updated_at`,
		p.VM, p.Document, p.UpdatedAt)
	return err
}

func policyGroupsExist(ctx context.Context, tx *db.Tx, tenant string, p *netpolicy.Policy) error {
	for i, name := range p.Groups {
		if err := groupExists(ctx, tx, fmt.Sprintf("groups[%d]", i), tenant, name); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		name  string
		rules []netpolicy.OwnRule
	}{{netpolicy.Ingress, p.Ingress.Rules}, {netpolicy.Egress, p.Egress.Rules}} {
		for i, r := range d.rules {
			if r.Group == "" {
				continue
			}
			if err := groupExists(ctx, tx, fmt.Sprintf("%s.rules[%d].group", d.name, i), tenant, r.Group); err != nil {
				return err
			}
		}
	}
	return nil
}

// CopyVMPolicy gives a VM the own policy of another one of its tenant, in the transaction that adds it.
func (s *Store) CopyVMPolicy(ctx context.Context, tx *db.Tx, from, to string) error {
	var p VMPolicy
	err := tx.Get(ctx, &p, "SELECT * FROM vm_policies WHERE vm_id = ?", from)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	p.VM, p.UpdatedAt = to, db.At(s.now())
	return putVMPolicy(ctx, tx, p)
}

// GiveVMPolicy gives a VM an own policy of an earlier time, in the transaction that adds it. In the place
// of groups that do not exist any more, everything is denied.
func (s *Store) GiveVMPolicy(ctx context.Context, tx *db.Tx, id string, p netpolicy.Policy) error {
	return putVMPolicy(ctx, tx, VMPolicy{id, db.JSON[netpolicy.Policy]{V: p}, db.At(s.now())})
}

// NetworkView is all that decides about policies at one time, and what the daemon had of them before.
type NetworkView struct {
	VMs      []VM // of all tenants, without jobs
	Policies map[string]VMPolicy
	Groups   []NetworkGroup
	Cilium   []NetworkPolicy
	States   map[string]PolicyState
}

// NetworkView reads everything. States are read first: what the rest says is at least as new.
func (s *Store) NetworkView(ctx context.Context) (NetworkView, error) {
	out := NetworkView{Policies: map[string]VMPolicy{}, States: map[string]PolicyState{}}
	var states []PolicyState
	var own []VMPolicy
	for _, q := range []struct {
		to    any
		query string
	}{
		{&states, "SELECT * FROM vm_policy_states"}, {&own, "SELECT * FROM vm_policies"},
		{&out.Groups, "SELECT * FROM network_groups"}, {&out.Cilium, "SELECT * FROM network_policies"},
		{&out.VMs, "SELECT * FROM vms WHERE deleted_at IS NULL ORDER BY id"},
	} {
		if err := s.db.Select(ctx, q.to, q.query); err != nil {
			return out, err
		}
	}
	for _, state := range states {
		out.States[state.VM] = state
	}
	for _, p := range own {
		out.Policies[p.VM] = p
	}
	return out, nil
}

// PolicyApplied stores what the daemon has of a VM's policy, unless the VM is gone.
func (s *Store) PolicyApplied(ctx context.Context, state PolicyState) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := locked(caller.ByItself(ctx), tx, state.VM); fault.Is(err, fault.NotFound) {
			return nil
		} else if err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO vm_policy_states (vm_id, hash, revision, mode, error, applied_at)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (vm_id) DO UPDATE SET hash = excluded.hash, revision = excluded.revision,
			mode = excluded.mode, error = excluded.error, applied_at = excluded.applied_at`,
			state.VM, state.Hash, state.Revision, state.Mode, state.Error, state.AppliedAt)
		return err
	})
}

// PolicyState returns what the daemon has of a VM's policy. found is false if it never had one.
func (s *Store) PolicyState(ctx context.Context, id string) (state PolicyState, found bool, err error) {
	err = s.db.Get(ctx, &state, "SELECT * FROM vm_policy_states WHERE vm_id = ?", id)
	if errors.Is(err, db.ErrNoRows) {
		return PolicyState{VM: id}, false, nil
	}
	return state, err == nil, err
}

// Kinds of identities.
const (
	IdentityLabels  = "labels"
	IdentityNetwork = "network"
)

// Identity is the number of a set of labels within a tenant, or of a network that a tenant's policies
// name.
type Identity struct {
	Number    int64   `db:"number"`
	Tenant    string  `db:"tenant"`
	Kind      string  `db:"kind"`
	Labels    string  `db:"labels"` // netpolicy.LabelsKey, or the network
	CreatedAt db.Time `db:"created_at"`
}

// IdentityKey is what an identity is of.
type IdentityKey struct{ Tenant, Kind, Labels string }

// Identities lists the identities in the caller's scope by number.
func (s *Store) Identities(ctx context.Context) (all []Identity, err error) {
	condition, args := caller.From(ctx).Scope().SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM network_identities WHERE "+condition+" ORDER BY number", args...)
}

// KeepIdentities gives numbers to those identities of wanted, which are distinct, that have none, in the
// order given, and releases all others. Without a change it writes nothing.
func (s *Store) KeepIdentities(ctx context.Context, wanted []IdentityKey) error {
	ctx = caller.ByItself(ctx)
	all, err := s.Identities(ctx)
	if err != nil || sameIdentities(all, wanted) {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		next, err := lockNetwork(ctx, tx)
		if err != nil {
			return err
		}
		var has []Identity
		if err := tx.Select(ctx, &has, "SELECT * FROM network_identities"); err != nil {
			return err
		}
		missing := map[IdentityKey]bool{}
		for _, key := range wanted {
			missing[key] = true
		}
		for _, i := range has {
			key := IdentityKey{i.Tenant, i.Kind, i.Labels}
			if missing[key] {
				delete(missing, key)
				continue
			}
			if _, err := tx.Exec(ctx, "DELETE FROM network_identities WHERE number = ?", i.Number); err != nil {
				return err
			}
		}
		for _, key := range wanted {
			if !missing[key] {
				continue
			}
			delete(missing, key)
			number := &next.Identity
			if key.Kind == IdentityNetwork {
				number = &next.Network
			}
			if err := tx.Insert(ctx, "network_identities", Identity{*number, key.Tenant, key.Kind, key.Labels, db.At(s.now())}); err != nil {
				return err
			}
			*number++
		}
		_, err = tx.Exec(ctx, "UPDATE network_numbers SET next_identity = ?, next_network = ? WHERE id = 1", next.Identity, next.Network)
		return err
	})
}

func sameIdentities(all []Identity, wanted []IdentityKey) bool {
	if len(all) != len(wanted) {
		return false
	}
	has := make(map[IdentityKey]bool, len(all))
	for _, i := range all {
		has[IdentityKey{i.Tenant, i.Kind, i.Labels}] = true
	}
	return !slices.ContainsFunc(wanted, func(key IdentityKey) bool { return !has[key] })
}
