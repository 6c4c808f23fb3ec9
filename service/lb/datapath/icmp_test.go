//go:build linux

package datapath_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

var (
	hop4, hop6 = netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1") // a router on the way
)

func hopAddress(six bool) netip.Addr {
	if six {
		return hop6
	}
	return hop4
}

// tooBig is what a router says of a packet that does not fit.
func tooBig(to netip.Addr, about ip) ip {
	quote := about.bytes()
	if to.Is4() {
		return icmp(hop4, to, 3, 4, 1400, quote[:28])
	}
	return icmp(hop6, to, 2, 0, 1400, quote)
}

// quoted is the packet that an ICMP error is about.
func quoted(t *testing.T, p *parsed) (source, destination netip.AddrPort) {
	t.Helper()
	q := p.payload[8:]
	if p.source.Addr().Is4() {
		if s := sum(q[:20]); s != 0xffff {
			t.Errorf("the quoted header sums up to %04x", s)
		}
		return netip.AddrPortFrom(
			netip.AddrFrom4([4]byte(q[12:])), binary.BigEndian.Uint16(q[20:]),
		), netip.AddrPortFrom(netip.AddrFrom4([4]byte(q[16:])), binary.BigEndian.Uint16(q[22:]))
	}
	return netip.AddrPortFrom(
		netip.AddrFrom16([16]byte(q[8:])), binary.BigEndian.Uint16(q[40:]),
	), netip.AddrPortFrom(netip.AddrFrom16([16]byte(q[24:])), binary.BigEndian.Uint16(q[42:]))
}

func TestAnErrorAboutABackendsPacketReachesTheBackendOfTheFlow(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR, datapath.DSRGRE} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t)
			v := b.vip(datapath.TCP, mode, six, six, func(v *datapath.VIP) {
				if v.Mode == datapath.NAT {
					v.Backends[0].Port = 8080
				}
				second := v.Backends[0]
				second.Address, second.Hop.Destination = second.Address.Next(), datapath.MAC{2, 0, 0, 0, 2, 2}
				v.Backends = append(v.Backends, second)
			})
			b.apply(v)
			for port := range uint16(20) {
				at := client(six, 1000+port)
				flow := b.sent(tcp(at, vipAt(six, 80), syn))
				p := b.sent(tooBig(vipAt(six, 80).Addr(), tcp(vipAt(six, 80), at, ack, 'x')))
				if p.to != flow.to {
					t.Errorf("the flow is at %v and the error went to %v", flow.to, p.to)
				}
				if mode.Tunnels() {
					p = p.inner
				}
				wantFrom, wantDestination := vipAt(six, 80), vipAt(six, 80).Addr()
				if mode == datapath.NAT {
					wantFrom, wantDestination = flow.destination, flow.destination.Addr()
				}
				from, to := quoted(t, p)
				if p.source.Addr() != hopAddress(six) || p.destination.Addr() != wantDestination || from != wantFrom ||
					to != at {
					t.Errorf("from %v to %v about %v to %v, want %v", p.source, p.destination, from, to, wantFrom)
				}
			}
		})
	}
}

func TestAnErrorAboutATranslatedPacketReachesItsClient(t *testing.T) {
	t.Parallel()
	for _, snat := range []bool{false, true} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t)
			b.apply(
				b.vip(
					datapath.UDP, datapath.NAT, six, six,
					func(v *datapath.VIP) { v.SNAT = snat; v.Backends[0].Port = 8080 },
				),
			)
			flow := b.sent(udp(client(six, 1000), vipAt(six, 80), 'x'))
			for _, from := range []netip.Addr{hopAddress(six), flow.destination.Addr()} {
				report := tooBig(flow.source.Addr(), udp(flow.source, flow.destination, 'x'))
				if from != hopAddress(six) { // the backend itself: a closed port
					report = icmp(from, flow.source.Addr(), 3, 3, 0, udp(flow.source, flow.destination, 'x').bytes())
					if six {
						report = icmp(
							from, flow.source.Addr(), 1, 4, 0, udp(flow.source, flow.destination, 'x').bytes(),
						)
					}
				}
				p := b.sent(report)
				source, destination := quoted(t, p)
				shown := from
				if from == flow.destination.Addr() {
					shown = vipAt(six, 80).Addr()
				}
				if p.to != routerMAC || p.source.Addr() != shown || p.destination.Addr() != client(six, 0).Addr() ||
					source != client(six, 1000) ||
					destination != vipAt(six, 80) {
					t.Errorf("from %v to %v about %v to %v", p.source, p.destination, source, destination)
				}
			}
		})
	}
}

