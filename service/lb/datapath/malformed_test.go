//go:build linux

package datapath_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

func TestTransportHeadersThatContradictThemselvesAreDropped(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			families(t, func(t *testing.T, six bool) {
				b := newBench(t)
				b.apply(b.vip(datapath.TCP, mode, six, six), b.vip(datapath.UDP, mode, six, six))
				segment := func(flags, words uint8) []byte {
					p := tcp(client(six, 1), vipAt(six, 80), flags, []byte("data")...)
					p.payload = slices.Clone(p.payload)
					p.payload[12] = words << 4
					return frame(routerMAC, b.Mac(), p.bytes())
				}
				datagram := func(length, fragment uint16) []byte {
					p := udp(client(six, 1), vipAt(six, 80), []byte("data")...)
					p.payload = slices.Clone(p.payload)
					binary.BigEndian.PutUint16(p.payload[4:], length)
					p.fragment = fragment
					return frame(routerMAC, b.Mac(), p.bytes())
				}
				for _, f := range [][]byte{
					segment(syn, 0), segment(syn, 4), segment(syn, 7), segment(syn, 15),
					segment(syn|fin, 5), segment(syn|rst, 5), segment(syn|ack|fin, 5),
					datagram(0, 0), datagram(7, 0), datagram(13, 0), datagram(65535, 0),
				} {
					b.wantDrop("transport_header", f)
				}
				if n := b.flows(); n != 0 {
					t.Errorf("%d flows were made", n)
				}
				good := [][]byte{segment(syn, 5), segment(syn, 6), datagram(12, 0), datagram(8, 0)}
				if !six {
					good = append(good, datagram(2000, 0x2000)) // the rest is in other fragments
				}
				for i, f := range good {
					if verdict, _ := b.runFrame(f); verdict != datapath.TX {
						t.Errorf("well-formed frame %d has verdict %d: %v", i, verdict, b.dropped())
					}
				}
			})
		})
	}
}

func TestAPacketAtItsEndMakesNoFlow(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.apply(b.vip(datapath.TCP, mode, false, false))
			old := tcp(client(false, 1), vipAt(false, 80), syn)
			old.ttl = 1
			b.wantDrop("ttl", frame(routerMAC, b.Mac(), old.bytes()))
			if n := b.flows(); n != 0 {
				t.Errorf("%d flows were made", n)
			}
		})
	}
}
