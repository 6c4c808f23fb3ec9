//go:build linux

package datapath

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// probeNet is the network of health checks in the DSR modes. Such a check must connect to the VIP
// at a given backend, on the same path as clients' packets. A socket of this node cannot do that:
// it would reach whichever machine has the VIP, or the node itself. So the checks have their own
// network namespace, with the node's addresses. Everything that leaves it goes through a veth pair
// to the program probe (bpf/balancer.c), which sends each packet to the backend that belongs to the
// packet's source port. The reply arrives like any packet of a backend, and is passed back through
// the pair.
//
// The namespace has no name, so it disappears with this process, and the pair with it.
type probeNet struct {
	node    *netlab.Host
	host    *netlab.Host
	outside string // the node's end of the pair
	link    link.Link
	device  netlink.Link // the namespace's end of the pair

	mu   sync.Mutex
	has  map[bool]netip.Addr // the node's address in use; the key is true for IPv6
	used map[uint16]bool     // source ports in use
	next uint16
}

// Source ports of checks. Nothing else in the namespace uses ports.
const (
	firstProbePort = 20000
	lastProbePort  = 60000
)

// probeMTU is small enough that the headers of every tunnel fit on any path. It is the minimum MTU
// of IPv6.
const probeMTU = 1280

const probeInside = "probe"

// probes returns the network of health checks, with an address of the VIP's family. It creates the
// network at the first call.
func (d *Datapath) probes(vip netip.Addr) (*probeNet, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.probing == nil {
		p, err := openProbeNet(d.node, fmt.Sprintf("lbprobe%d", d.ports[0].device.index), d.objects.Probe)
		if errors.Is(err, unix.EPERM) {
			return nil, fault.New(
				fault.Denied, "health checks in the dsr modes take CAP_SYS_ADMIN, for a network namespace of their own",
			)
		}
		if err != nil {
			return nil, fmt.Errorf("make the network of health checks: %w", err)
		}
		d.probing = p
	}
	return d.probing, d.probing.provide(d.ports[0].device.index, d.options.Interface, vip.Is6())
}

func openProbeNet(node *netlab.Host, outside string, program *ebpf.Program) (*probeNet, error) {
	p := &probeNet{
		node:    node,
		outside: outside,
		has:     map[bool]netip.Addr{},
		used:    map[uint16]bool{},
		next:    firstProbePort,
	}
	// The pair of a killed process disappears with its namespace, but not at once.
	if err := p.removeOutside(); err != nil {
		return nil, err
	}
	var err error
	if p.host, err = netlab.NewHost(probeInside); err != nil {
		return nil, err
	}
	if err := p.build(program); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *probeNet) build(program *ebpf.Program) error {
	if err := netlab.Join(p.node, p.outside, p.host, probeInside); err != nil {
		return err
	}
	// The pair carries only packets of the programs. The node must not send its own.
	if err := p.node.Sysctl("net/ipv6/conf/"+p.outside+"/disable_ipv6", "1"); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return err
	}
	// By default, a veth leaves checksums to the receiver, but these packets go to the network and
	// need them. With GRO, the veth accepts frames that a native program redirects to it.
	if err := errors.Join(
		p.host.TX(probeInside, false), p.host.GRO(probeInside, true), p.host.SetMTU(probeInside, probeMTU),
	); err != nil {
		return err
	}
	var err error
	if p.device, err = p.host.Netlink().LinkByName(probeInside); err != nil {
		return err
	}
	// No neighbour resolution is needed: there is only one way out.
	if err := p.host.Netlink().LinkSetARPOff(p.device); err != nil {
		return err
	}
	outside, err := p.node.Netlink().LinkByName(p.outside)
	if err != nil {
		return err
	}
	return p.node.Do(func() (err error) {
		p.link, err = link.AttachXDP(
			link.XDPOptions{Program: program, Interface: outside.Attrs().Index, Flags: link.XDPGenericMode},
		)
		return err
	})
}