func TestAPacketThatDoesNotFitATunnelIsAnswered(t *testing.T) {
	t.Parallel()
	for _, to6 := range []bool{false, true} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t)
			b.apply(b.vip(datapath.TCP, datapath.DSRGRE, six, to6))
			fits := 1500 - 24
			if to6 {
				fits = 1500 - 44
			}
			header := 40
			if six {
				header = 60
			}
			b.sent(tcp(client(six, 1000), vipAt(six, 80), ack, make([]byte, fits-header)...))
			big := tcp(client(six, 1000), vipAt(six, 80), ack, make([]byte, fits-header+1)...)
			p := b.sent(big)
			source, destination := quoted(t, p)
			if p.source.Addr() != vipAt(six, 0).Addr() || p.destination.Addr() != client(six, 0).Addr() ||
				p.to != routerMAC ||
				p.from != b.Mac() ||
				source != client(six, 1000) ||
				destination != vipAt(six, 80) {
				t.Errorf("from %v to %v about %v to %v", p.source, p.destination, source, destination)
			}
			if got := binary.BigEndian.Uint32(p.payload[4:]); int(got) != fits {
				t.Errorf("%d fit, want %d", got, fits)
			}
			kind := [2]byte{3, 4}
			if six {
				kind = [2]byte{2, 0}
			}
			if [2]byte(p.payload) != kind {
				t.Errorf("type and code %v", p.payload[:2])
			}
			// What is longer than the interface takes was put together on the way.
			b.wantDrop(
				"oversized",
				frame(routerMAC, b.Mac(), tcp(client(six, 1000), vipAt(six, 80), ack, make([]byte, 1500)...).bytes()),
			)
		})
	}
}

func TestEchoRequestsToAVIPAreAnswered(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		b.apply(b.vip(datapath.TCP, datapath.DSR, six, six))
		request, reply := uint8(8), uint8(0)
		if six {
			request, reply = 128, 129
		}
		ping := icmp(client(six, 0).Addr(), vipAt(six, 0).Addr(), request, 0, 0x12340001, []byte("ping"))
		ping.ttl = 2 // the answer begins a way of its own
		p := b.sent(ping)
		if p.ttl != 64 || p.source.Addr() != vipAt(six, 0).Addr() || p.destination.Addr() != client(six, 0).Addr() ||
			p.to != routerMAC ||
			p.payload[0] != reply ||
			string(p.payload[8:]) != "ping" {
			t.Errorf("%+v", p)
		}
		if verdict, _ := b.run(
			icmp(client(six, 0).Addr(), hopAddress(six), request, 0, 1, nil),
		); verdict != datapath.Pass {
			t.Errorf("for another address: verdict %d", verdict)
		}
	})
}

func TestErrorsThatQuoteNothingUsableAreDroppedIfTheyAreForAVIP(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		b.apply(b.vip(datapath.TCP, datapath.NAT, six, six))
		kind := uint8(3)
		if six {
			kind = 1
		}
		whole := tcp(vipAt(six, 80), client(six, 1), ack).bytes()
		broken := append([]byte{}, whole...)
		broken[0] = 0x15
		for i, quote := range [][]byte{nil, whole[:12], broken} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				report := icmp(hopAddress(six), vipAt(six, 0).Addr(), kind, 1, 0, quote)
				// Without padding, which would be read as part of the quote.
				b.wantDrop("icmp_quote", frame(routerMAC, b.Mac(), report.bytes())[:14+len(report.bytes())])
			})
		}
		other := icmp(hopAddress(six), hopAddress(six).Next(), kind, 1, 0, whole)
		if verdict, _ := b.run(other); verdict != datapath.Pass {
			t.Errorf("an error for another address had verdict %d", verdict)
		}
	})
}

