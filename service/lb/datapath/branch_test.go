//go:build linux

package datapath_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// bench is a datapath whose program is run with single frames. Backends are behind
// the device that frames come in on, which is loopback for such runs.
type bench struct {
	t *testing.T
	*datapath.Datapath
}

var (
	routerMAC  = datapath.MAC{2, 0, 0, 0, 1, 1}
	backendMAC = datapath.MAC{2, 0, 0, 0, 2, 1}
	ownMAC     = datapath.MAC{2, 0, 0, 0, 3, 1}
	backend4   = netip.MustParseAddr("10.9.0.11")
	backend6   = netip.MustParseAddr("fd09::11")
)

const loopback = 1

func newBench(t *testing.T, change ...func(*datapath.Options)) *bench {
	t.Helper()
	lab := netlabtest.New(t)
	node, err := lab.Host("node")
	if err != nil {
		t.Fatal(err)
	}
	peer, err := lab.Host("peer")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlab.Join(node, device, peer, device); err != nil {
		t.Fatal(err)
	}
	n := &network{t: t, node: node, log: discard, dir: "/sys/fs/bpf"}
	return &bench{t, n.open(change...)}
}

// benchVIP is a VIP with one backend, of IPv6 if to6 is set.
func benchVIP(p datapath.Protocol, m datapath.Mode, six, to6 bool) datapath.VIP {
	v := datapath.VIP{VIPKey: datapath.VIPKey{Address: vip4, Port: 80, LastPort: 80, Protocol: p}, Mode: m}
	if six {
		v.Address = vip6
	}
	hop := datapath.NextHop{Interface: loopback, MTU: 1500, Source: ownMAC, Destination: backendMAC, Local: node4}
	key := datapath.BackendKey{Address: backend4, Port: 80}
	if to6 {
		key.Address, hop.Local = backend6, node6
	}
	v.Backends = []datapath.Backend{{BackendKey: key, Weight: 1, State: datapath.Healthy, Hop: hop}}
	return v
}

func (b *bench) vip(p datapath.Protocol, m datapath.Mode, six, to6 bool, change ...func(*datapath.VIP)) datapath.VIP {
	v := benchVIP(p, m, six, to6)
	for _, c := range change {
		c(&v)
	}
	return v
}

func (b *bench) apply(vips ...datapath.VIP) {
	b.t.Helper()
	if err := b.Apply(vips); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) run(packet ip) (uint32, []byte) {
	b.t.Helper()
	return b.runFrame(frame(routerMAC, b.Mac(), packet.bytes()))
}

func (b *bench) runFrame(f []byte) (uint32, []byte) {
	b.t.Helper()
	verdict, out, err := b.Datapath.Run(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return verdict, out
}

// sent is what the program sent for a packet, which must be well-formed.
func (b *bench) sent(packet ip) *parsed {
	b.t.Helper()
	verdict, out := b.run(packet)
	if verdict != datapath.TX {
		b.t.Fatalf("verdict %d, want it sent; drops %v", verdict, b.dropped())
	}
	p, err := parse(out)
	if err != nil {
		b.t.Fatalf("%v\n% x", err, out)
	}
	return p
}

// dropped are the reasons that packets were dropped for, with their numbers.
func (b *bench) dropped() map[string]uint64 {
	b.t.Helper()
	c, err := b.Counters()
	if err != nil {
		b.t.Fatal(err)
	}
	for reason, n := range c.Drops {
		if n == 0 {
			delete(c.Drops, reason)
		}
	}
	return c.Drops
}

// wantDrop gives the program a frame that it must drop for a reason.
func (b *bench) wantDrop(reason string, f []byte) {
	b.t.Helper()
	before := b.dropped()[reason]
	if verdict, _ := b.runFrame(f); verdict != datapath.Drop {
		b.t.Errorf("%s: verdict %d, want a drop", reason, verdict)
	} else if after := b.dropped()[reason]; after != before+1 {
		b.t.Errorf("%s was counted %d times, of %v", reason, after-before, b.dropped())
	}
}

func client(six bool, port uint16) netip.AddrPort {
	if six {
		return netip.AddrPortFrom(client6, port)
	}
	return netip.AddrPortFrom(client4, port)
}

func vipAt(six bool, port uint16) netip.AddrPort {
	if six {
		return netip.AddrPortFrom(vip6, port)
	}
	return netip.AddrPortFrom(vip4, port)
}

func families(t *testing.T, test func(t *testing.T, six bool)) {
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("ipv6=%v", six), func(t *testing.T) {
			t.Parallel()
			test(t, six)
		})
	}
}

