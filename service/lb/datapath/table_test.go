//go:build linux

package datapath_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

func (b *bench) flows() int {
	b.t.Helper()
	n, err := b.FlowTable()
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) sweep() {
	b.t.Helper()
	if err := b.Sweep(); err != nil {
		b.t.Fatal(err)
	}
}

func TestSegmentsThatEndNothingAreNotRemembered(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.DSR, datapath.NAT} {
		for name, flags := range map[string]uint8{"rst": rst, "fin": fin | ack} {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.apply(b.vip(datapath.TCP, mode, false, false))
				b.sent(tcp(client(false, 1), vipAt(false, 80), syn))
				for port := range uint16(500) {
					segment := tcp(client(false, 1000+port), vipAt(false, 80), flags)
					if mode == datapath.NAT {
						b.wantDrop("stray", frame(routerMAC, b.Mac(), segment.bytes()))
					} else {
						b.sent(segment) // the hash knows whose it is
					}
				}
				if n := b.flows(); n != 1 {
					t.Errorf("%d flows, want the one that a SYN began", n)
				}
			})
		}
	}
}

func TestSegmentsWithoutASYNAreAdoptedAtABoundedRate(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.DSR, datapath.NAT} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.apply(b.vip(datapath.TCP, mode, false, false))
			began := time.Now()
			const sent = 20000
			for port := range uint16(sent) {
				verdict, _ := b.run(tcp(client(false, 1000+port), vipAt(false, 80), ack, 'x'))
				if mode == datapath.DSR && verdict != datapath.TX {
					t.Fatalf("verdict %d: what is not remembered must still be forwarded", verdict)
				}
			}
			// The seconds that it began and ended in count, and one that the kernel's coarse clock may have
			// been behind: it continues with ticks, which a busy host delays.
			seconds := int(time.Since(began)/time.Second) + 3
			if n := b.flows(); n == 0 || n > min(1000*seconds, sent-1) {
				t.Errorf("%d of %d were adopted in %d s, want at most 1000 a second", n, sent, seconds)
			}
		})
	}
}

func TestAKnownReplyBringsAForgottenFlowBack(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		b.apply(b.vip(datapath.TCP, datapath.NAT, six, six, func(v *datapath.VIP) { v.SNAT = true }))
		seen := b.sent(tcp(client(six, 1000), vipAt(six, 80), syn)).source
		if err := b.ForgetFlows(); err != nil {
			t.Fatal(err)
		}
		for _, flags := range []uint8{ack, fin | ack} { // also one that ends it
			if p := b.sent(tcp(client(six, 1000), vipAt(six, 80), flags)); p.source != seen {
				t.Errorf("the backend sees %v, and saw %v before", p.source, seen)
			}
		}
	})
}

func TestOneVIPLeavesRoomToOthers(t *testing.T) {
	t.Parallel()
	const flows = 16384
	for _, mode := range []datapath.Mode{datapath.DSR, datapath.NAT} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(o *datapath.Options) { o.Flows = flows })
			attacked := b.vip(datapath.UDP, mode, false, false)
			quiet := b.vip(datapath.TCP, datapath.DSR, false, false, func(v *datapath.VIP) {
				v.Port, v.LastPort = 443, 443
				second := v.Backends[0]
				second.Address = second.Address.Next()
				v.Backends = append(v.Backends, second)
			})
			b.apply(attacked, quiet)
			b.sweep()
			const idle = 1000
			for port := range uint16(idle) {
				b.sent(tcp(client(false, 1000+port), vipAt(false, 443), syn))
				b.sent(tcp(client(false, 1000+port), vipAt(false, 443), ack))
			}
			dropped := 0
			for i := range 3 * flows {
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 4000)
				if verdict, _ := b.run(udp(from, vipAt(false, 80), 'x')); verdict == datapath.Drop {
					dropped++
				}
			}
			for port := range uint16(idle) {
				e, err := b.Explain(
					datapath.Flow{Protocol: datapath.TCP, Client: client(false, 1000+port), VIP: vipAt(false, 443)},
				)
				if err != nil {
					t.Fatal(err)
				}
				if e.Reason != datapath.ByFlow {
					t.Fatalf("flow %d of another VIP was evicted: %+v", port, e)
				}
			}
			if mode == datapath.DSR && dropped > 0 {
				t.Errorf("%d packets were dropped, though the hash says where they go", dropped)
			}
			if quota := b.dropped()["flow_quota"]; mode == datapath.NAT && (quota == 0 || int(quota) != dropped) {
				t.Errorf("%d packets were dropped, and %d counted: %v", dropped, quota, b.dropped())
			}
			// What the attack left goes, and there is room again.
			if err := b.AgeFlows(31 * time.Second); err != nil {
				t.Fatal(err)
			}
			b.sweep()
			b.sent(udp(client(false, 9), vipAt(false, 80), 'x'))
			if e, err := b.Explain(
				datapath.Flow{Protocol: datapath.UDP, Client: client(false, 9), VIP: vipAt(false, 80)},
			); err != nil ||
				e.Reason != datapath.ByFlow {
				t.Errorf("after the attack: %+v, %v", e, err)
			}
		})
	}
}

