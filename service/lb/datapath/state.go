package datapath

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Protocol is the number of an IP protocol.
type Protocol uint8

// The protocols that are balanced.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// ParseProtocol parses tcp or udp.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "tcp":
		return TCP, nil
	case "udp":
		return UDP, nil
	}
	return 0, fault.New(fault.Invalid, "must be tcp or udp, not %q", s)
}

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return strconv.Itoa(int(p))
}

// Mode is the way in which packets reach a backend.
type Mode uint8

// The modes.
const (
	// NAT rewrites the destination. Replies return through this node, which translates them back.
	NAT Mode = iota
	// DSR sends the packet unchanged to the backend's MAC address. The backend has the VIP and
	// replies to the client directly.
	DSR
	// DSRIPIP sends the packet inside IP (protocol 4 or 41) to the backend's address.
	DSRIPIP
	// DSRGRE sends the packet inside GRE to the backend's address.
	DSRGRE
)

var modeNames = [...]string{NAT: "nat", DSR: "dsr", DSRIPIP: "dsr-ipip", DSRGRE: "dsr-gre"}

// ParseMode parses nat, dsr, dsr-ipip or dsr-gre.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return 0, fault.New(fault.Invalid, "must be one of %s, not %q", strings.Join(modeNames[:], ", "), s)
}

func (m Mode) String() string { return modeNames[m] }

// Tunnels reports whether packets are encapsulated.
func (m Mode) Tunnels() bool { return m == DSRIPIP || m == DSRGRE }

// State determines whether a backend takes flows.
type State uint8

// The states. The zero State is not a valid state.
const (
	// Healthy takes new flows.
	Healthy State = iota + 1
	// Draining keeps existing flows but takes no new ones.
	Draining
	// Down takes no packets. Its flows are hashed again.
	Down
)

func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Draining:
		return "draining"
	case Down:
		return "down"
	}
	return "unknown"
}

// VIPKey identifies a VIP: an address and a protocol, with one port or a range of ports.
type VIPKey struct {
	Address  netip.Addr
	Port     uint16
	LastPort uint16 // equal to Port unless it is a range
	Protocol Protocol
}

// IsRange reports whether the VIP has more than one port.
func (k VIPKey) IsRange() bool { return k.LastPort != k.Port }

// String returns the VIP's name, address:port:protocol. It has the first port of a range, and
// brackets around an IPv6 address. It is unique among the VIPs of a node.
func (k VIPKey) String() string {
	return netip.AddrPortFrom(k.Address, k.Port).String() + ":" + k.Protocol.String()
}

// ParseVIPName parses the output of VIPKey.String. It also accepts IPv6 addresses without brackets,
// since the last two colons end the address in any case.
func ParseVIPName(s string) (address netip.Addr, port uint16, protocol Protocol, err error) {
	bad := func() (netip.Addr, uint16, Protocol, error) {
		return netip.Addr{}, 0, 0, fault.New(
			fault.Invalid, "must be ADDRESS:PORT:PROTOCOL, as in 192.0.2.1:80:tcp, not %q", s,
		)
	}
	rest, name, ok := cutLast(s, ":")
	if !ok {
		return bad()
	}
	host, number, ok := cutLast(rest, ":")
	if !ok {
		return bad()
	}
	if protocol, err = ParseProtocol(name); err != nil {
		return bad()
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return bad()
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return bad()
		}
	}
	if address, err = netip.ParseAddr(host); err != nil || address.Zone() != "" {
		return bad()
	}
	return address.Unmap(), uint16(n), protocol, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// VIP is the desired state of one VIP.
type VIP struct {
	VIPKey
	Mode Mode
	// SNAT also rewrites the source to an address of this node, so that replies return here
	// whatever the routes of the backend are. Mode NAT only.
	SNAT bool
	// ClientAffinity keeps all flows of a client address at one backend.
	ClientAffinity bool
	// NewFlowsPerSecond limits the rate of new flows. A burst may use up the flows of one second at
	// once. 0 means no limit.
	NewFlowsPerSecond uint32
	// Backends must not contain two with the same address and port.
	Backends []Backend
}