func TestDSRChangesTheEthernetHeaderAndTheTTLOnly(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		b.apply(b.vip(datapath.TCP, datapath.DSR, six, six))
		packet := tcp(client(six, 1000), vipAt(six, 80), syn, 'x')
		packet.tos, packet.ttl = 0xb9, 9
		p := b.sent(packet)
		if p.from != ownMAC || p.to != backendMAC || p.source != client(six, 1000) || p.destination != vipAt(six, 80) ||
			p.ttl != 8 ||
			p.tos != 0xb9 ||
			string(p.payload) != "x" {
			t.Errorf("%+v", p)
		}
	})
}

func TestTunnelsKeepTheInnerPacket(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.DSRIPIP, datapath.DSRGRE} {
		for _, six := range []bool{false, true} {
			for _, to6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v,vip6=%v,backend6=%v", mode, six, to6), func(t *testing.T) {
					t.Parallel()
					b := newBench(t)
					b.apply(b.vip(datapath.UDP, mode, six, to6))
					packet := udp(client(six, 1000), vipAt(six, 80), 'x', 'y')
					packet.tos = 0x2e
					p := b.sent(packet)
					source, destination := node4, backend4
					if to6 {
						source, destination = node6, backend6
					}
					if p.from != ownMAC || p.to != backendMAC || p.source.Addr() != source ||
						p.destination.Addr() != destination ||
						p.ttl != 64 ||
						p.tos != 0x2e {
						t.Errorf("outer %+v", p)
					}
					if p.inner == nil || p.inner.source != client(six, 1000) || p.inner.destination != vipAt(six, 80) ||
						p.inner.ttl != 63 ||
						string(p.inner.payload) != "xy" {
						t.Errorf("inner %+v", p.inner)
					}
				})
			}
		}
	}
}

func TestNATTranslatesThereAndBack(t *testing.T) {
	t.Parallel()
	for _, snat := range []bool{false, true} {
		for _, protocol := range []datapath.Protocol{datapath.TCP, datapath.UDP} {
			families(t, func(t *testing.T, six bool) {
				b := newBench(t)
				v := b.vip(
					protocol, datapath.NAT, six, six,
					func(v *datapath.VIP) { v.SNAT = snat; v.Backends[0].Port = 8080 },
				)
				b.apply(v)
				segment := func(source, destination netip.AddrPort, flags uint8) ip {
					if protocol == datapath.UDP {
						return udp(source, destination, 'a', 'b', 'c')
					}
					return tcp(source, destination, flags, 'a', 'b', 'c')
				}
				backend := netip.AddrPortFrom(v.Backends[0].Address, 8080)
				p := b.sent(segment(client(six, 1000), vipAt(six, 80), syn))
				if p.destination != backend || p.to != backendMAC || string(p.payload) != "abc" {
					t.Fatalf("%+v", p)
				}
				seen := p.source
				switch {
				case snat && (seen.Addr() != v.Backends[0].Hop.Local || seen.Port() < 1024 || seen.Port() >= 32768):
					t.Errorf("the backend sees %v", seen)
				case !snat && seen != client(six, 1000):
					t.Errorf("the backend sees %v", seen)
				}
				if again := b.sent(segment(client(six, 1000), vipAt(six, 80), ack)); again.source != seen {
					t.Errorf("the next packet has source %v, want %v", again.source, seen)
				}
				back := b.sent(segment(backend, seen, syn|ack))
				if back.source != vipAt(six, 80) || back.destination != client(six, 1000) || back.to != routerMAC ||
					back.from != b.Mac() ||
					string(back.payload) != "abc" ||
					back.ttl != 63 {
					t.Errorf("reply %+v", back)
				}
				if verdict, _ := b.run(segment(backend, client(six, 2000), ack)); verdict != datapath.Pass {
					t.Errorf("what is not a reply had verdict %d, want it left to the kernel", verdict)
				}
			})
		}
	}
}

