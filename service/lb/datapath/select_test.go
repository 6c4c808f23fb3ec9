//go:build linux

package datapath_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// several gives a VIP n backends, told apart by the last byte of their MAC.
func several(n int) func(*datapath.VIP) {
	return func(v *datapath.VIP) {
		one := v.Backends[0]
		v.Backends = nil
		for i := range n {
			next := one
			for range i {
				next.Address = next.Address.Next()
			}
			next.Hop.Destination = datapath.MAC{2, 0, 0, 0, 2, byte(i)}
			v.Backends = append(v.Backends, next)
		}
	}
}

// at is which backend got a packet.
func (b *bench) at(packet ip) int {
	b.t.Helper()
	return int(b.sent(packet).to[5])
}

func (b *bench) explain(p datapath.Protocol, from, to netip.AddrPort) datapath.Explanation {
	b.t.Helper()
	e, err := b.Explain(datapath.Flow{Protocol: p, Client: from, VIP: to})
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func TestExplainTellsWhatTheProgramDoes(t *testing.T) {
	t.Parallel()
	for _, affinity := range []bool{false, true} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t)
			v := b.vip(
				datapath.TCP, datapath.DSR, six, six, several(5), func(v *datapath.VIP) { v.ClientAffinity = affinity },
			)
			b.apply(v)
			from := client(six, 1)
			for i := range uint16(200) {
				from = netip.AddrPortFrom(from.Addr().Next(), 1000+i)
				before := b.explain(datapath.TCP, from, vipAt(six, 80))
				if before.Reason != datapath.ByHash || before.VIP != v.VIPKey {
					t.Fatalf("%+v", before)
				}
				if got := v.Backends[b.at(tcp(from, vipAt(six, 80), syn))].BackendKey; got != before.Backend {
					t.Fatalf("%v went to %v, and was to go to %v", from, got, before.Backend)
				}
				if after := b.explain(datapath.TCP, from, vipAt(six, 80)); after.Reason != datapath.ByFlow ||
					after.Backend != before.Backend {
					t.Fatalf("afterwards %+v", after)
				}
				other := b.explain(datapath.TCP, netip.AddrPortFrom(from.Addr(), 9), vipAt(six, 80))
				if affinity && (other.Reason != datapath.ByAffinity || other.Backend != before.Backend) {
					t.Fatalf("another port of the client: %+v", other)
				}
			}
			v.Backends = nil
			b.apply(v)
			if e := b.explain(datapath.TCP, from, vipAt(six, 80)); e.Reason != datapath.NoBackend {
				t.Errorf("without backends: %+v", e)
			}
			if e := b.explain(datapath.UDP, from, vipAt(six, 80)); e.Reason != datapath.NoVIP {
				t.Errorf("another protocol: %+v", e)
			}
		})
	}
}

func TestFlowsAreSharedByWeight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := b.vip(datapath.TCP, datapath.DSR, false, false, several(3), func(v *datapath.VIP) {
		v.Backends[1].Weight, v.Backends[2].Weight = 2, 5
	})
	b.apply(v)
	var got [3]int
	const flows = 8000
	for i := range uint16(flows) {
		got[b.at(tcp(client(false, 1000+i), vipAt(false, 80), syn))]++
	}
	for i, weight := range []int{1, 2, 5} {
		if want := flows * weight / 8; got[i] < want*85/100 || got[i] > want*115/100 {
			t.Errorf("backend %d got %d flows, want about %d", i, got[i], want)
		}
	}
}

