//go:build linux

// Package nexthop determines how to send frames to backends: through which interface, and with
// which Ethernet addresses.
//
// It uses and watches the kernel's routes and neighbours. The kernel does not see the packets that
// XDP forwards, so it does not keep its neighbour entries fresh by itself. For a backend without a
// neighbour entry, the resolver triggers ARP or neighbour discovery. It confirms every entry from
// time to time, to notice when a backend comes back with another network card.
//
// Invariants:
//
//   - Lookup never blocks. For an incomplete hop, it returns at most the interface, or that the
//     address is this node's own.
//   - Changed signals after every change of a hop.
//   - Addresses that are no longer wanted are forgotten.
package nexthop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

const (
	// confirmEvery is the time between two confirmations of the same neighbour. The kernel sends a
	// request only if its entry is older than about half a minute.
	confirmEvery = 20 * time.Second
	// settle is how long notifications are collected before they are handled, since they come in
	// bursts.
	settle = 20 * time.Millisecond
)

// Target is an address whose next hop is looked up.
type Target struct {
	Address netip.Addr
	// MAC is the Ethernet address on the balancer's interface, if it is given. Then nothing is
	// looked up.
	MAC datapath.MAC
}

// route is the kernel's route to an address.
type route struct {
	own       bool // the address is this node's own
	link      int
	neighbour netip.Addr // the address itself, or the router on the way
	local     netip.Addr
	mtu       int // 0 means the link's MTU
}

type neighbour struct {
	link    int
	address netip.Addr
}

// Resolver maintains the next hop of each wanted target.
type Resolver struct {
	log     *slog.Logger
	device  string // interface of targets with a given MAC
	kernel  *netlink.Handle
	news    <-chan kind
	stop    func()
	changed chan struct{}
	links   chan struct{}
	nudge   chan struct{}

	mu     sync.Mutex
	wanted map[Target]bool
	hops   map[Target]datapath.NextHop
	routes map[netip.Addr]route
}

// New creates a Resolver for the network namespace of the calling thread. device is the balancer's
// interface. Call Run and end its context to release the resolver.
func New(device string, log *slog.Logger) (*Resolver, error) {
	kernel, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for routes: %w", err)
	}
	r := &Resolver{
		log: log, device: device, kernel: kernel,
		changed: make(chan struct{}, 1), links: make(chan struct{}, 1), nudge: make(chan struct{}, 1),
		wanted: map[Target]bool{}, hops: map[Target]datapath.NextHop{}, routes: map[netip.Addr]route{},
	}
	if r.news, r.stop, err = subscribe(); err != nil {
		kernel.Close()
		return nil, fmt.Errorf("watch the kernel's routes: %w", err)
	}
	return r, nil
}

// Want replaces the set of targets.
func (r *Resolver) Want(targets []Target) {
	r.mu.Lock()
	r.wanted = make(map[Target]bool, len(targets))
	for _, t := range targets {
		r.wanted[t] = true
	}
	r.mu.Unlock()
	signal(r.nudge)
}

// Lookup returns the next hop of a target. It is incomplete until it was found, and zero if the
// target is not wanted.
func (r *Resolver) Lookup(t Target) datapath.NextHop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hops[t]
}

// Changed receives a value after hops have changed.
func (r *Resolver) Changed() <-chan struct{} { return r.changed }

// Links receives a value after an interface, or an address of one, was added, changed or removed.
func (r *Resolver) Links() <-chan struct{} { return r.links }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run keeps the hops up to date until ctx ends. Then it releases the resolver.
func (r *Resolver) Run(ctx context.Context) error {
	defer r.kernel.Close()
	defer r.stop()
	confirm := time.NewTicker(confirmEvery)
	defer confirm.Stop()
	for {
		news, ask := ofRoutes, false
		select {
		case <-ctx.Done():
			return nil
		case <-r.nudge:
		case <-confirm.C:
			ask = true
		case news = <-r.news:
			if news == ofLinks {
				signal(r.links)
			}
			news = max(news, r.collect(ctx))
		}
		if err := routine.Call(
			r.log, "ways to backends", func() error { return r.refresh(news >= ofRoutes, ask) },
		); err != nil {
			// The next notification or confirmation tries again.
			r.log.Warn("the ways to backends cannot be looked up", "error", err)
		}
	}
}

// collect waits for a burst of notifications to end, and returns the greatest of them.
func (r *Resolver) collect(ctx context.Context) (most kind) {
	end := time.After(settle)
	for {
		select {
		case <-ctx.Done():
			return most
		case <-end:
			return most
		case news := <-r.news:
			if news == ofLinks {
				signal(r.links)
			}
			most = max(most, news)
		}
	}
}

