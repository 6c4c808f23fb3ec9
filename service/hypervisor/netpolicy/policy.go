package netpolicy

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of a document.
const (
	MaxRules   = 1000 // in both directions together
	maxPeers   = 256  // of a rule
	maxPorts   = 64   // of a rule
	maxExcepts = 64   // of a peer
)

// Action is what happens to a packet.
type Action string

// The actions.
const (
	Allow Action = "allow"
	Deny  Action = "deny"
)

// Policy is the network policy of a VM.
type Policy struct {
	Ingress Direction `json:"ingress"` // what it receives
	Egress  Direction `json:"egress"`  // what it sends
}

// Direction holds the rules for packets of one direction.
type Direction struct {
	Default Action `json:"default"` // applies to what no rule matches
	Rules   []Rule `json:"rules"`
}

// Rule matches packets by peer and by port.
type Rule struct {
	Name   string `json:"name"` // unique in its direction
	Action Action `json:"action"`
	Peers  []Peer `json:"peers,omitempty"` // none: every address
	Ports  []Port `json:"ports,omitempty"` // none: every protocol
}

// Peer is the other end of a flow: either a network or a name.
type Peer struct {
	CIDR   string   `json:"cidr,omitempty"`
	Except []string `json:"except,omitempty"` // networks inside CIDR that do not match
	FQDN   string   `json:"fqdn,omitempty"`
}

// Port is a protocol, and the ports or messages of it that match.
type Port struct {
	Protocol string `json:"protocol"`           // tcp, udp, sctp, icmp or icmpv6
	Port     int    `json:"port,omitempty"`     // 0: every one
	EndPort  int    `json:"end_port,omitempty"` // 0: only Port
	ICMPType *int   `json:"icmp_type,omitempty"`
	ICMPCode *int   `json:"icmp_code,omitempty"`
}

// AllowAll returns the policy that has the same effect as none.
func AllowAll() Policy {
	return Policy{
		Ingress: Direction{Default: Allow, Rules: []Rule{}}, Egress: Direction{Default: Allow, Rules: []Rule{}},
	}
}

// protocols are the numbers of the protocols that rules can name.
var protocols = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}

// ProtocolName returns the name of a protocol, or its number as text.
func ProtocolName(number uint8) string {
	for name, n := range protocols {
		if n == number {
			return name
		}
	}
	return fmt.Sprint(number)
}

// HasPorts reports whether packets of a protocol have ports.
func HasPorts(protocol uint8) bool { return protocol == 6 || protocol == 17 || protocol == 132 }

// HasTypes reports whether packets of a protocol have an ICMP type and code.
func HasTypes(protocol uint8) bool { return protocol == 1 || protocol == 58 }

