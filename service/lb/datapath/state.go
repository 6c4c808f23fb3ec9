package datapath

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Protocol is an IP protocol by its number.
type Protocol uint8

// The protocols that are balanced.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// ParseProtocol reads tcp or udp.
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

// Mode is how packets get to a backend.
type Mode uint8

// The modes.
const (
	// NAT rewrites the destination; replies come back through this node, which
	// translates them.
	NAT Mode = iota
	// DSR sends the packet unchanged to the backend's MAC address; the backend has
	// the VIP and replies to the client itself.
	DSR
	// DSRIPIP sends it inside IP (protocol 4 or 41) to the backend's address.
	DSRIPIP
	// DSRGRE sends it inside GRE to the backend's address.
	DSRGRE
)

var modeNames = [...]string{NAT: "nat", DSR: "dsr", DSRIPIP: "dsr-ipip", DSRGRE: "dsr-gre"}

// ParseMode reads nat, dsr, dsr-ipip or dsr-gre.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return 0, fault.New(fault.Invalid, "must be one of %s, not %q", strings.Join(modeNames[:], ", "), s)
}

func (m Mode) String() string { return modeNames[m] }

// Tunnels says whether packets travel inside others.
func (m Mode) Tunnels() bool { return m == DSRIPIP || m == DSRGRE }

// State is whether a backend takes flows.
type State uint8

// The states. The zero State is none of them.
const (
	// Healthy takes new flows.
	Healthy State = iota + 1
	// Draining keeps the flows it has and takes no new ones.
	Draining
	// Down takes nothing; the flows it had are hashed again.
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

// VIPKey is what identifies a VIP: one address and protocol, and one port or a
// range of ports.
type VIPKey struct {
	Address  netip.Addr
	Port     uint16
	LastPort uint16 // Port, unless it is a range
	Protocol Protocol
}

// IsRange says whether the VIP has more than one port.
func (k VIPKey) IsRange() bool { return k.LastPort != k.Port }

// String is the VIP's name, address:port:protocol, with the first port of a range
// and an IPv6 address in brackets. It is unique among the VIPs of a node.
func (k VIPKey) String() string {
	return netip.AddrPortFrom(k.Address, k.Port).String() + ":" + k.Protocol.String()
}

// ParseVIPName reads what VIPKey.String writes. IPv6 addresses may also come
// without brackets, since the last two colons end the address anyway.
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

// VIP is the wanted state of one VIP.
type VIP struct {
	VIPKey
	Mode Mode
	// SNAT also rewrites the source to an address of this node, so that replies come
	// back here whatever the backend's routes are. Mode NAT only.
	SNAT bool
	// ClientAffinity keeps all flows of a client address at one backend.
	ClientAffinity bool
	// NewFlowsPerSecond bounds new flows; a burst may have as many as a second's.
	// 0 is no bound.
	NewFlowsPerSecond uint32
	// Backends have different addresses and ports.
	Backends []Backend
}

// Backend is the wanted state of one backend of a VIP.
type Backend struct {
	BackendKey
	Weight uint16 // 1 to MaxWeight
	State  State
	Hop    NextHop
}

// DefaultFlows is how many flows of each IP family are remembered by default.
const DefaultFlows = 262144

// MaxSources bounds the addresses of each IP family that SNAT may use.
const MaxSources = 16

// MaxWeight is the greatest weight of a backend.
const MaxWeight = 1000

// BackendKey identifies a backend of a VIP.
type BackendKey struct {
	Address netip.Addr
	Port    uint16 // 0 keeps the packet's, as a range of ports does
}

func (k BackendKey) String() string { return netip.AddrPortFrom(k.Address, k.Port).String() }

// MAC is an Ethernet address.
type MAC [6]byte

// IsZero says whether the address is not known.
func (m MAC) IsZero() bool { return m == MAC{} }

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// NextHop is how to send a frame to a backend. The zero NextHop is not known yet:
// packets for the backend are dropped and counted as unserved.
type NextHop struct {
	// Device is the name of the interface that the backend is reached by. It is known before
	// the Ethernet address of the backend is.
	Device string
	// Own says that the address is one of this node's own, to which nothing can be sent.
	Own bool
	// Impassable says why nothing can be sent by the interface, as in "interface eth1 is down". It is
	// empty for the interface of clients, which is Datapath.Follow's matter.
	Impassable  string
	Interface   int // index of the interface to send from
	MTU         int // of the route, in bytes
	Source      MAC // of the interface
	Destination MAC // of the backend or the router before it
	// Local is this node's address towards the backend: the new source with SNAT.
	Local netip.Addr
}

// Known says whether packets can be sent this way.
func (h NextHop) Known() bool { return h.Interface != 0 && !h.Destination.IsZero() }

// VIPCounters counts what happened to packets for a VIP since the VIP came to be;
// the counts outlive the daemon.
type VIPCounters struct {
	Packets            uint64 // forwarded to backends
	Bytes              uint64 // of those packets, Ethernet header included
	Flows              uint64 // new flows
	DroppedRateLimited uint64 // packets of new flows beyond the limit
	DroppedNoBackend   uint64 // packets of new flows while no backend was healthy
	Unserved           uint64 // packets that matched the VIP and could not be delivered for another reason, see Drops
}

// BackendCounters counts the packets sent to a backend of one VIP.
type BackendCounters struct {
	Packets uint64
	Bytes   uint64
}

// Counters is a reading of all counters of the node.
type Counters struct {
	VIPs     map[VIPKey]VIPCounters
	Backends map[VIPKey]map[BackendKey]BackendCounters
	// Drops counts dropped packets by reason; every reason is present.
	Drops map[string]uint64
	// LostReplies counts packets from backends of NAT VIPs that belong to no flow. They are left to
	// the kernel.
	LostReplies uint64
	// Flows is the number of entries in the flow tables; those that ended since the last
	// count, half a minute ago at most, are still in it. Evictions is how many entries
	// were lost until then because the tables were full.
	Flows, Evictions uint64
}

// Flow is a flow as the client sees it.
type Flow struct {
	Protocol Protocol
	Client   netip.AddrPort
	VIP      netip.AddrPort
}

// Explanation says which backend a flow's next packet would get, and why.
type Explanation struct {
	VIP     VIPKey
	Backend BackendKey // zero if there is none
	// Reason is why it is that backend, or why there is none.
	Reason Reason
	// Slot is the flow's place in the VIP's hash table, of Slots.
	Slot, Slots int
	// Hashed is the backend in that slot: what a new flow would get. Zero if there is none.
	Hashed BackendKey
}

// Reason is why a flow gets its backend.
type Reason string

// The reasons.
const (
	ByFlow     Reason = "flow"       // an entry of the flow table
	ByAffinity Reason = "affinity"   // the client's earlier backend
	ByHash     Reason = "hash"       // the VIP's hash table
	NoBackend  Reason = "no-backend" // none is healthy
	NoVIP      Reason = "no-vip"     // no VIP has this address, port and protocol
)
