//go:build linux

package datapath_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

const inside = "eth1"

// newTwoArmed is a network whose node has an arm to the client and one to the backends, which reply
// by the node.
func newTwoArmed(t *testing.T) *network {
	t.Helper()
	lab := netlabtest.New(t)
	n := &network{t: t, log: discard, dir: "/sys/fs/bpf"}
	outer, err := lab.Switch("switch")
	n.must(err)
	inner, err := lab.Switch("inside")
	n.must(err)
	n.sw = outer
	host := func(sw *netlab.Host, name string, a4, a6 netip.Addr) *netlab.Host {
		h, err := lab.Host(name)
		n.must(err)
		n.must(netlab.Plug(sw, h, device, netip.PrefixFrom(a4, 24), netip.PrefixFrom(a6, 64)))
		n.must(h.TX(device, false))
		return h
	}
	n.client, n.node = host(outer, "client", client4, client6), host(outer, "node", node4, node6)
	inside4, inside6 := netip.MustParseAddr("10.8.0.254"), netip.MustParseAddr("fd08::fe")
	n.must(netlab.Plug(inner, n.node, inside, netip.PrefixFrom(inside4, 24), netip.PrefixFrom(inside6, 64)))
	n.must(n.node.TX(inside, false))
	for _, sw := range []*netlab.Host{outer, inner} { // ports take frames that native programs redirect
		n.must(sw.GRO("p-node", true))
		n.must(sw.TX("p-node", false))
	}
	n.must(n.client.Route(netip.PrefixFrom(vip4, 32), node4))
	n.must(n.client.Route(netip.PrefixFrom(vip6, 128), node6))
	n.must(n.node.Sysctl("net/ipv4/ip_forward", "1"))
	n.must(n.node.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	for i := range 2 {
		b := &backendHost{
			address4: netip.AddrFrom4([4]byte{10, 8, 0, byte(11 + i)}),
			address6: netip.MustParseAddr(fmt.Sprintf("fd08::1%d", 1+i)),
		}
		b.Host = host(inner, fmt.Sprintf("b%d", 1+i), b.address4, b.address6)
		n.must(b.Route(netip.PrefixFrom(client4, 24).Masked(), inside4))
		n.must(b.Route(netip.PrefixFrom(client6, 64).Masked(), inside6))
		if b.mac, err = b.MAC(device); err != nil {
			t.Fatal(err)
		}
		n.backends = append(n.backends, b)
	}
	return n
}

// insideHop is the way from the node to a backend.
func (n *network) insideHop(b *backendHost, six bool) datapath.NextHop {
	n.t.Helper()
	h := datapath.NextHop{Device: inside, MTU: 1500, Destination: b.mac, Local: netip.MustParseAddr("10.8.0.254")}
	if six {
		h.Local = netip.MustParseAddr("fd08::fe")
	}
	n.must(n.node.Do(func() error {
		i, err := net.InterfaceByName(inside)
		if err != nil {
			return err
		}
		h.Interface, h.Source = i.Index, datapath.MAC(i.HardwareAddr)
		return nil
	}))
	return h
}

func TestBackendsBehindAnotherInterfaceAreServed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{datapath.Generic, datapath.Native, datapath.Auto} {
		for _, snat := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,snat=%v", mode, snat), func(t *testing.T) {
				t.Parallel()
				n := newTwoArmed(t)
				n.listenInside(80)
				both := func(o *datapath.Options) { o.Mode, o.More = mode, []string{inside} }
				d := n.open(both)
				var vips []datapath.VIP
				for _, six := range []bool{false, true} {
					v := n.vip(datapath.TCP, datapath.NAT, 80, six, six)
					v.SNAT = snat
					for i := range v.Backends {
						v.Backends[i].Hop = n.insideHop(n.backends[i], six)
					}
					vips = append(vips, v)
				}
				n.must(d.Apply(vips))
				var open []net.Conn
				talk := func(c net.Conn) {
					if _, err := ask(c, 1<<20, 1<<20); err != nil {
						counters, _ := d.Counters()
						t.Fatalf("%v; drops %v", err, counters.Drops)
					}
				}
				for _, six := range []bool{false, true} {
					for range 4 {
						c, err := n.dial(datapath.TCP, vipAt(six, 80))
						n.must(err)
						talk(c)
						open = append(open, c)
					}
				}
				n.must(d.Close())
				d = n.open(both)
				for _, c := range open {
					talk(c)
				}
			})
		}
	}
}

// listenInside makes every backend answer on a port of its own addresses.
func (n *network) listenInside(port uint16) {
	n.t.Helper()
	for _, b := range n.backends {
		n.must(b.Do(func() error {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			n.t.Cleanup(func() { _ = l.Close() })
			go serveTCP(l, b.Name)
			return nil
		}))
	}
}

func TestAnInterfaceThatIsNoLongerNamedIsLetGo(t *testing.T) {
	t.Parallel()
	n := newTwoArmed(t)
	attached := func(name string) bool {
		l, err := n.node.Netlink().LinkByName(name)
		n.must(err)
		return l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
	}
	d := n.open(func(o *datapath.Options) { o.More = []string{inside} })
	if !attached(device) || !attached(inside) {
		t.Fatal("not attached to both")
	}
	n.must(d.Close())
	d = n.open()
	if !attached(device) || attached(inside) {
		t.Errorf("attached to %s: %v, to %s: %v", device, attached(device), inside, attached(inside))
	}
	n.must(d.Close())
	n.must(n.open(func(o *datapath.Options) { o.More = []string{inside} }).Close())
	n.must(n.node.Do(func() error { _, err := datapath.Detach(n.dir, device); return err }))
	if attached(device) || attached(inside) {
		t.Error("still attached after detaching")
	}
}

func TestTheErrorOfABusyInterfaceSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	n := newTwoArmed(t)
	n.open(func(o *datapath.Options) { o.More = []string{inside} })
	err := n.node.Do(func() error {
		_, err := datapath.Open(
			t.Context(), datapath.Options{Interface: inside, Mode: datapath.Generic, Dir: n.dir, Log: discard},
		)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "first interface is "+device) {
		t.Errorf("got %v", err)
	}
	n.must(n.node.Do(func() error { _, err := datapath.Detach(n.dir, inside); return err }))
}

func TestRepliesTooBigForTheClientsSideAreAnswered(t *testing.T) {
	t.Parallel()
	n := newTwoArmed(t)
	n.listenInside(80)
	n.must(n.node.SetMTU(device, 1300)) // the client's side takes less than the backends' side
	d := n.open(func(o *datapath.Options) { o.More = []string{inside} })
	for _, six := range []bool{false, true} {
		v := n.vip(datapath.TCP, datapath.NAT, 80, six, six)
		for i := range v.Backends {
			v.Backends[i].Hop = n.insideHop(n.backends[i], six)
		}
		n.must(d.Apply([]datapath.VIP{v}))
		c, err := n.dial(datapath.TCP, vipAt(six, 80))
		n.must(err)
		if _, err := ask(c, 10, 1<<20); err != nil {
			t.Errorf("ipv6=%v: %v", six, err)
		}
	}
	counters, err := d.Counters()
	n.must(err)
	if counters.Drops["too_big"] == 0 {
		t.Error("nothing was too big")
	}
}
