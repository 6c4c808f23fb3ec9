//go:build linux

package datapath_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// newAddressedBench is a bench whose node has addresses.
func newAddressedBench(t *testing.T) (*bench, *netlab.Host) {
	t.Helper()
	lab := netlabtest.New(t)
	n := &network{t: t, log: discard, dir: "/sys/fs/bpf"}
	var err error
	n.node, err = lab.Host("node")
	n.must(err)
	peer, err := lab.Host("peer")
	n.must(err)
	n.must(netlab.Join(n.node, device, peer, device))
	n.must(n.node.Address(device, netip.PrefixFrom(node4, 24), netip.PrefixFrom(node6, 64)))
	return &bench{t, n.open()}, n.node
}

func own(six bool) netip.Addr {
	if six {
		return node6
	}
	return node4
}

func TestNoFlowBeginsAtAnAddressThatNoClientCanHave(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR, datapath.DSRIPIP} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			families(t, func(t *testing.T, six bool) {
				b, _ := newAddressedBench(t)
				b.apply(b.vip(datapath.TCP, mode, six, six))
				sources := []string{
					node4.String(), vip4.String(), "0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.1.1",
					"240.0.0.1", "255.255.255.255",
				}
				clients := []string{"1.0.0.1", "126.0.0.1", "128.0.0.1", "223.255.255.255"}
				if six {
					sources = []string{node6.String(), vip6.String(), "::", "::1", "ff00::", "ff02::1"}
					clients = []string{"::2", "fe80::1", "2001:db8::1", "fdff::ff"}
				}
				for _, source := range sources {
					from := netip.AddrPortFrom(netip.MustParseAddr(source), 40000)
					for _, flags := range []uint8{syn, ack} {
						b.wantDrop("source", frame(routerMAC, b.Mac(), tcp(from, vipAt(six, 80), flags).bytes()))
					}
				}
				if n := b.flows(); n != 0 {
					t.Errorf("%d flows were made", n)
				}
				for _, source := range clients {
					b.sent(tcp(netip.AddrPortFrom(netip.MustParseAddr(source), 40000), vipAt(six, 80), syn))
				}
			})
		})
	}
}

func TestANewAddressOfTheNodeBeginsNoFlowsAndALostOneDoes(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b, node := newAddressedBench(t)
		b.apply(b.vip(datapath.TCP, datapath.NAT, six, six))
		added := own(six).Next()
		packet := func(port uint16) ip { return tcp(netip.AddrPortFrom(added, port), vipAt(six, 80), syn) }
		b.sent(packet(1))
		if err := node.Address("lo", netip.PrefixFrom(added, added.BitLen())); err != nil {
			t.Fatal(err)
		}
		follow := func() {
			t.Helper()
			if err := b.Follow(); err != nil {
				t.Fatal(err)
			}
		}
		follow()
		b.wantDrop("source", frame(routerMAC, b.Mac(), packet(2).bytes()))
		removed, err := netlink.ParseAddr(netip.PrefixFrom(added, added.BitLen()).String())
		if err != nil {
			t.Fatal(err)
		}
		lo, err := node.Netlink().LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Netlink().AddrDel(lo, removed); err != nil {
			t.Fatal(err)
		}
		follow()
		b.sent(packet(3))
	})
}

func TestForgedSegmentsDoNotTakeTheNodesOwnConnections(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.listen(datapath.TCP, 80)
	d := n.open()
	n.must(d.Apply([]datapath.VIP{n.vip(datapath.TCP, datapath.NAT, 80, false, false)}))
	forge := &bench{t, d}
	const port = 40000
	verdict, _ := forge.run(tcp(netip.AddrPortFrom(node4, port), netip.AddrPortFrom(vip4, 80), syn))
	if verdict != datapath.Drop {
		t.Errorf("a segment from the node's own address had verdict %d", verdict)
	}
	n.must(n.node.Do(func() error {
		dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: node4.AsSlice(), Port: port}}
		c, err := dialer.DialContext(t.Context(), "tcp", netip.AddrPortFrom(n.backends[0].address4, 80).String())
		if err != nil {
			return err
		}
		_, err = ask(c, 10, 10)
		return errors.Join(err, c.Close())
	}))
	if c, err := d.Counters(); err != nil || c.LostReplies != 0 {
		t.Errorf("the node's own connection counts as %d lost replies: %v", c.LostReplies, err)
	}
}

func TestTheNodesOwnConnectionsAreNoLostReplies(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b, _ := newAddressedBench(t)
		v := b.vip(datapath.TCP, datapath.NAT, six, six)
		b.apply(v)
		backend := netip.AddrPortFrom(v.Backends[0].Address, 80)
		for port, want := range map[uint16]uint64{
			40000: 0, // of a socket
			2000:  1, // of SNAT
		} {
			before, err := b.Counters()
			if err != nil {
				t.Fatal(err)
			}
			b.run(tcp(backend, netip.AddrPortFrom(own(six), port), ack, 'x'))
			after, err := b.Counters()
			if n := after.LostReplies - before.LostReplies; err != nil || n != want {
				t.Errorf("port %d of the node: %d lost replies, want %d: %v", port, n, want, err)
			}
		}
	})
}