func TestDrainKeepsFlowsAndDownDropsThem(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		v := b.vip(datapath.TCP, datapath.DSR, six, six, several(2))
		b.apply(v)
		from := client(six, 1000)
		home := b.at(tcp(from, vipAt(six, 80), syn))
		v.Backends[home].State = datapath.Draining
		b.apply(v)
		if got := b.at(tcp(from, vipAt(six, 80), ack)); got != home {
			t.Errorf("a flow of a draining backend went to %d", got)
		}
		for i := range uint16(50) {
			if got := b.at(tcp(client(six, 2000+i), vipAt(six, 80), syn)); got == home {
				t.Fatal("a new flow went to a draining backend")
			}
		}
		// The last active backend goes too: the drained one still keeps its flow.
		v.Backends[1-home].State = datapath.Down
		b.apply(v)
		if got := b.at(tcp(from, vipAt(six, 80), ack)); got != home {
			t.Errorf("with no active backend, the flow went to %d", got)
		}
		b.wantDrop("no_backend", frame(routerMAC, b.Mac(), tcp(client(six, 3000), vipAt(six, 80), syn).bytes()))
		v.Backends[0].State, v.Backends[1].State = datapath.Healthy, datapath.Healthy
		v.Backends[home].State = datapath.Down
		b.apply(v)
		if got := b.at(tcp(from, vipAt(six, 80), ack)); got == home {
			t.Error("a flow stayed at a backend that is down")
		}
		v.Backends[home].State = datapath.Healthy
		b.apply(v)
		if got := b.at(tcp(from, vipAt(six, 80), ack)); got == home {
			t.Error("a flow went back to a backend that was down meanwhile")
		}
		if got := b.at(tcp(from, vipAt(six, 80), syn)); got != home {
			t.Error("a SYN was not hashed anew")
		}
	})
}

func TestChangesDisturbNoOtherFlow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := b.vip(datapath.TCP, datapath.DSR, false, false, several(4))
	b.apply(v)
	home := map[uint16]int{}
	for port := uint16(1000); port < 1200; port++ {
		home[port] = b.at(tcp(client(false, port), vipAt(false, 80), syn))
	}
	check := func(what string, gone int) {
		t.Helper()
		for port, want := range home {
			if got := b.at(tcp(client(false, port), vipAt(false, 80), ack)); want != gone && got != want {
				t.Errorf("%s: the flow of port %d went from backend %d to %d", what, port, want, got)
			}
		}
	}
	fifth := b.vip(datapath.TCP, datapath.DSR, false, false, several(5))
	b.apply(fifth)
	check("a backend was added", -1)
	fifth.Backends[0].Weight = 100
	b.apply(fifth)
	check("a weight changed", -1)
	b.apply(fifth, b.vip(datapath.UDP, datapath.DSR, false, false), b.vip(datapath.TCP, datapath.NAT, true, true))
	check("VIPs were added", -1)
	b.apply(fifth)
	check("VIPs were removed", -1)
	fourth := fifth
	fourth.Backends = append(append([]datapath.Backend{}, fifth.Backends[:2]...), fifth.Backends[3:]...)
	b.apply(fourth)
	check("a backend was removed", 2)
}

func TestAffinityKeepsAClientAtItsBackend(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		v := b.vip(datapath.UDP, datapath.DSR, six, six, several(3), func(v *datapath.VIP) { v.ClientAffinity = true })
		b.apply(v)
		home := b.at(udp(client(six, 1), vipAt(six, 80)))
		for port := range uint16(50) {
			if got := b.at(udp(client(six, 2+port), vipAt(six, 80))); got != home {
				t.Fatalf("port %d went to %d, not %d", 2+port, got, home)
			}
		}
		more := b.vip(
			datapath.UDP, datapath.DSR, six, six, several(20), func(v *datapath.VIP) { v.ClientAffinity = true },
		)
		b.apply(more)
		if got := b.at(udp(client(six, 1000), vipAt(six, 80))); got != home {
			t.Errorf("with more backends, a new flow went to %d, not %d", got, home)
		}
		more.Backends[home].State = datapath.Draining
		b.apply(more)
		if got := b.at(udp(client(six, 1001), vipAt(six, 80))); got == home {
			t.Error("a new flow went to the client's draining backend")
		}
	})
}

