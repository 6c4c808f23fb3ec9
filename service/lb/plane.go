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

// Plane balances packets: datapath.Datapath, or a stand-in in tests. All methods except Close are
// safe for concurrent use.
type Plane interface {
	// Apply makes the plane balance exactly these VIPs.
	Apply(vips []datapath.VIP) error
	Counters() (datapath.Counters, error)
	// Follow adapts the plane to changes of the interfaces. It is called after each change and
	// every ten seconds.
	Follow() error
	Explain(flow datapath.Flow) (datapath.Explanation, error)
	// Interfaces returns the names of the interfaces, AttachedMode returns generic or native.
	Interfaces() []string
	AttachedMode() string
	// States returns the states that backends had in the kernel when the plane was opened.
	States() map[datapath.VIPKey]map[datapath.BackendKey]datapath.State
	// DialProbe connects to a port of the VIP's address at one backend, on the path that packets
	// for the VIP take to it.
	DialProbe(ctx context.Context, vip datapath.VIPKey, backend datapath.BackendKey, port uint16) (net.Conn, error)
	// Close releases the plane. The kernel keeps balancing.
	Close() error
}

// Target is a backend whose next hop is looked up. MAC is its Ethernet address if the document
// gives it.
type Target struct {
	Address netip.Addr
	MAC     datapath.MAC
}

// Hops finds the next hops of backends: nexthop.Resolver, or a stand-in in tests.
type Hops interface {
	Want(targets []Target)
	Lookup(target Target) datapath.NextHop
	// Changed receives a value when Lookup may return something new.
	Changed() <-chan struct{}
	// Links receives a value when an interface of the node has changed.
	Links() <-chan struct{}
	Run(ctx context.Context) error
}

// PlaneOptions are the options for opening a Plane.
type PlaneOptions struct {
	Interfaces                  []string // the first one faces the clients
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
	// Configure changes the settings and the peers. nil ends all sessions.
	Configure(cfg *bgp.Config) error
	// Announce sets the announced addresses to exactly these.
	Announce(addresses []netip.Addr) error
	Sessions() []bgp.Session
	// Close withdraws all addresses and ends the sessions.
	Close(ctx context.Context) error
}

// Prober checks backends: probe.Prober, or a stand-in in tests.
type Prober interface {
	Set(checks []probe.Check) error
	Run(ctx context.Context) error
}
