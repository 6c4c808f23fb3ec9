package netpolicy

import (
	"net/netip"
	"slices"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Entities that rules name. World is every address that is neither a VM of the tenant nor a host.
const (
	EntityAll     = "all"
	EntityWorld   = "world"
	EntityHost    = "host"
	EntityCluster = "cluster" // the VMs of the tenant
)

var entities = []string{EntityAll, EntityWorld, EntityHost, EntityCluster}

// Protocols of rules. Any is every protocol.
const (
	protocolAny  = "any"
	protocolTCP  = "tcp"
	protocolUDP  = "udp"
	protocolSCTP = "sctp"
	protocolICMP = "icmp"
	protocolIPv6 = "icmpv6"
)

// OwnRule is a rule of a VM's policy or of a security group. It matches the one of CIDR, Group and
// Entity that is set.
type OwnRule struct {
	Direction   string      `json:"direction,omitempty"` // of rules of groups
	Action      string      `json:"action,omitempty"`    // empty: allow
	Protocol    string      `json:"protocol,omitempty"`  // empty: any
	Ports       []PortRange `json:"ports,omitempty"`     // none: every port
	ICMPType    *int        `json:"icmp_type,omitempty"`
	ICMPCode    *int        `json:"icmp_code,omitempty"`
	CIDR        string      `json:"cidr,omitempty"`
	Except      []string    `json:"except,omitempty"`
	Group       string      `json:"group,omitempty"`
	Entity      string      `json:"entity,omitempty"`
	Description string      `json:"description,omitempty"`
}

// PortRange is a port, or the ports up to EndPort.
type PortRange struct {
	Port    int `json:"port"`
	EndPort int `json:"end_port,omitempty"`
}

// check returns a fault that names the part of a rule that is not valid. path is that of the rule.
func (r *OwnRule) check(path string) error {
	if r.Action != "" && r.Action != Allow && r.Action != Deny {
		return fault.InvalidField(path+".action", "must be allow or deny")
	}
	given := 0
	for _, peer := range []string{r.CIDR, r.Group, r.Entity} {
		if peer != "" {
			given++
		}
	}
	if given != 1 {
		return fault.InvalidField(path, "needs one of cidr, group and entity; the entity all is every address")
	}
	if r.CIDR == "" && len(r.Except) > 0 {
		return fault.InvalidField(path+".except", "takes cidr")
	}
	if r.CIDR != "" {
		network, err := parseCIDR(path+".cidr", r.CIDR)
		if err == nil {
			err = checkExcept(path+".except", network, r.Except)
		}
		if err != nil {
			return err
		}
	}
	if r.Entity != "" && !slices.Contains(entities, r.Entity) {
		return fault.InvalidField(path+".entity", "%.50q is not supported; it is one of %v", r.Entity, entities)
	}
	if err := checkDescription(path+".description", r.Description); err != nil {
		return err
	}
	return r.checkPorts(path)
}

func (r *OwnRule) checkPorts(path string) error {
	number := func(field string, n, lowest, highest int) error {
		if n < lowest || n > highest {
			return fault.InvalidField(path+field, "must be from %d to %d", lowest, highest)
		}
		return nil
	}
	switch r.Protocol {
	case protocolTCP, protocolUDP, protocolSCTP:
		if r.ICMPType != nil || r.ICMPCode != nil {
			return fault.InvalidField(path+".icmp_type", "takes the protocol icmp or icmpv6")
		}
		if len(r.Ports) > maxPorts {
			return fault.InvalidField(path+".ports", "has %d ranges; at most %d are taken", len(r.Ports), maxPorts)
		}
		for i, p := range r.Ports {
			if err := number(at(".ports", i)+".port", p.Port, 1, 65535); err != nil {
				return err
			}
			if p.EndPort != 0 && (p.EndPort < p.Port || p.EndPort > 65535) {
				return fault.InvalidField(path+at(".ports", i)+".end_port", "must be from port to 65535")
			}
		}
	case protocolICMP, protocolIPv6:
		if len(r.Ports) > 0 {
			return fault.InvalidField(path+".ports", "takes the protocol tcp, udp or sctp")
		}
		if r.ICMPCode != nil && r.ICMPType == nil {
			return fault.InvalidField(path+".icmp_code", "takes icmp_type, too")
		}
		for field, n := range map[string]*int{".icmp_type": r.ICMPType, ".icmp_code": r.ICMPCode} {
			if n != nil {
				if err := number(field, *n, 0, 255); err != nil {
					return err
				}
			}
		}
	case "", protocolAny:
		if len(r.Ports) > 0 {
			return fault.InvalidField(path+".ports", "takes the protocol tcp, udp or sctp")
		}
		if r.ICMPType != nil || r.ICMPCode != nil {
			return fault.InvalidField(path+".icmp_type", "takes the protocol icmp or icmpv6")
		}
	default:
		return fault.InvalidField(path+".protocol", "%.50q is not one of tcp, udp, sctp, icmp, icmpv6 and any", r.Protocol)
	}
	return nil
}

// rule returns what a rule means, without its name.
func (r *OwnRule) rule() rule {
	out := rule{deny: r.Action == Deny, group: r.Group}
	switch {
	case r.CIDR != "":
		out.networks = []Peer{{CIDR: r.CIDR, Except: r.Except}}
	case r.Entity != "":
		out.entities = []string{r.Entity}
	}
	switch r.Protocol {
	case "", protocolAny:
	default:
		for _, p := range r.Ports {
			out.ports = append(out.ports, Port{Protocol: r.Protocol, Port: p.Port, EndPort: p.EndPort})
		}
		if len(r.Ports) == 0 {
			out.ports = []Port{{Protocol: r.Protocol, ICMPType: r.ICMPType, ICMPCode: r.ICMPCode}}
		}
	}
	return out
}

// networksOf returns the networks that rules name.
func networksOf(peers []Peer) (out []netip.Prefix) {
	for _, p := range peers {
		if network, err := netip.ParsePrefix(p.CIDR); err == nil {
			out = append(out, network)
		}
	}
	return out
}

const maxDescription = 1024

func checkDescription(field, text string) error {
	for _, c := range text {
		if unicode.IsControl(c) {
			return fault.InvalidField(field, "must not contain control characters")
		}
	}
	if len(text) > maxDescription {
		return fault.InvalidField(field, "has more than %d bytes", maxDescription)
	}
	return nil
}