func TestRangesOfPortsLeadToOneVIP(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		ranged := b.vip(datapath.TCP, datapath.NAT, six, six, func(v *datapath.VIP) {
			v.Port, v.LastPort, v.Backends[0].Port = 30001, 32766, 0
		})
		exact := b.vip(
			datapath.TCP, datapath.DSR, six, six, func(v *datapath.VIP) { v.Port, v.LastPort = 31000, 31000 },
		)
		b.apply(ranged, exact)
		for _, port := range []uint16{30001, 30002, 31111, 32766} {
			if p := b.sent(tcp(client(six, 1), vipAt(six, port), syn)); p.destination != netip.AddrPortFrom(
				ranged.Backends[0].Address, port,
			) {
				t.Errorf("port %d led to %v", port, p.destination)
			}
		}
		if p := b.sent(tcp(client(six, 1), vipAt(six, 31000), syn)); p.destination != vipAt(six, 31000) {
			t.Errorf("the VIP of exactly that port was not taken: %v", p.destination)
		}
		for _, port := range []uint16{30000, 32767, 80} {
			if verdict, _ := b.run(tcp(client(six, 1), vipAt(six, port), syn)); verdict != datapath.Pass {
				t.Errorf("port %d had verdict %d", port, verdict)
			}
		}
		// A range that grows and shrinks keeps the flows of the ports that stay.
		flow := b.sent(tcp(client(six, 5), vipAt(six, 31111), syn))
		for _, last := range []uint16{40000, 31200} {
			ranged.LastPort = last
			b.apply(ranged, exact)
			if p := b.sent(tcp(client(six, 5), vipAt(six, 31111), ack)); p.source != flow.source ||
				p.destination != flow.destination {
				t.Errorf("with last port %d, the flow went from %v to %v", last, p.source, p.destination)
			}
		}
		if verdict, _ := b.run(tcp(client(six, 1), vipAt(six, 31201), syn)); verdict != datapath.Pass {
			t.Errorf("a port that the range lost had verdict %d", verdict)
		}
		next := ranged
		next.Port, next.LastPort = 31201, 40000
		b.apply(ranged, next, exact)
		b.sent(tcp(client(six, 1), vipAt(six, 31201), syn))
		b.apply()
		if verdict, _ := b.run(tcp(client(six, 1), vipAt(six, 31111), syn)); verdict != datapath.Pass {
			t.Errorf("without VIPs: verdict %d", verdict)
		}
	})
}

func TestBlocksAreExactlyTheRange(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]uint16{{1, 65535}, {0, 65535}, {80, 80}, {1, 2}, {30000, 32767}, {65535, 65535}, {1, 65534}, {32768, 65535}} {
		next := int(r[0])
		blocks := datapath.Blocks(r[0], r[1])
		for _, b := range blocks {
			if int(b.First) != next || next%(1<<b.Bits) != 0 {
				t.Fatalf("%v: block %+v at %d", r, b, next)
			}
			next = int(b.Last()) + 1
		}
		if next != int(r[1])+1 || len(blocks) > 30 {
			t.Errorf("%v: %d blocks up to %d", r, len(blocks), next-1)
		}
	}
}

func TestUDPFlowsAreForgottenAfterHalfAMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := b.vip(datapath.UDP, datapath.DSR, false, false, several(2))
	b.apply(v)
	flow := datapath.Flow{Protocol: datapath.UDP, Client: client(false, 1), VIP: vipAt(false, 80)}
	home := b.at(udp(flow.Client, flow.VIP))
	v.Backends[home].State = datapath.Draining
	b.apply(v)
	// Another CPU may have seen the flow a moment after this one looked at its clock.
	for _, idle := range []time.Duration{-time.Second, 29 * time.Second, 31 * time.Second} {
		if got := b.at(udp(flow.Client, flow.VIP)); got != home {
			t.Fatalf("the flow went to %d", got)
		}
		if err := b.AgeFlow(flow, idle); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.at(udp(flow.Client, flow.VIP)); got == home {
		t.Error("the flow is still known after 31 s")
	}
}

func TestSweepDeletesWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.UDP, datapath.NAT, false, false), b.vip(datapath.TCP, datapath.NAT, false, false))
	old := datapath.Flow{Protocol: datapath.UDP, Client: client(false, 1), VIP: vipAt(false, 80)}
	b.sent(udp(old.Client, old.VIP))
	b.sent(udp(client(false, 2), vipAt(false, 80)))
	closed := datapath.Flow{Protocol: datapath.TCP, Client: client(false, 3), VIP: vipAt(false, 80)}
	b.sent(tcp(closed.Client, closed.VIP, syn))
	b.sent(tcp(closed.Client, closed.VIP, fin|ack))
	b.sent(tcp(client(false, 4), vipAt(false, 80), syn))
	if err := b.Sweep(); err != nil { // Open's first may have been at any moment
		t.Fatal(err)
	}
	b.sent(tcp(client(false, 5), vipAt(false, 80), syn))
	if c, err := b.Counters(); err != nil || c.Flows != 5 {
		t.Errorf("%d flows with the one that came since they were counted, want 5: %v", c.Flows, err)
	}
	seenLater := datapath.Flow{Protocol: datapath.UDP, Client: client(false, 2), VIP: vipAt(false, 80)}
	for f, age := range map[datapath.Flow]time.Duration{seenLater: -time.Second, old: 31 * time.Second, closed: 61 * time.Second} {
		if err := b.AgeFlow(f, age); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c.Flows != 3 || c.Evictions != 0 {
		t.Errorf("%d flows and %d evictions, want 3 and 0", c.Flows, c.Evictions)
	}
}

func TestAFullTableForgetsFlowsAndServesThemByTheHash(t *testing.T) {
	t.Parallel()
	const room = 1024
	b := newBench(t, func(o *datapath.Options) { o.Flows = room })
	b.apply(b.vip(datapath.TCP, datapath.DSR, false, false, several(3)))
	if err := b.Sweep(); err != nil { // what was lost before the first one does not count
		t.Fatal(err)
	}
	home := map[uint16]int{}
	for port := uint16(1000); port < 1000+8*room; port++ {
		home[port] = b.at(tcp(client(false, port), vipAt(false, 80), syn))
	}
	for port, want := range home {
		if got := b.at(tcp(client(false, port), vipAt(false, 80), ack)); got != want {
			t.Fatalf("the flow of port %d went from %d to %d", port, want, got)
		}
	}
	n, err := b.FlowTable()
	if err != nil || n > room {
		t.Errorf("%d flows: %v", n, err)
	}
	if err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	if c, err := b.Counters(); err != nil || c.Evictions < 7*room {
		t.Errorf("%d evictions: %v", c.Evictions, err)
	}
}

func TestPortsOfFlowsThatEndedAreGivenToOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one := b.vip(datapath.UDP, datapath.NAT, false, false)
	two := b.vip(datapath.UDP, datapath.NAT, false, false, func(v *datapath.VIP) { v.Port, v.LastPort = 81, 81 })
	b.apply(one, two)
	first := b.sent(udp(client(false, 1000), vipAt(false, 80)))
	// Another CPU may have seen the reply a moment after the clock was looked at.
	if err := errors.Join(
		b.AgeReply(datapath.UDP, first.destination, first.source, -time.Second), b.Sweep(),
	); err != nil {
		t.Fatal(err)
	}
	if back := b.sent(udp(first.destination, first.source)); back.source != vipAt(false, 80) {
		t.Errorf("a reply in use comes from %v", back.source)
	}
	if err := b.AgeReply(datapath.UDP, first.destination, first.source, 31*time.Second); err != nil {
		t.Fatal(err)
	}
	if p := b.sent(udp(client(false, 1000), vipAt(false, 81))); p.source != client(false, 1000) {
		t.Errorf("the port of a flow that ended was not given: %v", p.source)
	}
	if back := b.sent(udp(first.destination, first.source)); back.source != vipAt(false, 81) {
		t.Errorf("its reply comes from %v", back.source)
	}
}

func TestNewSourcePortsAreGivenOnceEachUntilThereAreNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.UDP, datapath.NAT, false, false, func(v *datapath.VIP) { v.SNAT = true }))
	given := map[uint16]bool{}
	address := client4
	for b.dropped()["ports"] == 0 {
		for range 500 {
			address = address.Next()
			verdict, out := b.run(udp(netip.AddrPortFrom(address, 1000), vipAt(false, 80)))
			if verdict == datapath.Drop {
				continue
			}
			p, err := parse(out)
			if err != nil {
				t.Fatal(err)
			}
			if given[p.source.Port()] {
				t.Fatalf("port %d was given twice", p.source.Port())
			}
			given[p.source.Port()] = true
		}
	}
	if len(given) < 10_000 {
		t.Errorf("only %d ports were found", len(given))
	}
}
