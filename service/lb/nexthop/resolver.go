//go:build linux

// Package nexthop finds out how to send frames to backends: by which interface, to
// which Ethernet address, from which.
//
// The kernel's routes and neighbours are what is asked, and watched: packets that XDP
// forwards pass the kernel by, so nobody else would keep its neighbours fresh. A
// backend that has no neighbour entry is looked up by ARP or neighbour discovery, and
// every entry is confirmed again from time to time, so that a backend that comes back
// with another network card is found.
//
// Invariants:
//
//   - Lookup never waits: of a hop that is not known it tells at most the interface, or that
//     the address is this node's own.
//   - Changed has a signal after every change of a hop.
//   - An address that is not wanted any more is forgotten.
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
	// confirmEvery is the time between two questions for the same neighbour. The
	// kernel asks only if its answer is older than about half a minute.
	confirmEvery = 20 * time.Second
	// settle is how long news are collected before they are looked at: they come in
	// bursts.
	settle = 20 * time.Millisecond
)

// Target is what to send to.
type Target struct {
	Address netip.Addr
	// MAC is a given Ethernet address on the balancer's interface; nothing is looked
	// up then.
	MAC datapath.MAC
}

// route is what the kernel's routes say of an address.
type route struct {
	own       bool // the address is this node's
	link      int
	neighbour netip.Addr // the address itself, or the router before it
	local     netip.Addr
	mtu       int // 0 is the link's
}

type neighbour struct {
	link    int
	address netip.Addr
}

// Resolver keeps the way to each wanted target.
type Resolver struct {
	log     *slog.Logger
	device  string // of targets with a given MAC
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

// New makes a resolver for the network namespace of the calling thread. device is
// the balancer's interface. Close it, or Run it and end the context.
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

// Lookup is the way to a target: not known until it was found, zero if it is not wanted.
func (r *Resolver) Lookup(t Target) datapath.NextHop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hops[t]
}

// Changed has a value after hops have changed.
func (r *Resolver) Changed() <-chan struct{} { return r.changed }

// Links has a value after an interface, or an address of one, has come, changed or gone.
func (r *Resolver) Links() <-chan struct{} { return r.links }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run keeps the hops until ctx ends.
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
			// The next news or confirmation tries again.
			r.log.Warn("the ways to backends cannot be looked up", "error", err)
		}
	}
}

// collect waits for a burst of news to end, and returns the greatest of them.
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

// refresh looks every target up. Routes are asked for again only if they may have
// changed; ask confirms all neighbours.
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

// hopBy puts together what routes, links and neighbours say. It is not known if one of
// them is missing.
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

// passable is the hop, unless the interface that it is by lets nothing pass. The routes by one that is
// down are gone, so that a target without a way is taken to be where it was before.
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

// route asks the kernel for the way to an address. It is zero if there is none.
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

// usable are the states of neighbours whose Ethernet address counts. A stale one does:
// it is confirmed when somebody asks, and stays in use meanwhile.
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

// ask makes the kernel look neighbours up, or confirm them. News come of what it finds.
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
