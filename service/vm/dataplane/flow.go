package dataplane

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Flow is a decision of the daemon, with names and identities.
type Flow struct {
	driver.Flow
	VM                  string // its name
	Tenant              string
	Source, Destination End
}

// End is one end of a flow.
type End struct {
	Address  string
	Port     int    // 0: none
	VM       string // the name of the VM that it is; empty: none that the caller may see
	Identity int64
	Labels   []string
}

// names knows what flows name.
type names struct {
	cache *cache
	vms   map[daemonVM]*record.VM // in the caller's scope
}

// daemonVM is a VM as the daemon of a host knows it.
type daemonVM struct{ node, id string }

func (d *Dataplane) names(ctx context.Context) (*names, *view, error) {
	v, err := d.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := d.cache(ctx, v)
	if err != nil {
		return nil, nil, err
	}
	n := &names{cache: c, vms: map[daemonVM]*record.VM{}}
	for _, r := range v.seen(ctx) {
		if r.Provisioned() {
			n.vms[daemonVM{r.Node, r.DriverID}] = r
		}
	}
	return n, v, nil
}

// flow adds names and identities. ok is false if the flow is of a VM that the caller does not see.
func (n *names) flow(node string, f driver.Flow) (out Flow, ok bool) {
	r := n.vms[daemonVM{node, f.VmId}]
	if r == nil {
		return out, false
	}
	out = Flow{Flow: f, VM: r.Name, Tenant: r.Tenant}
	out.Source = n.end(r.Tenant, f.Source, f.SourcePort)
	out.Destination = n.end(r.Tenant, f.Destination, f.DestinationPort)
	own, other := &out.Destination, &out.Source
	if string(f.Direction) == netpolicy.Egress {
		own, other = other, own
	}
	own.VM, own.Identity = r.Name, n.cache.vms[r.ID]
	own.Labels = n.cache.labels[own.Identity]
	if f.PeerVmId != nil {
		// A VM of another tenant is an address like any other.
		if peer := n.vms[daemonVM{node, *f.PeerVmId}]; peer != nil && peer.Tenant == r.Tenant {
			other.VM = peer.Name
		}
	}
	return out, true
}

func (n *names) end(tenant, address string, port *int) End {
	out := End{Address: address, Identity: netpolicy.IdentityUnknown}
	if port != nil {
		out.Port = *port
	}
	if a, err := netip.ParseAddr(address); err == nil {
		e := n.cache.of(tenant, a.Unmap())
		out.Identity, out.VM = e.Identity, e.VM
	}
	out.Labels = n.cache.labels[out.Identity]
	return out
}

// Flows returns recent flows of a VM, newest first. A VM that the daemon has not made has none.
func (d *Dataplane) Flows(ctx context.Context, r *record.VM, limit int) ([]Flow, error) {
	n, _, err := d.names(ctx)
	if err != nil || !r.Provisioned() || r.State == record.Missing {
		return nil, err
	}
	return d.flowsOf(ctx, n, r, limit)
}

func (d *Dataplane) flowsOf(ctx context.Context, n *names, r *record.VM, limit int) (out []Flow, err error) {
	flows, err := d.driver.Flows(ctx, driver.PlaceOf(r), limit)
	for _, f := range flows {
		if named, ok := n.flow(r.Node, f); ok && f.VmId == r.DriverID {
			out = append(out, named)
		}
	}
	return out, err
}

// Observe returns recent flows of all VMs in the caller's scope that have a policy, newest first. What
// hosts that do not answer know is left out; they are named.
func (d *Dataplane) Observe(ctx context.Context, limit int) (out []Flow, silent []string, err error) {
	n, v, err := d.names(ctx)
	if err != nil {
		return nil, nil, err
	}
	var vms []*record.VM
	for _, r := range v.seen(ctx) {
		if _, has := v.States[r.ID]; has && r.Provisioned() && r.State != record.Missing {
			vms = append(vms, r)
		}
	}
	flows := make([][]Flow, len(vms))
	for i, err := range d.each(ctx, vms, func(i int, r *record.VM) (err error) {
		flows[i], err = d.flowsOf(ctx, n, r, limit)
		return err
	}) {
		if err != nil {
			silent = append(silent, vms[i].Name)
		}
	}
	out = slices.Concat(flows...)
	slices.SortStableFunc(out, func(a, b Flow) int { return b.Time.Compare(a.Time) })
	slices.Sort(silent)
	return out[:min(limit, len(out))], silent, ctx.Err()
}

// stale is the age at which the names for a stream of flows are read again.
const stale = 2 * time.Second

// Follow calls f with each flow of VMs in the caller's scope until ctx ends or a host's stream breaks,
// which is an error. f is called by one goroutine at a time.
func (d *Dataplane) Follow(ctx context.Context, f func(Flow)) error {
	nodes := []string{""}
	if d.driver.Fleet() {
		all, err := d.driver.Nodes(ctx)
		if err != nil {
			return err
		}
		nodes = nodes[:0]
		for _, n := range all {
			if n.Healthy {
				nodes = append(nodes, n.Name)
			}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var known *names
	var at time.Time
	use := func(node string, flow driver.Flow) {
		mu.Lock()
		defer mu.Unlock()
		if now := d.now(); known == nil || now.Sub(at) > stale {
			if fresh, _, err := d.names(ctx); err == nil {
				known, at = fresh, now
			}
		}
		if known == nil || ctx.Err() != nil {
			return
		}
		if named, ok := known.flow(node, flow); ok {
			f(named)
		}
	}
	ends := make(chan error, len(nodes))
	for _, node := range nodes {
		routine.Go(d.log, "flows of "+node, func() {
			err := context.Canceled
			defer func() { ends <- err }()
			err = d.driver.FollowFlows(ctx, node, caller.From(ctx).Tenant, func(flow driver.Flow) { use(node, flow) })
		})
	}
	var first error
	for range nodes {
		err := <-ends
		if first == nil {
			first = err
		}
		cancel() // the others end, too: the client connects again
	}
	return first
}
