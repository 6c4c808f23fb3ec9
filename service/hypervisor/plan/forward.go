package plan

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// maxForwards is the maximum number of forwards of a VM.
const maxForwards = 32

// checkForwards returns a fault if a network's forwards are not valid, or not the caller's to have.
func (p *Planner) checkForwards(ctx context.Context, n *record.Network) error {
	switch {
	case len(n.Forwards) == 0:
		return nil
	case n.Mode != record.NetworkUser && n.Mode != "":
		return fault.InvalidField("network.forwards", "take the mode user")
	case len(n.Forwards) > maxForwards:
		return fault.InvalidField("network.forwards", "must have at most %d elements", maxForwards)
	}
	for i, f := range n.Forwards {
		field := fmt.Sprintf("network.forwards.%d", i)
		addr, err := netip.ParseAddr(f.HostAddress)
		if err != nil || !addr.Is4() {
			return fault.InvalidField(field+".host_address", "must be an IPv4 address")
		}
		if slices.ContainsFunc(n.Forwards[:i], f.Overlaps) {
			return fault.InvalidField(field+".host_port", "is the same port of the host as in another element")
		}
		if !caller.From(ctx).Admin {
			if err := p.policy.CheckForward(field, addr, f.HostPort); err != nil {
				return err
			}
		}
	}
	return nil
}