func TestTheMTUOfTheWayToATunnelsEndIsLearned(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.DSRIPIP, datapath.DSRGRE} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t)
			v := b.vip(datapath.TCP, mode, six, six)
			b.apply(v)
			big := tcp(client(six, 1000), vipAt(six, 80), ack, make([]byte, 1380)...)
			outer := b.sent(big)
			own, protocol, quote := node4, uint8(ipipProtocol), 28
			if six {
				own, protocol, quote = node6, ipv6Protocol, 1000
			}
			if mode == datapath.DSRGRE {
				protocol = greProtocol
			}
			about := ip{
				source:      own,
				destination: outer.destination.Addr(),
				protocol:    protocol,
				payload:     make([]byte, 1000),
			}.bytes()
			report := func(mtu uint32) ip {
				if six {
					return icmp(hop6, own, 2, 0, mtu, about[:min(quote, len(about))])
				}
				return icmp(hop4, own, 3, 4, mtu, about[:quote])
			}
			if verdict, _ := b.run(report(1400)); verdict != datapath.Pass {
				t.Errorf("verdict %d, want it left to the kernel, too", verdict)
			}
			if err := b.FollowPaths(); err != nil {
				t.Fatal(err)
			}
			answer := b.sent(big)
			if answer.destination.Addr() != client(six, 0).Addr() {
				t.Fatalf("what does not fit any more went to %v", answer.destination)
			}
			fits := 1400 - 20
			if six {
				fits = 1400 - 40
			}
			if mode == datapath.DSRGRE {
				fits -= 4
			}
			if got := binary.BigEndian.Uint32(answer.payload[4:]); int(got) != fits {
				t.Errorf("%d is said to fit, want %d", got, fits)
			}
			b.apply(v) // the same configuration again does not forget it
			if answer := b.sent(big); answer.destination.Addr() != client(six, 0).Addr() {
				t.Errorf("forgotten: it went to %v", answer.destination)
			}
			// A router cannot say less than what every network carries.
			b.run(report(68))
			if err := b.FollowPaths(); err != nil {
				t.Fatal(err)
			}
			if small := b.sent(tcp(client(six, 1000), vipAt(six, 80), ack, make([]byte, 400)...)); small.inner == nil {
				t.Errorf("a small packet was answered: %+v", small)
			}
			if err := b.AgePaths(11 * time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := b.FollowPaths(); err != nil {
				t.Fatal(err)
			}
			if again := b.sent(big); again.inner == nil {
				t.Error("what a router said ten minutes ago still counts")
			}
		})
	}
}

func TestAnExpiredPathMTUStaysForgottenWhileOthersFollowPaths(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.DSRIPIP, false, false))
	big := tcp(client(false, 1000), vipAt(false, 80), ack, make([]byte, 1380)...)
	end := b.sent(big).destination.Addr()
	about := ip{source: node4, destination: end, protocol: ipipProtocol, payload: make([]byte, 100)}.bytes()
	follow := func() {
		if err := b.FollowPaths(); err != nil {
			t.Error(err)
		}
	}
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					follow()
				}
			}
		})
	}
	defer others.Wait()
	defer close(done)
	for round := range 50 {
		b.run(icmp(hop4, node4, 3, 4, 1400, about[:28]))
		follow()
		if answer := b.sent(big); answer.inner != nil {
			t.Fatalf("round %d: a packet larger than the reported MTU was sent", round)
		}
		if err := b.AgePaths(11 * time.Minute); err != nil {
			t.Fatal(err)
		}
		follow()
		if answer := b.sent(big); answer.inner == nil {
			t.Fatalf("round %d: an expired MTU came back", round)
		}
	}
}

func TestWhatIsSaidOfOthersPacketsTeachesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.DSRGRE, false, false))
	big := tcp(client(false, 1000), vipAt(false, 80), ack, make([]byte, 1380)...)
	for _, about := range []ip{
		{source: hop4, destination: backend4, protocol: greProtocol, payload: make([]byte, 100)}, // not from here
		{source: node4, destination: backend4, protocol: 99, payload: make([]byte, 100)},         // not a tunnel's
	} {
		b.run(icmp(hop4, node4, 3, 4, 600, about.bytes()[:28]))
		b.run(
			icmp(
				hop4, node4, 3, 1, 600,
				ip{source: node4, destination: backend4, protocol: greProtocol, payload: make([]byte, 100)}.bytes()[:28],
			),
		) // not too big
	}
	if err := b.FollowPaths(); err != nil {
		t.Fatal(err)
	}
	if p := b.sent(big); p.inner == nil {
		t.Error("the MTU was lowered")
	}
}
