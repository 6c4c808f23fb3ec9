package lb

import (
	"context"
	"log/slog"
	"net"
	"net/netip"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// Plane is what balances packets: datapath.Datapath, or a stand-in in tests. It is
// safe for concurrent use, but for Close.
type Plane interface {
	// Apply makes the plane balance exactly these VIPs.
	Apply(vips []datapath.VIP) error
	Counters() (datapath.Counters, error)
	// Follow keeps up with what happened to the interfaces. It is called when something has, and
	// every ten seconds.
	Follow() error
	Explain(flow datapath.Flow) (datapath.Explanation, error)
	// Interfaces are the names of the interfaces, and AttachedMode is generic or native.
	Interfaces() []string
	AttachedMode() string
	// States are those that the kernel had when the plane was opened.
	States() map[datapath.VIPKey]map[datapath.BackendKey]datapath.State
	// DialProbe connects to a port of the VIP's address at one backend, on the way that
	// packets for the VIP take to it.
	DialProbe(ctx context.Context, vip datapath.VIPKey, backend datapath.BackendKey, port uint16) (net.Conn, error)
	// Close leaves the kernel balancing.
	Close() error
}

// Target is a backend to find the way to. MAC is its Ethernet address if the
// document gives it.
type Target struct {
	Address netip.Addr
	MAC     datapath.MAC
}

// Hops finds the way to backends: nexthop.Resolver, or a stand-in in tests.
type Hops interface {
	Want(targets []Target)
	Lookup(target Target) datapath.NextHop
	// Changed gets a value when Lookup may answer otherwise than before.
	Changed() <-chan struct{}
	// Links gets a value when an interface of the node is no longer as it was.
	Links() <-chan struct{}
	Run(ctx context.Context) error
}

// PlaneOptions say how a plane is opened.
type PlaneOptions struct {
	Interfaces                  []string // the first is that of clients
	Sources                     []netip.Addr
	MaxFlows                    int
	Mode                        configfile.XDPMode
	TunnelSource, TunnelSource6 netip.Addr
	BPFDir                      string
	Log                         *slog.Logger
}

// Speaker announces addresses: bgp.Speaker, or a stand-in in tests. It is safe for
// concurrent use.
type Speaker interface {
	// Configure changes what is spoken and with whom; nil ends all sessions.
	Configure(cfg *bgp.Config) error
	// Announce makes the announced addresses exactly these.
	Announce(addresses []netip.Addr) error
	Sessions() []bgp.Session
	// Close withdraws everything and ends the sessions.
	Close(ctx context.Context) error
}

// Prober checks backends: probe.Prober, or a stand-in in tests.
type Prober interface {
	Set(checks []probe.Check) error
	Run(ctx context.Context) error
}
