package policy

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
)

const (
	maxOfVM  = 1000   // flows that are kept of each VM
	maxOfAll = 10_000 // flows that are kept for streams
	// namesTime is how long the name and the tenant of a VM are taken to stay as they are.
	namesTime = 5 * time.Second
	// pruneEvery is how often flows of VMs that are gone are removed.
	pruneEvery = time.Minute
)

// Inbox takes flows from the network, which must not wait. What does not fit is lost.
type Inbox struct{ flows chan network.Flow }

// NewInbox returns an empty Inbox.
func NewInbox() *Inbox { return &Inbox{flows: make(chan network.Flow, 1024)} }

// Put adds a flow if there is room.
func (b *Inbox) Put(f network.Flow) {
	select {
	case b.flows <- f:
	default:
	}
}

// Flow is a decision of a VM's network policy.
type Flow struct {
	network.Flow
	ID           int64 // increases, also over restarts
	Name, Tenant string
	peerTenant   string
}

// owner is who a VM belongs to.
type owner struct {
	name, tenant string
	exists       bool
	until        time.Time
}

// ring is the last of a sequence of flows.
type ring struct {
	flows []Flow
	first int64 // the number of the first flow that could be in it
}

// add adds a flow and forgets the oldest above most.
func (r *ring) add(f Flow, most int) {
	if len(r.flows) >= 2*most { // moves each flow once
		r.flows = slices.Clone(r.flows[len(r.flows)-most:])
	}
	r.flows = append(r.flows, f)
	if extra := len(r.flows) - most; extra > 0 {
		r.first = r.flows[extra].ID
	}
}

// last returns the flows that are kept, oldest first.
func (r *ring) last(most int) []Flow { return r.flows[max(0, len(r.flows)-most):] }

// Run takes flows from the inbox until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	next := k.all.first
	for {
		select {
		case <-ctx.Done():
			return
		case <-prune.C:
			k.prune(ctx)
		case f := <-k.inbox.flows:
			next++
			k.take(ctx, f, next)
		}
	}
}

func (k *Keeper) take(ctx context.Context, f network.Flow, id int64) {
	who := k.ownerOf(ctx, f.VM)
	if !who.exists {
		return
	}
	flow := Flow{Flow: f, ID: id, Name: who.name, Tenant: who.tenant}
	if f.PeerVM != "" {
		peer := k.ownerOf(ctx, f.PeerVM)
		if flow.peerTenant = peer.tenant; !peer.exists {
			flow.PeerVM = ""
		}
	}
	k.mu.Lock()
	own := k.byVM[f.VM]
	own.add(flow, maxOfVM)
	k.byVM[f.VM] = own
	k.all.add(flow, maxOfAll)
	k.mu.Unlock()
	k.bell.Ring()
}

// ownerOf returns the name and tenant of a VM. Only Run calls it.
func (k *Keeper) ownerOf(ctx context.Context, id string) owner {
	now := k.now()
	if o := k.names[id]; now.Before(o.until) {
		return o
	}
	r, err := k.store.VM(ctx, id)
	o := owner{name: r.Name, tenant: r.Tenant, exists: err == nil, until: now.Add(namesTime)}
	k.names[id] = o
	return o
}

// prune forgets the flows of VMs that are gone.
func (k *Keeper) prune(ctx context.Context) {
	clear(k.names)
	k.mu.Lock()
	ids := make([]string, 0, len(k.byVM))
	for id := range k.byVM {
		ids = append(ids, id)
	}
	k.mu.Unlock()
	for _, id := range ids {
		if _, err := k.store.VM(ctx, id); fault.Is(err, fault.NotFound) {
			k.mu.Lock()
			delete(k.byVM, id)
			k.mu.Unlock()
		}
	}
}

// Flows returns the last flows of a VM in the caller's scope, newest first.
func (k *Keeper) Flows(ctx context.Context, id string, limit int) ([]Flow, error) {
	if _, err := k.store.VM(ctx, id); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	own := k.byVM[id]
	found := slices.Clone(own.last(min(limit, maxOfVM)))
	slices.Reverse(found)
	return found, nil
}

// Bell rings when there may be new flows.
func (k *Keeper) Bell() *feed.Bell { return &k.bell }

// Bounds returns the number of the oldest flow that is kept, of all tenants, and that of the newest.
func (k *Keeper) Bounds() (oldest, newest int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest, newest = k.all.first, k.all.first
	if n := len(k.all.flows); n > 0 {
		newest = k.all.flows[n-1].ID
	}
	return oldest, newest
}

// After returns flows in the caller's scope above a number, oldest first, and the number up to which
// it looked.
func (k *Keeper) After(ctx context.Context, after int64, limit int) (found []Flow, until int64) {
	c := caller.From(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.all.last(maxOfAll)
	i, _ := slices.BinarySearchFunc(kept, after+1, func(f Flow, id int64) int { return int(f.ID - id) })
	until = after
	for _, f := range kept[i:] {
		if len(found) == limit {
			break
		}
		if until = f.ID; c.Sees(f.Tenant) {
			found = append(found, f)
		}
	}
	return found, until
}