func TestAVIPNearItsQuotaLosesTheFlowsOfItsOwnThatMatterLeast(t *testing.T) {
	t.Parallel()
	const flows, quota, established, begun = 8192, 4096, 3000, 1000
	b := newBench(t, func(o *datapath.Options) { o.Flows = flows })
	b.apply(
		b.vip(datapath.TCP, datapath.DSR, false, false),
		b.vip(datapath.TCP, datapath.DSR, false, false, func(v *datapath.VIP) { v.Port, v.LastPort = 81, 81 }),
	)
	b.sweep()
	for port := range uint16(established) {
		b.sent(tcp(client(false, 1000+port), vipAt(false, 80), syn))
		b.sent(tcp(client(false, 1000+port), vipAt(false, 80), ack))
	}
	if err := b.AgeFlows(20 * time.Second); err != nil { // they idle, and yet matter more than those that follow
		t.Fatal(err)
	}
	for port := range uint16(begun) {
		b.sent(tcp(client(false, 20000+port), vipAt(false, 80), syn))
	}
	if !b.IsTight() {
		t.Fatal("nobody hurries")
	}
	b.sweep()
	if b.IsTight() {
		t.Error("there is no room yet")
	}
	left := b.flows() - established
	if want := quota - quota/4 - established; left != want {
		t.Errorf("%d of the flows that only began are left, want %d: no more go than must", left, want)
	}
	for port := range uint16(established) {
		e, err := b.Explain(
			datapath.Flow{Protocol: datapath.TCP, Client: client(false, 1000+port), VIP: vipAt(false, 80)},
		)
		if err != nil || e.Reason != datapath.ByFlow {
			t.Fatalf("connection %d was forgotten: %+v, %v", port, e, err)
		}
	}
	if c, err := b.Counters(); err != nil || c.Evictions != established+begun-uint64(b.flows()) {
		t.Errorf("%d evictions are counted: %v", c.Evictions, err)
	}
}

func TestFlowsThatWereNeverAnsweredGoSoon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.DSR, false, false))
	b.sent(tcp(client(false, 1), vipAt(false, 80), syn))
	b.sent(tcp(client(false, 2), vipAt(false, 80), syn))
	b.sent(tcp(client(false, 2), vipAt(false, 80), ack))
	if err := b.AgeFlows(31 * time.Second); err != nil {
		t.Fatal(err)
	}
	b.sweep()
	for port, want := range map[uint16]datapath.Reason{1: datapath.ByHash, 2: datapath.ByFlow} {
		e, err := b.Explain(datapath.Flow{Protocol: datapath.TCP, Client: client(false, port), VIP: vipAt(false, 80)})
		if err != nil || e.Reason != want {
			t.Errorf("client port %d: %s, %v; want %s", port, e.Reason, err, want)
		}
	}
}

func TestRepliesThatLostTheirFlowAreCounted(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		v := b.vip(datapath.TCP, datapath.NAT, six, six, func(v *datapath.VIP) { v.Backends[0].Port = 8080 })
		b.apply(v)
		backend := netip.AddrPortFrom(v.Backends[0].Address, 8080)
		for _, p := range []ip{
			tcp(backend, client(six, 5), ack, 'x'),                           // counted
			tcp(backend, client(six, 5), syn),                                // a connection of its own
			tcp(netip.AddrPortFrom(backend.Addr(), 22), client(six, 5), ack), // another service
			udp(backend, client(six, 5), 'x'),                                // another protocol
		} {
			if verdict, _ := b.run(p); verdict != datapath.Pass {
				t.Errorf("verdict %d, want it left to the kernel", verdict)
			}
		}
		c, err := b.Counters()
		if err != nil || c.LostReplies != 1 {
			t.Errorf("%d were counted (%v), want 1", c.LostReplies, err)
		}
		b.apply()
		b.run(tcp(backend, client(six, 5), ack, 'x'))
		if c, err := b.Counters(); err != nil || c.LostReplies != 1 {
			t.Errorf("%d were counted (%v) after the VIP was gone, want still 1", c.LostReplies, err)
		}
	})
}
