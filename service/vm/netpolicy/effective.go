package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// VM is what counts of a VM.
type VM struct {
	ID, Name, Tenant string
	Node             string // the host, in a fleet
	Labels           map[string]string
	Addresses        []netip.Addr // that it has now
	Policy           *Policy      // its own; nil: none
}

// TenantGroup is a group of a tenant, or of EveryTenant.
type TenantGroup struct {
	Tenant string
	Group
}

// TenantCilium is a network policy of a tenant, or of EveryTenant.
type TenantCilium struct {
	Tenant string
	Cilium
}

// Inputs is all that decides about the policies of VMs.
type Inputs struct {
	VMs    []VM
	Groups []TenantGroup
	Cilium []TenantCilium
	Hosts  []netip.Prefix // addresses of the hosts, as VMs see them
}

// Source says what a document is made of.
type Source struct {
	Kind   string // vm, group or cnp
	Name   string // empty for the VM's own policy
	Tenant string // EveryTenant, or that of the VM
	// DeniesIngress and DeniesEgress: it makes the default of the direction a deny.
	DeniesIngress, DeniesEgress bool
	Rules                       int // that it adds to the document
}

// Effective is the policy of one VM.
type Effective struct {
	Document *Document // nil: no policy applies to the VM
	Sources  []Source
	Notes    []string // what people should know, for example which rules match nobody now
}

// World answers questions about one state of the inputs. It is not safe for concurrent use.
type World struct {
	in       Inputs
	byID     map[string]*VM
	byTenant map[string][]*VM
	holders  map[place][]*VM
	groups   map[string]*TenantGroup
	selected map[string][]*VM // by tenant and selector
}

// place is an address on a host.
type place struct {
	node    string
	address netip.Addr
}

// NewWorld returns a World.
func NewWorld(in Inputs) *World {
	w := &World{
		in: in, byID: map[string]*VM{}, byTenant: map[string][]*VM{}, holders: map[place][]*VM{},
		groups: map[string]*TenantGroup{}, selected: map[string][]*VM{},
	}
	w.in.Cilium = slices.Clone(in.Cilium)
	slices.SortFunc(w.in.Cilium, func(a, b TenantCilium) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
	})
	for i := range in.VMs {
		vm := &in.VMs[i]
		w.byID[vm.ID] = vm
		w.byTenant[vm.Tenant] = append(w.byTenant[vm.Tenant], vm)
		for _, a := range vm.Addresses {
			w.holders[place{vm.Node, a}] = append(w.holders[place{vm.Node, a}], vm)
		}
	}
	for i := range in.Groups {
		w.groups[in.Groups[i].Tenant+"/"+in.Groups[i].Name] = &in.Groups[i]
	}
	return w
}

// group returns the group that a name means for a tenant: its own, or else that of every tenant.
func (w *World) group(tenant, name string) *TenantGroup {
	if g := w.groups[tenant+"/"+name]; g != nil {
		return g
	}
	return w.groups[EveryTenant+"/"+name]
}

// VM returns a VM, or nil if there is none.
func (w *World) VM(id string) *VM { return w.byID[id] }

// sources returns all that applies to a VM, in the order of names.
func (w *World) sources(vm *VM) (all []source, notes []string) {
	for i := range w.in.Cilium {
		c := &w.in.Cilium[i]
		if c.Tenant != EveryTenant && c.Tenant != vm.Tenant {
			continue
		}
		if s, applies := ciliumSource(c, vm.Labels); applies {
			all = append(all, s)
		}
	}
	if vm.Policy == nil || vm.Policy.empty() {
		return all, nil
	}
	for _, name := range slices.Sorted(slices.Values(vm.Policy.Groups)) {
		g := w.group(vm.Tenant, name)
		if g == nil {
			// It is removed only while no VM is in it. If it is gone all the same, nothing is allowed in its place.
			all = append(all, source{kind: "group", name: name, tenant: vm.Tenant, prefix: "group/" + name, ingress: true, egress: true})
			notes = append(notes, "the group "+name+" does not exist; in its place, everything is denied that no other rule allows")
			continue
		}
		all = append(all, groupSource(g, vm.Policy))
	}
	return append(all, sourceOf(vm.Policy)), notes
}

// Effective returns the policy of a VM. It fails if the policy has more rules than the hypervisor
// daemon takes, or the VM is not known.
func (w *World) Effective(id string) (Effective, error) {
	vm := w.byID[id]
	if vm == nil {
		return Effective{}, fault.New(fault.NotFound, "there is no such VM")
	}
	sources, notes := w.sources(vm)
	out := Effective{Notes: notes}
	if len(sources) == 0 {
		return out, nil
	}
	document := &Document{
		Ingress: Direction{Default: Allow, Rules: []Rule{}}, Egress: Direction{Default: Allow, Rules: []Rule{}},
	}
	for _, s := range sources {
		before := document.Size()
		for i := range s.rules {
			r := &s.rules[i]
			name := s.prefix + "/" + r.place
			peers, matches := w.peers(vm, &r.rule)
			if !matches {
				out.Notes = append(out.Notes, name+" matches nobody now")
				continue
			}
			to := &document.Ingress
			if r.direction == Egress {
				to = &document.Egress
			}
			to.Rules = append(to.Rules, cut(name, r, peers)...)
			if n := document.Size(); n > MaxRules {
				return Effective{}, tooMany(vm, s.prefix)
			}
		}
		if s.ingress {
			document.Ingress.Default = Deny
		}
		if s.egress {
			document.Egress.Default = Deny
		}
		out.Sources = append(out.Sources, Source{s.kind, s.name, s.tenant, s.ingress, s.egress, document.Size() - before})
	}
	out.Document = document
	return out, nil
}

