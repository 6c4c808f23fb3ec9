// Package policy keeps the network policies of VMs: stored, enforced on the host, and what they
// decided.
//
// # Invariants
//
//   - A policy that was acknowledged is stored and enforced. One that was not is neither, unless the
//     daemon was killed in between: then the stored one is enforced when it starts.
//   - Policies are loaded before VMs are restored, so that no tap is without.
//   - Records of flows are bounded and only in memory.
package policy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config holds the dependencies of a Keeper.
type Config struct {
	Store *record.Store
	Host  *host.Host
	Log   *slog.Logger
	Now   func() time.Time
	Flows *Inbox
}

// Keeper keeps the network policies of VMs.
type Keeper struct {
	store *record.Store
	host  *host.Host
	log   *slog.Logger
	now   func() time.Time
	inbox *Inbox

	changing sync.Mutex // held while a policy is enforced and stored

	mu    sync.Mutex
	all   ring            // of all VMs
	byVM  map[string]ring // by id
	bell  feed.Bell
	names map[string]owner // of VMs, as they were a short time ago
}

// New returns a Keeper.
func New(c Config) *Keeper {
	return &Keeper{
		store: c.Store, host: c.Host, log: c.Log, now: c.Now, inbox: c.Flows, byVM: map[string]ring{},
		names: map[string]owner{}, all: ring{first: c.Now().UnixMicro()}, // later than those of an earlier process
	}
}

// State is a VM's network policy and what the host did with it.
type State struct {
	record.NetworkPolicy
	network.PolicyState
	Supported bool // the host can enforce a policy of this VM
}

// Load reads all policies. Call it before VMs are restored.
func (k *Keeper) Load(ctx context.Context) error {
	stored, err := k.store.NetworkPolicies(ctx)
	if err != nil {
		return err
	}
	all := map[string]*netpolicy.Compiled{}
	for _, p := range stored {
		compiled, err := netpolicy.Compile(p.Policy.V)
		if err != nil { // an earlier version allowed it, or the row is damaged: nothing passes
			k.log.Error("the network policy of a VM is not valid any more; the VM gets no traffic", "vm", p.VM, "error", err)
			compiled = netpolicy.DenyAll()
		}
		all[p.VM] = compiled
	}
	k.host.LoadPolicies(all)
	return nil
}

// Get returns the network policy of a VM in the caller's scope.
func (k *Keeper) Get(ctx context.Context, id string) (State, error) {
	p, r, err := k.store.NetworkPolicy(ctx, id)
	if err != nil {
		return State{}, err
	}
	s := State{NetworkPolicy: p, Supported: k.host.EnforcesPolicy(&r)}
	s.PolicyState, err = k.host.PolicyState(id)
	return s, err
}

// Set replaces the network policy of a VM in the caller's scope; nil removes it. before is the revision
// that it replaces; nil: any. The policy is in force when Set returns, if the VM has a tap.
func (k *Keeper) Set(ctx context.Context, id string, before *int64, p *netpolicy.Policy) error {
	var compiled *netpolicy.Compiled
	if p != nil {
		var err error
		if compiled, err = netpolicy.Compile(p); err != nil {
			return err
		}
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	stored, r, err := k.store.NetworkPolicy(ctx, id)
	if err != nil {
		return err
	}
	if err := stored.Replaces(&r, before); err != nil {
		return err
	}
	// A client that leaves must not stop this in the middle.
	ctx = context.WithoutCancel(ctx)
	if err := k.host.SetPolicy(ctx, id, compiled); err != nil {
		return err
	}
	if _, err := k.store.SetNetworkPolicy(ctx, id, before, p); err != nil {
		k.restore(ctx, id, stored.Policy.V)
		return err
	}
	return nil
}

// restore enforces what is stored.
func (k *Keeper) restore(ctx context.Context, id string, p *netpolicy.Policy) {
	var compiled *netpolicy.Compiled
	var err error
	if p != nil {
		compiled, err = netpolicy.Compile(p)
	}
	if err == nil {
		err = k.host.SetPolicy(ctx, id, compiled)
	}
	if err != nil {
		k.log.Error("the stored network policy of a VM is not enforced; the next start of the daemon does", "vm", id,
			"error", err)
	}
}

// Visible reports whether the caller may know of the VM at the other end of a flow.
func (f *Flow) Visible(c caller.Caller) bool { return f.PeerVM != "" && c.Sees(f.peerTenant) }
