package network

import (
	"encoding/binary"
	"net/netip"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

const (
	etherIPv4, etherIPv6 = 0x0800, 0x86dd
	// maxHeaders is how many extension headers of IPv6 are skipped.
	maxHeaders = 8
)

// parsePacket reads addresses, protocol and ports of the beginning of an IP packet. It reports
// whether it has at least the addresses.
func parsePacket(kind uint16, b []byte) (f Flow, ok bool) {
	f.ICMPType = -1
	var source, destination netip.Addr
	switch {
	case kind == etherIPv4 && len(b) >= 20 && b[0]>>4 == 4:
		source, destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		f.Protocol = b[9]
		header := int(b[0]&15) * 4
		if later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0; later || header < 20 || header > len(b) {
			b = nil
		} else {
			b = b[header:]
		}
	case kind == etherIPv6 && len(b) >= 40 && b[0]>>4 == 6:
		source, destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		f.Protocol, b = skipHeaders(b[6], b[40:])
	default:
		return f, false
	}
	var from, to uint16
	switch {
	case netpolicy.HasPorts(f.Protocol) && len(b) >= 4:
		from, to = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case netpolicy.HasTypes(f.Protocol) && len(b) >= 1:
		f.ICMPType = int(b[0])
	}
	f.Source, f.Destination = netip.AddrPortFrom(source, from), netip.AddrPortFrom(destination, to)
	return f, true
}

// skipHeaders returns the protocol behind the extension headers of IPv6, and what follows.
func skipHeaders(next byte, b []byte) (protocol byte, rest []byte) {
	const hopByHop, routing, fragment, options = 0, 43, 44, 60
	for range maxHeaders {
		if next != hopByHop && next != routing && next != fragment && next != options {
			return next, b
		}
		if len(b) < 8 {
			return next, nil
		}
		length := 8 + 8*int(b[1])
		if next == fragment {
			length = 8
			if binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 {
				return b[0], nil
			}
		}
		if next = b[0]; length > len(b) {
			return next, nil
		}
		b = b[length:]
	}
	return next, nil
}
