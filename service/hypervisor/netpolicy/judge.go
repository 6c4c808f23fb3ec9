package netpolicy

import "net/netip"

// Packet is the first packet of a flow.
type Packet struct {
	Peer     netip.Addr // the sender of ingress, the receiver of egress
	Protocol uint8
	// Key is the destination port; of ICMP the type in the upper and the code in the lower byte; 0
	// for other protocols.
	Key uint16
}

// Default is the number that Judge returns in place of a rule's if no rule matches.
const Default = -1

// Judge returns what a direction of a valid policy does with a packet, and the number of the rule
// that decides: the first deny rule that matches, else the first allow rule that matches.
func (d *Direction) Judge(p Packet) (Action, int) {
	decided := Default
	for i := range d.Rules {
		r := &d.Rules[i]
		if !r.matches(p) {
			continue
		}
		if r.Action == Deny {
			return Deny, i
		}
		if decided == Default {
			decided = i
		}
	}
	if decided == Default {
		return d.Default, Default
	}
	return Allow, decided
}

func (r *Rule) matches(p Packet) bool {
	peer, port := len(r.Peers) == 0, len(r.Ports) == 0
	for i := range r.Peers {
		n, err := r.Peers[i].networks("")
		peer = peer || err == nil && n.contains(p.Peer)
	}
	for i := range r.Ports {
		protocol, from, to := r.Ports[i].interval()
		port = port || p.Protocol == protocol && from <= p.Key && p.Key <= to
	}
	return peer && port
}
