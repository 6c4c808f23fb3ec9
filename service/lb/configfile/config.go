package configfile

import (
	"net/netip"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// The limits of a document.
const (
	MaxFileSize = 16 << 20 // bytes
	MaxVIPs     = 4096     // each port of a list counts as one
	// MaxBackendInterfaces is the maximum length of Config.BackendInterfaces.
	MaxBackendInterfaces = 63
	// MaxBackends is the maximum number of backends of all VIPs together.
	MaxBackends = 65535
	// MaxRangeBlocks is the maximum number of blocks that the ranges of all VIPs take in the
	// kernel's trie. A range takes at most 30 blocks; one aligned to a power of two takes one.
	MaxRangeBlocks = datapath.MaxBlocks
)

// Config is a document. The tags define its syntax: key, default, bounds (inclusive) and, for the
// reference, the meaning.
type Config struct {
	Interface         string       `key:"interface" required:"true" help:"Network interface on which packets for the VIPs arrive."`
	BackendInterfaces []string     `key:"backendInterfaces" help:"More interfaces to attach to: those that backends are reached by, if not the first one. A backend behind an interface that is not named is down, since its replies would pass the load balancer by."`
	XDPMode           XDPMode      `key:"xdpMode" default:"generic" enum:"generic native auto" help:"How the program is attached: generic works with every driver, native is faster and needs the driver's support, auto tries native first."`
	APIListen         string       `key:"apiListen" default:"127.0.0.1:9870" help:"Address of the API, the metrics and the console."`
	TunnelSource      netip.Addr   `key:"tunnelSource" help:"IPv4 address of this node as the outer source towards IPv4 backends in the modes dsr-ipip and dsr-gre."`
	TunnelSource6     netip.Addr   `key:"tunnelSource6" help:"The same for IPv6 backends."`
	SNATSources       []netip.Addr `key:"snatSources" help:"Addresses of this node that SNAT uses as sources, at most 16 of each IP family. Each has 31,744 ports towards each backend. Default: the address that the node's routes say."`
	MaxFlows          int          `key:"maxFlows" default:"262144" min:"1024" max:"16777216" help:"Flows of each IP family that are remembered. A change takes a restart, which carries the flows over."`
	VIPs              []VIP        `key:"vips" help:"The VIPs. Without any, nothing is attached to the interface."`
	BGP               *BGP         `key:"bgp" help:"Announce the addresses of VIPs by BGP. A VIP's address is announced while a VIP of that address has a healthy backend."`
}

// Interfaces returns all interfaces that the program is attached to.
func (c *Config) Interfaces() []string { return append([]string{c.Interface}, c.BackendInterfaces...) }

// XDPMode is the way in which the program is attached.
type XDPMode string

// The modes of XDP.
const (
	XDPGeneric XDPMode = "generic"
	XDPNative  XDPMode = "native"
	XDPAuto    XDPMode = "auto"
)

// VIP is a virtual address with the ports that are balanced.
type VIP struct {
	Address         netip.Addr        `key:"address" required:"true" help:"The virtual address."`
	Port            uint16            `key:"port" min:"1" help:"The port. Exactly one of port, portRange and ports is given."`
	PortRange       PortRange         `key:"portRange" help:"All ports from the first to the last, as in 8000-8100. A port that another VIP has by itself goes to that VIP."`
	Ports           []uint16          `key:"ports" min:"1" help:"A list of ports; each becomes a VIP of its own."`
	Protocol        datapath.Protocol `key:"protocol" default:"tcp" help:"tcp or udp."`
	Mode            datapath.Mode     `key:"mode" default:"nat" help:"How packets get to backends: nat rewrites the destination, dsr sends to the backend's MAC address on the same network, dsr-ipip and dsr-gre tunnel to the backend. With the dsr modes backends reply to the client themselves."`
	SNAT            bool              `key:"snat" help:"Also rewrite the source to an address of this node, for backends that do not route replies back through it. Mode nat only."`
	SessionAffinity Affinity          `key:"sessionAffinity" default:"none" help:"clientIP keeps all flows of a client's address at one backend; none does not."`
	RateLimit       uint32            `key:"rateLimit" help:"New flows a second beyond which packets of new flows are dropped; 0 is no limit. A TCP flow begins with a SYN."`
	HealthCheck     HealthCheck       `key:"healthCheck" help:"How backends are probed. In the dsr modes probes go to the VIP's address, on the backend's way. A VIP of protocol udp needs type none, or the port of a check that answers over TCP."`
	Backends        []Backend         `key:"backends" help:"Where packets go. No two of one VIP have the same address and port."`
}

// Affinity determines which flows stay together.
type Affinity string

// The affinities.
const (
	NoAffinity       Affinity = "none"
	ClientIPAffinity Affinity = "clientIP"
)

// CheckType is the type of a health check.
type CheckType string

// The types of checks.
const (
	CheckTCP   CheckType = "tcp"
	CheckHTTP  CheckType = "http"
	CheckHTTPS CheckType = "https"
	CheckNone  CheckType = "none"
)

// HealthCheck holds the settings of the health checks of a VIP's backends.
type HealthCheck struct {
	Type     CheckType         `key:"type" default:"tcp" enum:"tcp http https none" help:"tcp connects, http and https send a GET request (certificates are not verified), none takes backends for healthy always."`
	Port     uint16            `key:"port" min:"1" help:"Port to probe. Default: the backend's port; the first port of a range."`
	Path     string            `key:"path" help:"Path of the request, with a query if need be; http and https only. Default: /."`
	Host     string            `key:"host" help:"Host header, and name for TLS; http and https only. Default: the backend's address."`
	Status   probe.StatusRange `key:"status" help:"Status codes that are healthy, one or a range as in 200-299; http and https only. Default: 200-399."`
	Interval time.Duration     `key:"interval" default:"2s" min:"100ms" max:"1h" help:"Time from one probe to the next, give or take a tenth."`
	Timeout  time.Duration     `key:"timeout" default:"1s" min:"10ms" max:"1h" help:"How long a probe may take."`
	Rise     int               `key:"rise" default:"2" min:"1" max:"100" help:"Successes in a row that make a backend healthy."`
	Fall     int               `key:"fall" default:"3" min:"1" max:"100" help:"Failures in a row that make it down. The first probe of all decides alone."`
}

// Backend is a backend of a VIP.
type Backend struct {
	Address netip.Addr   `key:"address" required:"true" help:"The backend's address. In the modes nat and dsr of the VIP's family."`
	Port    uint16       `key:"port" min:"1" help:"The backend's port. Default: the VIP's port. Not with a range, whose ports are kept, and no other than the VIP's in the dsr modes, which rewrite nothing."`
	MAC     datapath.MAC `key:"mac" help:"The backend's Ethernet address, mode dsr only. Default: asked for by ARP or neighbour discovery."`
	Weight  uint16       `key:"weight" default:"1" min:"1" max:"1000" help:"Share of new flows, in proportion to the other backends."`
}

// BGP holds the settings of the node's speaker and its peers.
type BGP struct {
	LocalASN        uint32        `key:"localASN" required:"true" min:"1" help:"This node's AS number."`
	RouterID        netip.Addr    `key:"routerID" required:"true" form:"ipv4" help:"Router id, an IPv4 address."`
	Communities     []Community   `key:"communities" help:"Communities of every announcement: ASN:VALUE, ASN:VALUE:VALUE (large), or no-export, no-advertise, no-export-subconfed, no-peer, blackhole, graceful-shutdown."`
	NextHop4        netip.Addr    `key:"nextHop4" help:"Next hop of IPv4 announcements. Default: the local address of each session; without nextHop4, peers with an IPv6 address get no IPv4 VIPs."`
	NextHop6        netip.Addr    `key:"nextHop6" help:"The same for IPv6: without it, peers with an IPv4 address get no IPv6 VIPs."`
	GracefulRestart time.Duration `key:"gracefulRestart" default:"30s" min:"0s" max:"4095s" help:"How long peers keep the routes after the daemon has ended or died, while the kernel keeps balancing (RFC 4724), in whole seconds. 0s has them withdrawn when the daemon ends."`
	Peers           []Peer        `key:"peers" help:"The peers, which are connected to; nothing listens."`
}

// Peer is a BGP peer.
type Peer struct {
	Address      netip.Addr    `key:"address" required:"true" help:"The peer's address."`
	ASN          uint32        `key:"asn" required:"true" min:"1" help:"The peer's AS number."`
	Port         uint16        `key:"port" default:"179" min:"1" help:"The peer's port."`
	Password     Secret        `key:"password" help:"TCP MD5 password, 1 to 80 printable characters. Secret."`
	PasswordFile string        `key:"passwordFile" help:"File that holds the password; a relative path begins at the folder of this file. It is read when the configuration is loaded."`
	HoldTime     time.Duration `key:"holdTime" default:"90s" min:"3s" max:"65535s" help:"Hold time in whole seconds; keepalives are sent three times as often."`
}

// Secret is text that must not be printed.
type Secret string

const redacted = "[redacted]"

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