// provide adds the node's address of an IP family to the namespace, and a route for it.
func (p *probeNet) provide(index int, name string, six bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has[six].IsValid() {
		return nil
	}
	node, err := p.node.Netlink().LinkByIndex(index)
	if err != nil {
		return err
	}
	family, version := netlink.FAMILY_V4, "IPv4"
	if six {
		family, version = netlink.FAMILY_V6, "IPv6"
	}
	all, err := p.node.Netlink().AddrList(node, family)
	if err != nil {
		return err
	}
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || !ip.IsGlobalUnicast() {
			continue
		}
		if err := p.add(ip); err != nil {
			return err
		}
		p.has[six] = ip
		return nil
	}
	return fault.New(
		fault.Unavailable, "interface %s has no %s address, which checks of %s VIPs in DSR modes come from", name,
		version, version,
	)
}

// strayed reports whether an address in use is no longer an address of the node.
func (p *probeNet) strayed(node []netlink.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, used := range p.has {
		if !slices.ContainsFunc(node, func(a netlink.Addr) bool { return a.IP.Equal(used.AsSlice()) }) {
			return true
		}
	}
	return false
}

func (p *probeNet) add(a netip.Addr) error {
	address := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	if err := p.host.Netlink().AddrReplace(p.device, address); err != nil {
		return err
	}
	everything := &net.IPNet{IP: make(net.IP, a.BitLen()/8), Mask: net.CIDRMask(0, a.BitLen())}
	return p.host.Netlink().RouteReplace(
		&netlink.Route{LinkIndex: p.device.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: everything, Src: a.AsSlice()},
	)
}

func (p *probeNet) removeOutside() error {
	l, err := p.node.Netlink().LinkByName(p.outside)
	if err != nil {
		return nil //nolint:nilerr // there is none
	}
	return p.node.Netlink().LinkDel(l)
}

// Close removes the namespace and the pair.
func (p *probeNet) Close() error {
	var errs []error
	if p.link != nil {
		errs = append(errs, p.link.Close())
	}
	return errors.Join(append(errs, p.removeOutside(), p.host.Close())...)
}

// takePort reserves a source port that no running check uses.
func (p *probeNet) takePort() (uint16, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range lastProbePort - firstProbePort {
		port := p.next
		if p.next++; p.next == lastProbePort {
			p.next = firstProbePort
		}
		if !p.used[port] {
			p.used[port] = true
			return port, nil
		}
	}
	return 0, fault.New(fault.TooMany, "too many health checks are under way")
}

func (p *probeNet) freePort(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, port)
}

// probeConn frees its source port when it is closed.
type probeConn struct {
	net.Conn
	free func()
}

// NetConn returns the TCP connection, for setting socket options.
func (c probeConn) NetConn() net.Conn { return c.Conn }

func (c probeConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// DialProbe opens a TCP connection to a VIP at one of its backends, on the path that clients'
// packets take in the VIP's mode. That must be a DSR mode. port is the port of the VIP to connect
// to.
func (d *Datapath) DialProbe(ctx context.Context, vip VIPKey, backend BackendKey, port uint16) (net.Conn, error) {
	p, err := d.probes(vip.Address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	known := d.known.vips[vip.String()]
	var place uint16
	if known != nil {
		place = known.members[backend]
	}
	way := d.known.places[place].Interface
	d.mu.Unlock()
	if place == 0 {
		return nil, fault.New(fault.Unavailable, "the backend is not in the kernel's tables yet")
	}
	if way == 0 {
		return nil, fault.New(fault.Unavailable, "no way to the backend: its Ethernet address is not known")
	}
	from, err := p.takePort()
	if err != nil {
		return nil, err
	}
	free := sync.OnceFunc(func() { p.freePort(from) })
	if err := d.objects.ProbePorts.Put(uint32(from), uint32(place)); err != nil {
		free()
		return nil, err
	}
	c, err := p.dial(ctx, from, netip.AddrPortFrom(vip.Address, port))
	if err != nil {
		free()
		return nil, err
	}
	return probeConn{c, free}, nil
}

// dial connects from a port of the namespace. Only creating the socket needs a thread in the
// namespace, waiting does not.
func (p *probeNet) dial(ctx context.Context, from uint16, to netip.AddrPort) (net.Conn, error) {
	var fd int
	err := p.host.Do(func() (err error) {
		fd, err = startConnecting(from, to)
		return err
	})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "health check")
	defer file.Close() // net.FileConn duplicates it
	if deadline, ok := ctx.Deadline(); ok {
		if err := file.SetWriteDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(longAgo) })
	defer stop()
	if err := awaitConnected(file); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return net.FileConn(file)
}
