package plan

import (
	"context"
	"strings"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// maxLabels is the maximum number of labels of a VM.
const maxLabels = 64

// checkLabels returns a fault if labels hold what cannot be shown.
func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fault.InvalidField("labels", "must have at most %d keys", maxLabels)
	}
	for key, value := range labels {
		if strings.ContainsFunc(key+value, unicode.IsControl) {
			return fault.InvalidField("labels", "must not contain control characters")
		}
	}
	return nil
}

// Change validates and carries out a change to a VM. A network that names no address of the device
// keeps the one that the VM has.
func (p *Planner) Change(ctx context.Context, id string, c record.Reconfiguration) (record.VM, error) {
	r, err := p.store.VM(ctx, id)
	if err != nil {
		return r, err
	}
	if err := checkLabels(c.Labels); err != nil {
		return r, err
	}
	if c.Network != nil {
		if err := p.completeNetwork(ctx, &r, &c); err != nil {
			return r, err
		}
	}
	if c.VCPUs != nil || c.MemoryMiB != nil || c.Network != nil {
		if err := p.checkBackend(r, &c); err != nil {
			return r, err
		}
	}
	if l := c.NetworkLimits; l != nil && *l != (record.NetworkLimits{}) {
		wanted := r.Spec.V.Network
		if c.Network != nil {
			wanted = *c.Network
		}
		if !wanted.HasTap() {
			return r, fault.InvalidField("network_limits", "takes a network of mode bridge or tap; the mode %s has no limits",
				wanted.Mode)
		}
	}
	r, err = p.store.Reconfigure(ctx, id, c)
	if err != nil {
		return r, err
	}
	p.cfg.Changed()
	if c.NetworkLimits != nil {
		return r, p.limitNetwork(ctx, id)
	}
	return r, nil
}

// limitNetwork applies the limits that are stored. Of two changes at once, the last one to be stored counts.
func (p *Planner) limitNetwork(ctx context.Context, id string) error {
	p.limiting.Lock()
	defer p.limiting.Unlock()
	r, err := p.store.VM(ctx, id)
	if err != nil {
		return err
	}
	return p.host.LimitNetwork(context.WithoutCancel(ctx), &r)
}

func (p *Planner) completeNetwork(ctx context.Context, r *record.VM, c *record.Reconfiguration) error {
	n := c.Network
	if n.Mode == "" {
		n.Mode = r.Spec.V.Network.Mode
	}
	kept := n.Forwards == nil && n.Mode == record.NetworkUser
	if err := p.checkNetwork(ctx, &Request{Spec: record.Spec{Network: *n}, MAC: c.MAC}); err != nil {
		return err
	}
	if kept {
		n.Forwards = r.Spec.V.Network.Forwards // they were checked for the caller who asked for them
	}
	switch {
	case n.Mode == record.NetworkNone && c.MAC != "":
		return fault.InvalidField("network.mac", "takes another mode than none")
	case n.Mode == record.NetworkNone || c.MAC != "":
	case r.MAC != "":
		c.MAC = r.MAC
	default:
		c.MAC = newMAC()
	}
	return nil
}

// checkBackend asks the VM's backend whether it can run the VM as it is to be.
func (p *Planner) checkBackend(r record.VM, c *record.Reconfiguration) error {
	r.Running.V = nil
	if c.VCPUs != nil {
		r.VCPUs = *c.VCPUs
	}
	if c.MemoryMiB != nil {
		r.MemoryMiB = *c.MemoryMiB
	}
	if c.Network != nil {
		r.Spec.V.Network, r.MAC, r.Tap = *c.Network, c.MAC, ""
	}
	if r.HasTap() {
		r.Tap = "tap" // the real device is created on start
	}
	b, err := p.host.Backend(&r)
	if err != nil {
		return err
	}
	return b.Check(p.host.Spec(&r))
}
