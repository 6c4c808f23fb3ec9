package admission

import (
	"net/netip"
	"slices"
)

// PortRange holds ports of one address of the host.
type PortRange struct {
	Address  netip.Addr
	From, To int // inclusive
}

// CheckForward returns a fault if a caller who is not an admin may not have a port of the host.
func (p *Policy) CheckForward(field string, address netip.Addr, port int) error {
	if slices.ContainsFunc(p.AllowedForwards, func(r PortRange) bool {
		return r.Address == address && port >= r.From && port <= r.To
	}) {
		return nil
	}
	return RefuseField("policy.allowed_forwards", field+".host_port", "%s:%d is not a port that tenants may have", address, port)
}
