//go:build linux

package datapath

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// The program stores addresses and ports in network byte order. It runs on little-endian machines,
// so Go reads the words of a packet as little-endian too.

func wirePort(port uint16) uint16 { return bits.ReverseBytes16(port) }

func wireAddress(a netip.Addr) (w programAddress) {
	if a.Is4() {
		b := a.As4()
		w.Word[0] = binary.LittleEndian.Uint32(b[:])
		return w
	}
	if a.Is6() {
		b := a.As16()
		for i := range w.Word {
			w.Word[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
	}
	return w
}

func addressOf(w programAddress, six bool) netip.Addr {
	if !six {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], w.Word[0])
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	for i, word := range w.Word {
		binary.LittleEndian.PutUint32(b[4*i:], word)
	}
	return netip.AddrFrom16(b)
}

func tuple4(p Protocol, source, destination netip.AddrPort) programTuple4 {
	return programTuple4{
		Source: wireAddress(source.Addr()).Word[0], Destination: wireAddress(destination.Addr()).Word[0],
		SourcePort: wirePort(source.Port()), DestinationPort: wirePort(destination.Port()), Protocol: uint8(p),
	}
}

func tuple6(p Protocol, source, destination netip.AddrPort) programTuple6 {
	return programTuple6{
		Source: wireAddress(source.Addr()), Destination: wireAddress(destination.Addr()),
		SourcePort: wirePort(source.Port()), DestinationPort: wirePort(destination.Port()), Protocol: uint8(p),
	}
}