// refresh looks up all targets. It queries known routes again only if routes is set. ask confirms
// all neighbours.
func (r *Resolver) refresh(routes, ask bool) error {
	r.mu.Lock()
	wanted := make([]Target, 0, len(r.wanted))
	for t := range r.wanted {
		wanted = append(wanted, t)
	}
	known, before := r.routes, r.hops
	r.mu.Unlock()

	links, err := r.allLinks()
	if err != nil {
		return err
	}
	neighbours, err := r.neighbours()
	if err != nil {
		return err
	}
	hops, found := make(map[Target]datapath.NextHop, len(wanted)), make(map[netip.Addr]route, len(wanted))
	var missing []neighbour
	for _, t := range wanted {
		if !t.MAC.IsZero() {
			hops[t] = givenHop(t, links, r.device)
			continue
		}
		way, has := known[t.Address]
		if !has || routes {
			way = r.route(t.Address)
		}
		found[t.Address] = way
		hop := r.passable(hopBy(way, links, neighbours), before[t].Device, links)
		hops[t] = hop
		if way.link != 0 && (ask || !hop.Known()) {
			missing = append(missing, neighbour{way.link, way.neighbour})
		}
	}
	r.ask(missing)

	r.mu.Lock()
	defer r.mu.Unlock()
	changed := len(hops) != len(r.hops)
	for t, h := range hops {
		changed = changed || r.hops[t] != h
	}
	r.hops, r.routes = hops, found
	if changed {
		signal(r.changed)
	}
	return nil
}

// hopBy combines a route with its link and neighbour. The hop is incomplete if one of them is
// missing.
func hopBy(way route, links map[int]*netlink.LinkAttrs, neighbours map[neighbour]datapath.MAC) datapath.NextHop {
	link := links[way.link]
	if way.own || link == nil {
		return datapath.NextHop{Own: way.own}
	}
	mac, known := neighbours[neighbour{way.link, way.neighbour}]
	if !known || len(link.HardwareAddr) != len(datapath.MAC{}) {
		return datapath.NextHop{Device: link.Name}
	}
	h := datapath.NextHop{
		Device:      link.Name,
		Interface:   way.link,
		MTU:         way.mtu,
		Source:      datapath.MAC(link.HardwareAddr),
		Destination: mac,
		Local:       way.local,
	}
	if h.MTU == 0 {
		h.MTU = link.MTU
	}
	return h
}

// passable returns hop, or a hop with the reason if its interface is down or has no carrier. An
// interface that goes down loses its routes, so a target without a route is assumed to be still
// behind its previous interface. Datapath.Follow handles the first interface, so it is exempt here.
func (r *Resolver) passable(hop datapath.NextHop, before string, links map[int]*netlink.LinkAttrs) datapath.NextHop {
	device := hop.Device
	if device == "" && !hop.Own {
		device = before
	}
	if device == "" || device == r.device {
		return hop
	}
	for _, l := range links {
		if why := datapath.Impassable(l); l.Name == device && why != "" {
			return datapath.NextHop{Device: device, Impassable: why}
		}
	}
	return hop
}

func givenHop(t Target, links map[int]*netlink.LinkAttrs, device string) datapath.NextHop {
	for index, l := range links {
		if l.Name == device && len(l.HardwareAddr) == len(datapath.MAC{}) {
			return datapath.NextHop{
				Device:      device,
				Interface:   index,
				MTU:         l.MTU,
				Source:      datapath.MAC(l.HardwareAddr),
				Destination: t.MAC,
			}
		}
	}
	return datapath.NextHop{}
}

// route queries the kernel's route to an address. It returns a zero route if there is none.
func (r *Resolver) route(a netip.Addr) route {
	found, err := r.kernel.RouteGet(a.AsSlice())
	if err != nil || len(found) == 0 {
		return route{}
	}
	if found[0].Type == unix.RTN_LOCAL {
		return route{own: true}
	}
	way := route{link: found[0].LinkIndex, neighbour: a, mtu: found[0].MTU}
	if gateway, ok := netip.AddrFromSlice(found[0].Gw); ok {
		way.neighbour = gateway.Unmap()
	} else if v, ok := found[0].Via.(*netlink.Via); ok { // an IPv6 router for IPv4
		if gateway, ok := netip.AddrFromSlice(v.Addr); ok {
			way.neighbour = gateway
		}
	}
	if local, ok := netip.AddrFromSlice(found[0].Src); ok {
		way.local = local.Unmap()
	}
	return way
}

func (r *Resolver) allLinks() (map[int]*netlink.LinkAttrs, error) {
	all, err := r.kernel.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	links := make(map[int]*netlink.LinkAttrs, len(all))
	for _, l := range all {
		links[l.Attrs().Index] = l.Attrs()
	}
	return links, nil
}

// usable are the states of neighbours whose Ethernet address is used. This includes stale ones:
// they stay in use until the next confirmation.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY |
	netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

func (r *Resolver) neighbours() (map[neighbour]datapath.MAC, error) {
	all, err := r.kernel.NeighList(0, unix.AF_UNSPEC)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	known := make(map[neighbour]datapath.MAC, len(all))
	for _, n := range all {
		a, ok := netip.AddrFromSlice(n.IP)
		if ok && n.State&usable != 0 && len(n.HardwareAddr) == len(datapath.MAC{}) {
			known[neighbour{n.LinkIndex, a.Unmap()}] = datapath.MAC(n.HardwareAddr)
		}
	}
	return known, nil
}

// ask makes the kernel look up or confirm neighbours. A notification follows with the result.
func (r *Resolver) ask(neighbours []neighbour) {
	for _, n := range neighbours {
		family := unix.AF_INET
		if n.address.Is6() {
			family = unix.AF_INET6
		}
		err := r.kernel.NeighSet(&netlink.Neigh{
			LinkIndex: n.link,
			Family:    family,
			State:     netlink.NUD_NONE,
			Flags:     unix.NTF_USE,
			IP:        net.IP(n.address.AsSlice()),
		})
		if err != nil {
			r.log.Debug("a neighbour was not looked up", "address", n.address, "error", err)
		}
	}
}