var ruleName = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,128}$`)

// Check returns a fault.Invalid that names the field if a policy is not valid.
func (p *Policy) Check() error {
	if n := len(p.Ingress.Rules) + len(p.Egress.Rules); n > MaxRules {
		return fault.InvalidField("policy", "the policy has %d rules; at most %d are allowed", n, MaxRules)
	}
	if err := p.Ingress.check("policy.ingress"); err != nil {
		return err
	}
	return p.Egress.check("policy.egress")
}

func (d *Direction) check(field string) error {
	if err := d.Default.check(field + ".default"); err != nil {
		return err
	}
	names := map[string]bool{}
	for i := range d.Rules {
		r, at := &d.Rules[i], fmt.Sprintf("%s.rules[%d]", field, i)
		if !ruleName.MatchString(r.Name) {
			return fault.InvalidField(at+".name", "%.200q is not a valid name of a rule: "+
				"1 to 128 letters, digits and . _ : / -", r.Name)
		}
		if names[r.Name] {
			return fault.InvalidField(at+".name", "two rules of this direction have the name %s", r.Name)
		}
		names[r.Name] = true
		if err := r.check(at); err != nil {
			return err
		}
	}
	return nil
}

func (a Action) check(field string) error {
	if a != Allow && a != Deny {
		return fault.InvalidField(field, "%.40q is not an action; use allow or deny", string(a))
	}
	return nil
}

func (r *Rule) check(field string) error {
	if err := r.Action.check(field + ".action"); err != nil {
		return err
	}
	if len(r.Peers) > maxPeers {
		return fault.InvalidField(field+".peers", "a rule has at most %d peers", maxPeers)
	}
	if len(r.Ports) > maxPorts {
		return fault.InvalidField(field+".ports", "a rule has at most %d ports", maxPorts)
	}
	for i := range r.Peers {
		if _, err := r.Peers[i].networks(fmt.Sprintf("%s.peers[%d]", field, i)); err != nil {
			return err
		}
	}
	for i := range r.Ports {
		if err := r.Ports[i].check(fmt.Sprintf("%s.ports[%d]", field, i)); err != nil {
			return err
		}
	}
	return nil
}

// network is a peer's network with the networks inside it that do not match.
type network struct {
	prefix netip.Prefix
	except []netip.Prefix
}

func (n network) contains(a netip.Addr) bool {
	if !n.prefix.Contains(a) {
		return false
	}
	for _, e := range n.except {
		if e.Contains(a) {
			return false
		}
	}
	return true
}

// networks returns the network of a peer. It fails if the peer is not valid.
func (p *Peer) networks(field string) (n network, err error) {
	if p.FQDN != "" {
		return n, fault.InvalidField(field+".fqdn", "this daemon has no rules for names; use cidr")
	}
	if n.prefix, err = parsePrefix(field+".cidr", p.CIDR); err != nil {
		return n, err
	}
	if len(p.Except) > maxExcepts {
		return n, fault.InvalidField(field+".except", "a peer has at most %d exceptions", maxExcepts)
	}
	for i, text := range p.Except {
		at := fmt.Sprintf("%s.except[%d]", field, i)
		e, err := parsePrefix(at, text)
		if err != nil {
			return n, err
		}
		if e.Bits() < n.prefix.Bits() || !n.prefix.Contains(e.Addr()) {
			return n, fault.InvalidField(at, "%s is not inside %s", e, n.prefix)
		}
		n.except = append(n.except, e)
	}
	return n, nil
}

// parsePrefix reads a network. Bits beyond its length are ignored.
func parsePrefix(field, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() || strings.Contains(text, "%") {
		return p, fault.InvalidField(field, "%.60q is not a network such as 10.0.0.0/8 or 2001:db8::/32", text)
	}
	return p.Masked(), nil
}

func (p *Port) check(field string) error {
	number, known := protocols[p.Protocol]
	switch {
	case !known:
		return fault.InvalidField(field+".protocol",
			"%.40q is not a protocol; use tcp, udp, sctp, icmp or icmpv6", p.Protocol)
	case p.Port < 0 || p.Port > 65535:
		return fault.InvalidField(field+".port", "%d is not from 1 to 65535", p.Port)
	case p.EndPort < 0 || p.EndPort > 65535:
		return fault.InvalidField(field+".end_port", "%d is not from 1 to 65535", p.EndPort)
	case p.EndPort != 0 && (p.Port == 0 || p.EndPort < p.Port):
		return fault.InvalidField(field+".end_port", "%d is less than port, which begins the range", p.EndPort)
	case p.Port != 0 && !HasPorts(number):
		return fault.InvalidField(field+".port", "%s has no ports; use icmp_type", p.Protocol)
	case (p.ICMPType != nil || p.ICMPCode != nil) && !HasTypes(number):
		return fault.InvalidField(field+".icmp_type", "%s has no ICMP types", p.Protocol)
	case p.ICMPType != nil && (*p.ICMPType < 0 || *p.ICMPType > 255):
		return fault.InvalidField(field+".icmp_type", "%d is not from 0 to 255", *p.ICMPType)
	case p.ICMPCode != nil && (p.ICMPType == nil || *p.ICMPCode < 0 || *p.ICMPCode > 255):
		return fault.InvalidField(field+".icmp_code", "a code is from 0 to 255, and takes icmp_type")
	}
	return nil
}

// interval returns the protocol, and the keys of it that match; see Packet.Key.
func (p *Port) interval() (protocol uint8, from, to uint16) {
	protocol = protocols[p.Protocol]
	switch {
	case p.ICMPCode != nil:
		from = uint16(*p.ICMPType<<8 | *p.ICMPCode) //nolint:gosec // checked
		return protocol, from, from
	case p.ICMPType != nil:
		from = uint16(*p.ICMPType << 8) //nolint:gosec // checked
		return protocol, from, from | 0xff
	case p.Port == 0:
		return protocol, 0, 65535
	case p.EndPort == 0:
		return protocol, uint16(p.Port), uint16(p.Port) //nolint:gosec // checked
	}
	return protocol, uint16(p.Port), uint16(p.EndPort) //nolint:gosec // checked
}