func tooMany(vm *VM, at string) error {
	return fault.New(fault.Invalid, "the policies of VM %s have more than %d rules together, counting each %d peers and %d ports of a "+
		"rule as one; the limit is exceeded at %s", vm.Name, MaxRules, maxPeers, maxPorts, at).WithCode(CodeTooManyRules)
}

// CodeTooManyRules is the code of the fault of a policy with more rules than the daemon takes.
const CodeTooManyRules = "too_many_rules"

// cut returns a rule in as many parts as the limits on peers and ports demand.
func cut(name string, r *named, peers []Peer) (out []Rule) {
	action := Allow
	if r.deny {
		action = Deny
	}
	for p := range parts(peers, maxPeers) {
		for q := range parts(r.ports, maxPorts) {
			part := Rule{Name: name, Action: action, Peers: p, Ports: q}
			if len(out) > 0 {
				part.Name = fmt.Sprintf("%s/part/%d", name, len(out))
			}
			out = append(out, part)
		}
	}
	return out
}

// parts yields a list in parts of at most size elements. A list without elements is one part.
func parts[T any](all []T, size int) func(yield func([]T) bool) {
	if len(all) == 0 {
		return func(yield func([]T) bool) { yield(nil) }
	}
	return slices.Chunk(all, size)
}

// peers returns the peers of a rule for a VM; none means every address. matches is false if there is
// nobody that the rule matches.
func (w *World) peers(vm *VM, r *rule) (peers []Peer, matches bool) {
	switch {
	case r.nobody:
		return nil, false
	case r.everybody():
		return nil, true
	}
	var addresses []netip.Prefix
	with := func(members []*VM) { addresses = append(addresses, w.addresses(vm, members, r.deny)...) }
	for i := range r.selectors {
		with(w.selects(vm.Tenant, &r.selectors[i]))
	}
	if r.group != "" {
		with(w.members(vm.Tenant, r.group))
	}
	for _, e := range r.entities {
		switch e {
		case EntityCluster:
			with(w.byTenant[vm.Tenant])
		case EntityHost:
			addresses = append(addresses, w.in.Hosts...)
		case EntityWorld:
			peers = append(peers, outside(w.inside(vm.Tenant))...)
		}
	}
	slices.SortFunc(addresses, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, a := range slices.Compact(addresses) {
		peers = append(peers, Peer{CIDR: a.String()})
	}
	peers = append(peers, r.networks...)
	for _, name := range r.names {
		peers = append(peers, Peer{FQDN: name})
	}
	return peers, len(peers) > 0
}

// selects returns the VMs of a tenant that a selector selects.
func (w *World) selects(tenant string, s *Selector) []*VM {
	key := tenant + "/" + s.key()
	if found, ok := w.selected[key]; ok {
		return found
	}
	var found []*VM
	for _, vm := range w.byTenant[tenant] {
		if s.Selects(vm.Labels) {
			found = append(found, vm)
		}
	}
	w.selected[key] = found
	return found
}

// members returns the VMs of a tenant that are in the group that a name means for it.
func (w *World) members(tenant, group string) (out []*VM) {
	for _, vm := range w.byTenant[tenant] {
		if vm.Policy != nil && slices.Contains(vm.Policy.Groups, group) {
			out = append(out, vm)
		}
	}
	return out
}

// addresses returns the addresses of other VMs, as seen from the host of vm. What another VM there has,
// too, is used to deny, but not to allow.
func (w *World) addresses(vm *VM, of []*VM, deny bool) (out []netip.Prefix) {
	for _, other := range of {
		if other == vm {
			continue
		}
		for _, a := range other.Addresses {
			foreign := func(holder *VM) bool { return holder != other }
			if deny || !slices.ContainsFunc(w.holders[place{vm.Node, a}], foreign) {
				out = append(out, single(a))
			}
		}
	}
	return out
}

// inside returns the addresses that are not in the world: those of the tenant's VMs and of the hosts.
func (w *World) inside(tenant string) []netip.Prefix {
	out := slices.Clone(w.in.Hosts)
	for _, vm := range w.byTenant[tenant] {
		for _, a := range vm.Addresses {
			out = append(out, single(a))
		}
	}
	return out
}

// Networks returns the networks that the rules of all documents of a tenant name, and those of every
// tenant, sorted.
func (w *World) Networks(tenant string) (out []netip.Prefix) {
	seen := map[netip.Prefix]bool{}
	add := func(r *rule) {
		for _, n := range networksOf(r.networks) {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	own := func(rules []OwnRule) {
		for i := range rules {
			r := rules[i].rule()
			add(&r)
		}
	}
	for _, vm := range w.byTenant[tenant] {
		if vm.Policy != nil {
			own(vm.Policy.Ingress.Rules)
			own(vm.Policy.Egress.Rules)
		}
	}
	for i := range w.in.Groups {
		if g := &w.in.Groups[i]; g.Tenant == tenant || g.Tenant == EveryTenant {
			own(g.Rules)
		}
	}
	for i := range w.in.Cilium {
		c := &w.in.Cilium[i]
		if c.Tenant != tenant && c.Tenant != EveryTenant {
			continue
		}
		for j := range c.Specs {
			for _, s := range c.Specs[j].sections {
				for k := range s.rules {
					add(&s.rules[k])
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return out
}
