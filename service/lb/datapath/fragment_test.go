//go:build linux

package datapath_test

import (
	"encoding/binary"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// cut makes fragments of a packet: the first of size bytes of payload, a multiple of
// 8, and the rest.
func cut(p ip, id uint32, size int) (first, rest ip) {
	first, rest = p, p
	first.payload, rest.payload = p.payload[:size], p.payload[size:]
	if p.source.Is4() {
		first.id, rest.id = uint16(id), uint16(id)
		first.fragment, rest.fragment = 0x2000, uint16(size/8)
		return first, rest
	}
	header := func(offset uint16, more uint16) []byte {
		h := []byte{p.protocol, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(h[2:], offset<<3|more)
		binary.BigEndian.PutUint32(h[4:], id)
		return h
	}
	first.next, first.options = 44, header(0, 1)
	rest.next, rest.options = 44, header(uint16(size/8), 0)
	return first, rest
}

func TestFragmentsFollowTheFirstOne(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR, datapath.DSRIPIP} {
		families(t, func(t *testing.T, six bool) {
			b := newBench(t)
			v := b.vip(datapath.UDP, mode, six, six)
			b.apply(v)
			first, rest := cut(udp(client(six, 1000), vipAt(six, 80), make([]byte, 1000)...), 77, 400)
			b.wantDrop("fragment", frame(routerMAC, b.Mac(), rest.bytes())) // nobody knows yet
			p, q := b.sent(first), b.sent(rest)
			if p.to != backendMAC || q.to != backendMAC || p.ttl != q.ttl {
				t.Errorf("first to %v, rest to %v", p.to, q.to)
			}
			if mode.Tunnels() {
				p, q = p.inner, q.inner
			}
			if q.source.Addr() != p.source.Addr() || q.destination.Addr() != p.destination.Addr() ||
				len(q.payload) != 608 {
				t.Errorf("first %v to %v, rest %v to %v", p.source, p.destination, q.source, q.destination)
			}
			if mode != datapath.NAT {
				return
			}
			// A reply in fragments goes back the same way.
			first, rest = cut(udp(p.destination, client(six, 1000), make([]byte, 1000)...), 78, 400)
			if verdict, _ := b.run(rest); verdict != datapath.Pass {
				t.Errorf("an unknown fragment to a client: verdict %d", verdict)
			}
			p, q = b.sent(first), b.sent(rest)
			if p.source != vipAt(six, 80) || q.source.Addr() != vipAt(six, 80).Addr() || q.to != routerMAC ||
				q.destination.Addr() != client(six, 0).Addr() {
				t.Errorf("first %+v, rest %+v", p, q)
			}
		})
	}
}

func TestFragmentsOfABackendThatWentDownAreDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := b.vip(datapath.UDP, datapath.DSR, false, false)
	b.apply(v)
	first, rest := cut(udp(client(false, 1000), vipAt(false, 80), make([]byte, 1000)...), 77, 400)
	b.sent(first)
	v.Backends[0].State = datapath.Down
	b.apply(v)
	b.wantDrop("fragment", frame(routerMAC, b.Mac(), rest.bytes()))
}

// Options that only the destination reads come after the fragment header, and so only in the first
// fragment.
func TestFragmentsOfAPacketWithDestinationOptionsFollowTheFirstOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.UDP, datapath.DSR, true, true))
	whole := udp(client(true, 1000), vipAt(true, 80), make([]byte, 1000)...)
	const destinationOptions = 60
	options := []byte{17, 0, 1, 4, 0, 0, 0, 0} // padding, then UDP
	first, rest := cut(whole, 77, 400)
	first.options = append(first.options, options...)
	first.options[0], rest.options[0] = destinationOptions, destinationOptions
	binary.BigEndian.PutUint16(rest.options[2:], (400+8)/8<<3)
	if p := b.sent(first); p.to != backendMAC {
		t.Errorf("the first went to %v", p.to)
	}
	if p := b.sent(rest); p.to != backendMAC {
		t.Errorf("the rest went to %v", p.to)
	}
}
