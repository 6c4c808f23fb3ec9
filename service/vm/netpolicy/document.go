package netpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Limits of the hypervisor daemon on a document.
const (
	MaxRules  = 1000 // in both directions together
	maxPeers  = 256  // of a rule
	maxPorts  = 64   // of a rule
	maxExcept = 64   // of a peer
)

// The directions, as seen from the VM.
const (
	Ingress = "ingress"
	Egress  = "egress"
)

// The actions of rules and defaults.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Document is the policy of one VM in the form that the hypervisor daemon enforces.
type Document struct {
	Ingress Direction `json:"ingress"`
	Egress  Direction `json:"egress"`
}

// Direction is what applies to packets to the VM, or from it.
type Direction struct {
	Default string `json:"default"` // what no rule matches
	Rules   []Rule `json:"rules"`
}

// Rule allows or denies what matches one of its peers and one of its ports.
type Rule struct {
	Name   string `json:"name"` // unique in its direction; says where the rule comes from
	Action string `json:"action"`
	Peers  []Peer `json:"peers,omitempty"` // none: every address
	Ports  []Port `json:"ports,omitempty"` // none: every protocol
}

// Peer is a network without parts of it, or a name.
type Peer struct {
	CIDR   string   `json:"cidr,omitempty"`
	Except []string `json:"except,omitempty"`
	FQDN   string   `json:"fqdn,omitempty"`
}

// Port is a protocol, with a range of ports or a type of ICMP.
type Port struct {
	Protocol string `json:"protocol"`
	Port     int    `json:"port,omitempty"`     // 0: every port
	EndPort  int    `json:"end_port,omitempty"` // 0: only Port
	ICMPType *int   `json:"icmp_type,omitempty"`
	ICMPCode *int   `json:"icmp_code,omitempty"`
}

// Size returns the number of rules in both directions.
func (d *Document) Size() int { return len(d.Ingress.Rules) + len(d.Egress.Rules) }

// Names reports whether a document has rules for names of the domain name system.
func (d *Document) Names() bool {
	return slices.ContainsFunc(d.Egress.Rules, func(r Rule) bool { return slices.ContainsFunc(r.Peers, isName) })
}

func isName(p Peer) bool { return p.FQDN != "" }

// WithoutNames returns a document that allows nothing by name. Rules that have no other peers are left
// out, so it is never less strict.
func (d *Document) WithoutNames() *Document {
	out := *d
	out.Egress.Rules = []Rule{}
	for _, r := range d.Egress.Rules {
		had := len(r.Peers)
		r.Peers = slices.DeleteFunc(slices.Clone(r.Peers), isName)
		if had == 0 || len(r.Peers) > 0 {
			out.Egress.Rules = append(out.Egress.Rules, r)
		}
	}
	return &out
}

// Hash identifies what a document says. The hash of nil, no policy, is empty.
func (d *Document) Hash() string {
	if d == nil {
		return ""
	}
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // it holds texts and numbers only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
