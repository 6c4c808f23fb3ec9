package dataplane

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// patience is how long a request waits for the daemon after its change is stored.
const patience = 5 * time.Second

// SetPolicy replaces the own policy of a VM, and waits a few seconds for the daemon to have it.
func (d *Dataplane) SetPolicy(ctx context.Context, r *record.VM, p netpolicy.Policy) (Status, error) {
	if err := p.Check(); err != nil {
		return Status{}, err
	}
	if err := d.fits(ctx, func(in *netpolicy.Inputs) {
		for i := range in.VMs {
			if in.VMs[i].ID == r.ID {
				in.VMs[i].Policy = &p
			}
		}
	}, func(vm *netpolicy.VM) bool { return vm.ID == r.ID }); err != nil {
		return Status{}, err
	}
	if err := d.store.PutVMPolicy(ctx, r.ID, p); err != nil {
		return Status{}, err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := d.Apply(wait, r.ID); err != nil {
		d.log.Debug("a VM's network policy is not applied yet", "vm", r.ID, "error", err)
	}
	return d.Status(ctx, r)
}

// PutGroup adds a group, or replaces the one with its name.
func (d *Dataplane) PutGroup(ctx context.Context, tenant string, g netpolicy.Group) (record.NetworkGroup, error) {
	if err := g.Check(); err != nil {
		return record.NetworkGroup{}, err
	}
	err := d.fits(ctx, func(in *netpolicy.Inputs) {
		in.Groups = slices.DeleteFunc(slices.Clone(in.Groups), func(old netpolicy.TenantGroup) bool {
			return old.Tenant == tenant && old.Name == g.Name
		})
		in.Groups = append(in.Groups, netpolicy.TenantGroup{Tenant: tenant, Group: g})
	}, func(vm *netpolicy.VM) bool { return vm.Policy != nil && slices.Contains(vm.Policy.Groups, g.Name) })
	if err != nil {
		return record.NetworkGroup{}, err
	}
	return d.store.PutNetworkGroup(ctx, tenant, g)
}

// PutCilium adds a network policy, or replaces the one with its name.
func (d *Dataplane) PutCilium(
	ctx context.Context, tenant string, document map[string]any,
) (record.NetworkPolicy, error) {
	c, err := netpolicy.ParseCilium(document)
	if err != nil {
		return record.NetworkPolicy{}, err
	}
	err = d.fits(ctx, func(in *netpolicy.Inputs) {
		in.Cilium = slices.DeleteFunc(slices.Clone(in.Cilium), func(old netpolicy.TenantCilium) bool {
			return old.Tenant == tenant && old.Name == c.Name
		})
		in.Cilium = append(in.Cilium, netpolicy.TenantCilium{Tenant: tenant, Cilium: c})
	}, func(vm *netpolicy.VM) bool { return tenant == netpolicy.EveryTenant || vm.Tenant == tenant })
	if err != nil {
		return record.NetworkPolicy{}, err
	}
	return d.store.PutNetworkPolicy(ctx, tenant, c.Name, document)
}

// fits returns a fault if a change gave a VM that it concerns more rules than the daemon takes.
func (d *Dataplane) fits(ctx context.Context, change func(*netpolicy.Inputs), concerns func(*netpolicy.VM) bool) error {
	v, err := d.load(caller.ByItself(ctx))
	if err != nil {
		return err
	}
	change(&v.in)
	world := netpolicy.NewWorld(v.in)
	for i := range v.in.VMs {
		if !concerns(&v.in.VMs[i]) {
			continue
		}
		if _, err := world.Effective(v.in.VMs[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// Refresh has all policies computed anew, and returns how many names of the domain name system they
// have. The daemon looks names up as guests do; there is nothing to look up here.
func (d *Dataplane) Refresh(ctx context.Context) (names, vms int, err error) {
	v, err := d.load(ctx)
	if err != nil {
		return 0, 0, err
	}
	known := map[string]bool{}
	for _, vm := range v.seen(ctx) {
		effective, err := v.world.Effective(vm.ID)
		if err != nil || effective.Document == nil {
			continue
		}
		vms++
		for _, r := range effective.Document.Egress.Rules {
			for _, p := range r.Peers {
				if p.FQDN != "" {
					known[p.FQDN] = true
				}
			}
		}
	}
	d.nudge()
	return len(known), vms, nil
}

// seen returns the VMs in the caller's scope.
func (v *view) seen(ctx context.Context) (out []*record.VM) {
	c := caller.From(ctx)
	for i := range v.VMs {
		if c.Sees(v.VMs[i].Tenant) {
			out = append(out, &v.VMs[i])
		}
	}
	return out
}