// Backend is the desired state of one backend of a VIP.
type Backend struct {
	BackendKey
	Weight uint16 // 1 to MaxWeight
	State  State
	Hop    NextHop
}

// DefaultFlows is the default size of the flow table of each IP family.
const DefaultFlows = 262144

// MaxSources is the maximum number of addresses of each IP family that SNAT uses.
const MaxSources = 16

// MaxWeight is the maximum weight of a backend.
const MaxWeight = 1000

// BackendKey identifies a backend of a VIP.
type BackendKey struct {
	Address netip.Addr
	Port    uint16 // 0 keeps the packet's port, as in a range of ports
}

func (k BackendKey) String() string { return netip.AddrPortFrom(k.Address, k.Port).String() }

// MAC is an Ethernet address.
type MAC [6]byte

// IsZero reports whether the address is not set.
func (m MAC) IsZero() bool { return m == MAC{} }

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// NextHop determines how to send a frame to a backend. The zero NextHop means that it is not known
// yet: packets for the backend are dropped and counted as unserved.
type NextHop struct {
	// Device is the name of the interface that leads to the backend. It may be set before the
	// backend's Ethernet address is known.
	Device string
	// Own means that the address is one of this node's own, to which the program cannot send.
	Own bool
	// Impassable is why nothing can be sent through the interface, as in "interface eth1 is down".
	// It is always empty for the clients' interface, which Datapath.Follow checks.
	Impassable  string
	Interface   int // index of the interface to send from
	MTU         int // of the route, in bytes
	Source      MAC // of the interface
	Destination MAC // of the backend or of the router on the way
	// Local is this node's address towards the backend. SNAT uses it as the new source.
	Local netip.Addr
}

// Known reports whether packets can be sent to this hop.
func (h NextHop) Known() bool { return h.Interface != 0 && !h.Destination.IsZero() }

// VIPCounters counts the packets for a VIP since it was added. The counters outlive the daemon.
type VIPCounters struct {
	Packets            uint64 // forwarded to backends
	Bytes              uint64 // of those packets, with Ethernet headers
	Flows              uint64 // new flows
	DroppedRateLimited uint64 // packets of new flows beyond the limit
	DroppedNoBackend   uint64 // packets of new flows while no backend was healthy
	Unserved           uint64 // packets for the VIP that were not delivered for another reason, see Drops
}

// BackendCounters counts the packets sent to a backend of one VIP.
type BackendCounters struct {
	Packets uint64
	Bytes   uint64
}

// Counters holds the values of all counters of the node.
type Counters struct {
	VIPs     map[VIPKey]VIPCounters
	Backends map[VIPKey]map[BackendKey]BackendCounters
	// Drops counts dropped packets by reason. It contains every reason.
	Drops map[string]uint64
	// LostReplies counts packets from backends of NAT VIPs that belong to no flow. They are passed
	// to the kernel.
	LostReplies uint64
	// Flows is the number of entries in the flow tables. It includes those that ended since the
	// last sweep, at most half a minute ago. Evictions is the number of entries that had been lost
	// by then because the tables were full.
	Flows, Evictions uint64
}

// Flow is a flow as the client sees it.
type Flow struct {
	Protocol Protocol
	Client   netip.AddrPort
	VIP      netip.AddrPort
}

// Explanation describes which backend a flow's next packet would get, and why.
type Explanation struct {
	VIP     VIPKey
	Backend BackendKey // zero if there is none
	// Reason is why the flow gets that backend, or why there is none.
	Reason Reason
	// Slot is the flow's slot in the VIP's hash table, Slots the number of slots.
	Slot, Slots int
	// Hashed is the backend in that slot, which a new flow would get. It is zero if there is none.
	Hashed BackendKey
}

// Reason is why a flow gets its backend.
type Reason string

// The reasons.
const (
	ByFlow     Reason = "flow"       // an entry in the flow table
	ByAffinity Reason = "affinity"   // the client's earlier backend
	ByHash     Reason = "hash"       // the VIP's hash table
	NoBackend  Reason = "no-backend" // none is healthy
	NoVIP      Reason = "no-vip"     // no VIP has this address, port and protocol
)
