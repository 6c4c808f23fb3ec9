// Package dataplane applies network policies: it computes each VM's document (package netpolicy), has the
// hypervisor daemon enforce it, and tells what the daemon has of it.
//
//	dataplane.go  what counts, at one time
//	apply.go      the daemon gets what differs; everything is compared with it now and then
//	change.go     policies of VMs, groups and network policies are checked and stored
//	status.go     what the daemon has
//	identity.go   identities, and addresses with theirs
//	flow.go       the daemon's flows with names and identities
//
// # States of a VM's policy
//
//	none         no policy applies
//	pending      the daemon does not have it yet
//	applied      the daemon has it
//	failed       the daemon refused it, or it has too many rules; the one before stays in force. A daemon
//	             without rules for names has the others
//	unsupported  the daemon has it, but cannot enforce it in the VM's network
//
// # Invariants
//
//   - The database says what is wanted. A document is computed from it anew each time.
//   - A write at the daemon replaces the revision that was read before what the document was computed
//     from. So an older document never replaces a newer one, also with several replicas.
//   - The state applied is stored only after the daemon's answer.
//   - A VM starts only after the daemon has its document.
//   - The daemon is not asked about VMs that never had a policy.
//
// It imports caller, driver, netpolicy and record.
package dataplane

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the dependencies of a Dataplane.
type Config struct {
	Store  *record.Store
	Driver *driver.Driver
	Log    *slog.Logger
	Now    func() time.Time
	Hosts  []netip.Prefix // addresses of the hosts, as VMs see them
}

// Dataplane applies network policies.
type Dataplane struct {
	store  *record.Store
	driver *driver.Driver
	log    *slog.Logger
	now    func() time.Time
	hosts  []netip.Prefix
	nudged chan struct{}

	mu   sync.Mutex
	busy map[string]*turn // VMs whose policy is being applied
	// noted is why the policy of a VM was not applied the last time that it was logged.
	noted map[string]string
}

// turn makes those who apply the policy of one VM wait for each other.
type turn struct {
	sync.Mutex
	waiting int
}

// New returns a Dataplane, which is told of changes by the store.
func New(c Config) *Dataplane {
	d := &Dataplane{
		store: c.Store, driver: c.Driver, log: c.Log, now: c.Now, hosts: c.Hosts, nudged: make(chan struct{}, 1),
		busy: map[string]*turn{}, noted: map[string]string{},
	}
	c.Store.OnNetworkChange(d.nudge)
	return d
}

// ParseHosts returns the networks of the setting that names the addresses of hosts.
func ParseHosts(texts []string) (out []netip.Prefix, err error) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return nil, fault.InvalidField("host-addresses", "%q is not an address, and not a network as in 10.0.0.0/8", text)
		}
		out = append(out, p)
	}
	return out, nil
}

func (d *Dataplane) nudge() {
	select {
	case d.nudged <- struct{}{}:
	default:
	}
}

// Nudged receives a value when Sync should run soon.
func (d *Dataplane) Nudged() <-chan struct{} { return d.nudged }

// lock waits until nobody else applies the policy of a VM.
func (d *Dataplane) lock(id string) (unlock func()) {
	d.mu.Lock()
	t := d.busy[id]
	if t == nil {
		t = &turn{}
		d.busy[id] = t
	}
	t.waiting++
	d.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(d.busy, id)
		}
	}
}

// view is what counts at one time.
type view struct {
	record.NetworkView
	in    netpolicy.Inputs
	world *netpolicy.World
	vms   map[string]*record.VM
}

// load reads what counts.
func (d *Dataplane) load(ctx context.Context) (*view, error) {
	all, err := d.store.NetworkView(caller.ByItself(ctx))
	if err != nil {
		return nil, err
	}
	v := &view{NetworkView: all, in: netpolicy.Inputs{Hosts: d.hosts}, vms: map[string]*record.VM{}}
	for i := range all.VMs {
		r := &all.VMs[i]
		v.vms[r.ID] = r
		vm := netpolicy.VM{
			ID: r.ID, Name: r.Name, Tenant: r.Tenant, Node: r.Node, Labels: r.Labels.V, Addresses: addressesOf(r),
		}
		if p, ok := all.Policies[r.ID]; ok {
			vm.Policy = &p.Document.V
		}
		v.in.VMs = append(v.in.VMs, vm)
	}
	for _, g := range all.Groups {
		v.in.Groups = append(v.in.Groups, netpolicy.TenantGroup{Tenant: g.Tenant, Group: g.Document.V})
	}
	for _, p := range all.Cilium {
		c, err := netpolicy.ParseCilium(p.Document.V)
		if err != nil {
			return nil, fault.Wrap(fault.Internal, err, "the stored network policy %s cannot be read", p.Name)
		}
		v.in.Cilium = append(v.in.Cilium, netpolicy.TenantCilium{Tenant: p.Tenant, Cilium: c})
	}
	v.world = netpolicy.NewWorld(v.in)
	return v, nil
}

// addressesOf returns the addresses that a VM has now. Those of a VM that does not run may be another
// one's, and those of a network of its own are nobody's outside of it.
func addressesOf(r *record.VM) []netip.Addr {
	switch r.State {
	case record.Running, record.Paused, record.Stopping:
	default:
		return nil
	}
	if r.Spec.V.Network.Mode != modeBridge {
		return nil
	}
	return netpolicy.Addresses(r.IPs.V)
}

// modeBridge is the mode of a network in which VMs reach each other.
const modeBridge = "bridge"
