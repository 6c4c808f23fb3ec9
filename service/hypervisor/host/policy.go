package host

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// EnforcesPolicy reports whether this host enforces a network policy of the VM while it runs.
func (h *Host) EnforcesPolicy(r *record.VM) bool {
	running := r.AsRunning()
	return h.network != nil && running.HasTap()
}

// LoadPolicies tells the network all policies, by the ids of the VMs, before VMs are restored.
func (h *Host) LoadPolicies(all map[string]*netpolicy.Compiled) {
	if h.network != nil {
		h.network.LoadPolicies(all)
	}
}

// SetPolicy enforces the network policy of a VM from now on, nil for none. If it fails, the one before
// stays.
func (h *Host) SetPolicy(ctx context.Context, id string, p *netpolicy.Compiled) error {
	if h.network == nil {
		return nil
	}
	return h.network.SetPolicy(ctx, id, p)
}

// LimitNetwork limits what a VM receives and sends from now on. It does nothing unless the VM has a device.
func (h *Host) LimitNetwork(ctx context.Context, r *record.VM) error {
	if h.network == nil {
		return nil
	}
	return h.network.SetLimits(ctx, r.ID, network.Limits(r.Spec.V.NetworkLimits))
}

// PolicyState returns what the network counted for a VM's policy.
func (h *Host) PolicyState(id string) (network.PolicyState, error) {
	if h.network == nil {
		return network.PolicyState{}, nil
	}
	return h.network.PolicyState(id)
}