func TestNATKeepsFlowsApartThatABackendWouldTakeForOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one := b.vip(datapath.TCP, datapath.NAT, false, false)
	two := b.vip(datapath.TCP, datapath.NAT, false, false, func(v *datapath.VIP) { v.Port, v.LastPort = 81, 81 })
	b.apply(one, two)
	a, c := b.sent(tcp(client(false, 1000), vipAt(false, 80), syn)), b.sent(
		tcp(client(false, 1000), vipAt(false, 81), syn),
	)
	if a.source == c.source {
		t.Fatalf("both flows have source %v at %v", a.source, a.destination)
	}
	for port, flow := range map[uint16]*parsed{80: a, 81: c} {
		if back := b.sent(tcp(flow.destination, flow.source, ack)); back.source != vipAt(false, port) ||
			back.destination != client(false, 1000) {
			t.Errorf("the reply of port %d goes from %v to %v", port, back.source, back.destination)
		}
	}
}

func TestAChecksumThatIsLeftToTheDeviceStaysSo(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		v := b.vip(datapath.TCP, datapath.NAT, six, six, func(v *datapath.VIP) { v.Backends[0].Port = 8080 })
		b.apply(v)
		packet := tcp(client(six, 1000), vipAt(six, 80), syn, []byte("some payload of an odd length")...)
		partial := sum(pseudo(packet.source, packet.destination, 6, len(packet.payload)))
		binary.BigEndian.PutUint16(packet.payload[16:], partial)
		verdict, out := b.run(packet)
		if verdict != datapath.TX {
			t.Fatal(verdict)
		}
		segment := out[14+len(packet.bytes())-len(packet.payload):][:len(packet.payload)]
		want := sum(pseudo(packet.source, v.Backends[0].Address, 6, len(packet.payload)))
		if got := binary.BigEndian.Uint16(segment[16:]); got != want {
			t.Errorf("checksum %04x, want the new pseudo header's, %04x", got, want)
		}
	})
}

func TestAWholeChecksumThatLooksLikeOneLeftToTheDeviceIsKeptRight(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, six bool) {
		b := newBench(t)
		b.apply(b.vip(datapath.TCP, datapath.NAT, six, six, func(v *datapath.VIP) { v.Backends[0].Port = 8080 }))
		for _, length := range []int{4, 5, 63, 64, 65, 99, 200, 1401} {
			// The last two bytes are chosen so that the right checksum is the sum of the pseudo header.
			payload := make([]byte, length)
			for i := range payload {
				payload[i] = byte(7 * i)
			}
			at := (20 + length - 2) &^ 1
			packet := tcp(client(six, 1000), vipAt(six, 80), syn, payload...)
			partial := sum(pseudo(packet.source, packet.destination, 6, len(packet.payload)))
			for word := range 1 << 16 {
				binary.BigEndian.PutUint16(packet.payload[at:], uint16(word))
				packet.payload[16], packet.payload[17] = 0, 0
				if ^sum(pseudo(packet.source, packet.destination, 6, len(packet.payload)), packet.payload) == partial {
					binary.BigEndian.PutUint16(packet.payload[16:], partial)
					break
				}
			}
			if binary.BigEndian.Uint16(packet.payload[16:]) != partial {
				t.Fatal("no such payload")
			}
			b.sent(packet) // checks the sum
		}
	})
}
