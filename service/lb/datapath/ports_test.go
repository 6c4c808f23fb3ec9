//go:build linux

package datapath_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

func snat(v *datapath.VIP) { v.SNAT = true }

// exchange opens a connection and ends it from both sides, or by a reset.
func (b *bench) exchange(from netip.AddrPort, reset bool) netip.AddrPort {
	b.t.Helper()
	vip := vipAt(from.Addr().Is6(), 80)
	there := b.sent(tcp(from, vip, syn))
	b.sent(tcp(there.destination, there.source, syn|ack))
	b.sent(tcp(from, vip, ack))
	if reset {
		b.sent(tcp(there.destination, there.source, rst))
		return there.source
	}
	b.sent(tcp(from, vip, fin|ack))
	b.sent(tcp(there.destination, there.source, fin|ack))
	b.sent(tcp(from, vip, ack))
	return there.source
}

func TestPortsOfEndedConnectionsAreUsedAgainAfterASecond(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{false, true} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t, func(o *datapath.Options) { o.Flows = 262144 })
			v := b.vip(datapath.TCP, datapath.NAT, six, six, snat)
			b.apply(v)
			// All the ports there are: they belong to connections that have ended.
			backend := netip.AddrPortFrom(v.Backends[0].Address, 80)
			if err := b.FillPorts(backend, v.Backends[0].Hop.Local, vipAt(six, 80), datapath.Ended); err != nil {
				t.Fatal(err)
			}
			b.exchange(client(six, 1000), reset)
			if n := b.dropped()["ports"]; n != 0 {
				t.Errorf("%d packets were dropped for want of a port", n)
			}
		})
	}
}

func TestPortsOfOpenConnectionsAreNeverGivenAway(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]datapath.Closing{"open": datapath.StillOpen, "half closed": datapath.HalfClosed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(o *datapath.Options) { o.Flows = 262144 })
			v := b.vip(datapath.TCP, datapath.NAT, false, false, snat)
			b.apply(v)
			if err := b.FillPorts(netip.AddrPortFrom(backend4, 80), node4, vipAt(false, 80), how); err != nil {
				t.Fatal(err)
			}
			b.wantDrop("ports", frame(routerMAC, b.Mac(), tcp(client(false, 1000), vipAt(false, 80), syn).bytes()))
			// Another backend has ports of its own.
			v.Backends[0].Address = v.Backends[0].Address.Next()
			b.apply(v)
			b.sent(tcp(client(false, 1000), vipAt(false, 80), syn))
		})
	}
}

func TestAPortIsNotUsedAgainWhileItsConnectionEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.NAT, false, false, snat))
	backend := netip.AddrPortFrom(backend4, 80)
	seen := b.exchange(client(false, 1000), false)
	// The last acknowledgement may be lost: the backend's repeated FIN still finds its client.
	if p := b.sent(tcp(backend, seen, fin|ack)); p.destination != client(false, 1000) {
		t.Errorf("the backend's repeated FIN went to %v", p.destination)
	}
}

func TestSNATSpreadsOverItsSources(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		sources := []netip.Addr{
			netip.MustParseAddr("10.9.0.201"), netip.MustParseAddr("10.9.0.202"), netip.MustParseAddr("fd09::201"),
			netip.MustParseAddr("fd09::202"), netip.MustParseAddr("fd09::203"),
		}
		b := newBench(t, func(o *datapath.Options) { o.Sources = sources })
		b.apply(b.vip(datapath.TCP, datapath.NAT, six, six, snat))
		used := map[netip.Addr]int{}
		for port := range uint16(200) {
			p := b.sent(tcp(client(six, 1000+port), vipAt(six, 80), syn))
			used[p.source.Addr()]++
			if again := b.sent(tcp(client(six, 1000+port), vipAt(six, 80), ack)); again.source != p.source {
				t.Fatalf("a flow has source %v and then %v", p.source, again.source)
			}
			if back := b.sent(tcp(p.destination, p.source, syn|ack)); back.destination != client(six, 1000+port) {
				t.Fatalf("a reply went to %v", back.destination)
			}
			if err := b.ForgetFlows(); err != nil {
				t.Fatal(err)
			}
			if again := b.sent(tcp(client(six, 1000+port), vipAt(six, 80), ack)); again.source != p.source {
				t.Fatalf("a flow that was forgotten has source %v, and had %v", again.source, p.source)
			}
		}
		for _, a := range sources {
			if a.Is6() == six && used[a] < 40 {
				t.Errorf("%v was used %d times of 200: %v", a, used[a], used)
			}
			delete(used, a)
		}
		if len(used) > 0 {
			t.Errorf("other sources were used: %v", used)
		}
	})
}

func TestABackendThatIsItsOwnClientGetsItsAnswer(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		v := b.vip(datapath.TCP, datapath.NAT, six, six, func(v *datapath.VIP) { v.Backends[0].Port = 8080 })
		b.apply(v)
		self := netip.AddrPortFrom(v.Backends[0].Address, 1000)
		p := b.sent(tcp(self, vipAt(six, 80), syn))
		if p.source.Addr() != v.Backends[0].Hop.Local || p.destination != netip.AddrPortFrom(self.Addr(), 8080) {
			t.Fatalf("the backend gets a packet from %v to %v, which seems its own", p.source, p.destination)
		}
		if back := b.sent(tcp(p.destination, p.source, syn|ack)); back.source != vipAt(six, 80) ||
			back.destination != self {
			t.Errorf("the answer goes from %v to %v", back.source, back.destination)
		}
	})
}

// A minute is how long half-closed connections keep their ports.
func TestPortsOfConnectionsThatOneSideClosedAreFreeAfterAMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *datapath.Options) { o.Flows = 262144 })
	b.apply(b.vip(datapath.TCP, datapath.NAT, false, false, snat))
	if err := b.FillPorts(netip.AddrPortFrom(backend4, 80), node4, vipAt(false, 80), datapath.HalfClosed); err != nil {
		t.Fatal(err)
	}
	if err := b.AgeReplies(61 * time.Second); err != nil {
		t.Fatal(err)
	}
	b.sent(tcp(client(false, 1000), vipAt(false, 80), syn))
}
