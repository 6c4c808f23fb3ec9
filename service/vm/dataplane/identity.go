package dataplane

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// seesDocument reports whether the caller sees documents of a tenant.
func seesDocument(ctx context.Context, tenant string) bool {
	c := caller.From(ctx)
	return tenant == netpolicy.EveryTenant && c.Role != "" || c.Sees(tenant)
}

// identities returns what has identities: the sets of labels of the VMs of each tenant, and the networks
// that its policies name. They are in the order of the VMs, which is that of their creation.
func (v *view) identities() (out []record.IdentityKey) {
	seen := map[record.IdentityKey]bool{}
	add := func(key record.IdentityKey) {
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	tenants := map[string]bool{}
	for i := range v.VMs {
		r := &v.VMs[i]
		tenants[r.Tenant] = true
		add(record.IdentityKey{Tenant: r.Tenant, Kind: record.IdentityLabels, Labels: netpolicy.LabelsKey(r.Labels.V)})
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		for _, network := range v.world.Networks(tenant) {
			add(record.IdentityKey{Tenant: tenant, Kind: record.IdentityNetwork, Labels: network.String()})
		}
	}
	return out
}

// Identity is the number of a set of labels, or of a network.
type Identity struct {
	Number   int64
	Tenant   string
	Labels   []string // KEY=VALUE, sorted; reserved:NAME; cidr:NETWORK
	Reserved bool
	VMs      []string // that have it, by name
}

// Identities lists the reserved identities and those in the caller's scope, by number.
func (d *Dataplane) Identities(ctx context.Context) ([]Identity, error) {
	stored, err := d.store.Identities(ctx)
	if err != nil {
		return nil, err
	}
	v, err := d.load(ctx)
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, number := range slices.Sorted(maps.Keys(netpolicy.Reserved)) {
		out = append(out, Identity{Number: number, Labels: reserved(number), Reserved: true})
	}
	have := map[record.IdentityKey][]string{}
	for _, r := range v.seen(ctx) {
		key := record.IdentityKey{Tenant: r.Tenant, Kind: record.IdentityLabels, Labels: netpolicy.LabelsKey(r.Labels.V)}
		have[key] = append(have[key], r.Name)
	}
	for _, i := range stored {
		labels, err := labelsOf(i)
		if err != nil {
			return nil, err
		}
		key := record.IdentityKey{Tenant: i.Tenant, Kind: i.Kind, Labels: i.Labels}
		out = append(out, Identity{Number: i.Number, Tenant: i.Tenant, Labels: labels, VMs: have[key]})
	}
	return out, nil
}

func reserved(number int64) []string { return []string{"reserved:" + netpolicy.Reserved[number]} }

func labelsOf(i record.Identity) ([]string, error) {
	if i.Kind == record.IdentityNetwork {
		return append([]string{"cidr:" + i.Labels}, reserved(netpolicy.IdentityWorld)...), nil
	}
	labels := map[string]string{}
	if err := json.Unmarshal([]byte(i.Labels), &labels); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the labels of identity %d cannot be read", i.Number)
	}
	return netpolicy.LabelList(labels), nil
}

// Entry is a network with its identity, in the view of one tenant.
type Entry struct {
	Network  netip.Prefix
	Identity int64
	Tenant   string
	VM       string // the name of the VM that has the address; empty: none
	Source   string // vm, policy, host or world
}

// cache knows the identities of addresses.
type cache struct {
	entries map[string][]Entry // by tenant, those of VMs first, then longer networks before shorter ones
	common  []Entry            // of all tenants
	labels  map[int64][]string
	vms     map[string]int64 // by id
}

func (d *Dataplane) cache(ctx context.Context, v *view) (*cache, error) {
	stored, err := d.store.Identities(ctx)
	if err != nil {
		return nil, err
	}
	out := &cache{entries: map[string][]Entry{}, labels: map[int64][]string{}, vms: map[string]int64{}}
	numbers := map[record.IdentityKey]int64{}
	var networks []Entry
	for _, i := range stored {
		numbers[record.IdentityKey{Tenant: i.Tenant, Kind: i.Kind, Labels: i.Labels}] = i.Number
		if out.labels[i.Number], err = labelsOf(i); err != nil {
			return nil, err
		}
		if i.Kind != record.IdentityNetwork {
			continue
		}
		if network, err := netip.ParsePrefix(i.Labels); err == nil {
			networks = append(networks, Entry{network, i.Number, i.Tenant, "", "policy"})
		}
	}
	for _, r := range v.seen(ctx) {
		key := record.IdentityKey{Tenant: r.Tenant, Kind: record.IdentityLabels, Labels: netpolicy.LabelsKey(r.Labels.V)}
		out.vms[r.ID] = numbers[key]
		for _, a := range addressesOf(r) {
			network := netip.PrefixFrom(a, a.BitLen())
			out.entries[r.Tenant] = append(out.entries[r.Tenant], Entry{network, numbers[key], r.Tenant, r.Name, "vm"})
		}
	}
	slices.SortStableFunc(networks, func(a, b Entry) int { return b.Network.Bits() - a.Network.Bits() })
	for _, e := range networks {
		out.entries[e.Tenant] = append(out.entries[e.Tenant], e)
	}
	for _, host := range d.hosts {
		out.common = append(out.common, Entry{host, netpolicy.IdentityHost, "", "", "host"})
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		out.common = append(out.common, Entry{netip.MustParsePrefix(all), netpolicy.IdentityWorld, "", "", "world"})
	}
	for number := range netpolicy.Reserved {
		out.labels[number] = reserved(number)
	}
	return out, nil
}

// of returns the identity of an address for a tenant.
func (c *cache) of(tenant string, a netip.Addr) Entry {
	own := c.entries[tenant]
	for _, e := range own {
		if e.Source == "vm" && e.Network.Contains(a) {
			return e
		}
	}
	for _, e := range c.common {
		if e.Source == "host" && e.Network.Contains(a) {
			return e
		}
	}
	for _, e := range slices.Concat(own, c.common) {
		if e.Network.Contains(a) {
			return e
		}
	}
	return Entry{Identity: netpolicy.IdentityUnknown}
}

// Addresses lists networks with their identities, in the caller's scope.
func (d *Dataplane) Addresses(ctx context.Context) ([]Entry, error) {
	v, err := d.load(ctx)
	if err != nil {
		return nil, err
	}
	c, err := d.cache(ctx, v)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, tenant := range slices.Sorted(maps.Keys(c.entries)) {
		out = append(out, c.entries[tenant]...)
	}
	return append(out, c.common...), nil
}
