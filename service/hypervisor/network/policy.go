package network

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// Traffic is what was counted.
type Traffic struct{ Packets, Bytes int64 }

// PolicyCounters is what was counted in one direction. Packets of both ends of a flow are counted
// by the rule that allows the flow.
type PolicyCounters struct {
	Rules   []Traffic // in the order of the policy
	Default Traffic
}

// PolicyState is the state of a VM's policy on the host.
type PolicyState struct {
	Attached bool // the VM has a tap
	Enforced bool // the counters are valid
	Since    time.Time
	Ingress  PolicyCounters
	Egress   PolicyCounters
}

// Flow is a decision about a packet that begins a flow, or that is denied.
type Flow struct {
	Time                time.Time
	VM                  string // its id
	Ingress             bool   // the VM is the receiver
	Allowed             bool
	Rule                string // empty: the default
	Protocol            uint8
	Source, Destination netip.AddrPort // ports are zero for protocols without
	ICMPType            int            // -1: not ICMP
	PeerVM              string         // the VM at the other end, if it is one of the managed bridge
}

// recordMark is what the kernel adds to the record of a packet: who decided.
type recordMark struct {
	tap        string
	generation int
	direction  string
	rule       string // its number, or "default"
	action     netpolicy.Action
}

func (m recordMark) String() string {
	return fmt.Sprintf("%s %d %s %s %s", m.tap, m.generation, m.direction, m.rule, m.action)
}

func parseMark(text string) (m recordMark, ok bool) {
	f := strings.Fields(text)
	if len(f) != 5 {
		return m, false
	}
	generation, err := strconv.Atoi(f[1])
	return recordMark{
		tap: f[0], generation: generation, direction: f[2], rule: f[3], action: netpolicy.Action(f[4]),
	}, err == nil
}

// recordGroup is the number by which this daemon gets its records from the kernel.
func (o Options) recordGroup() uint16 {
	var n uint16
	for _, c := range []byte(o.mark()) {
		n = n*31 + uint16(c)
	}
	return 1024 + n%30000
}
