package network

import (
	"encoding/binary"
	"net/netip"
)

const (
	serverPort = 67
	clientPort = 68
)

// frame builds an Ethernet frame with a DHCP reply. The server writes whole frames, since ARP does
// not work for a guest without an address, and a guest with one may refuse to answer and thereby
// fill the kernel's queue.
func frame(from, to mac, source, destination netip.Addr, answer []byte) []byte {
	const ethernet, ipv4, udp = 14, 20, 8
	b := make([]byte, ethernet+ipv4+udp, ethernet+ipv4+udp+len(answer))
	copy(b, to[:])
	copy(b[6:], from[:])
	binary.BigEndian.PutUint16(b[12:], 0x0800)

	ip, src, dst := b[ethernet:], source.As4(), destination.As4()
	ip[0], ip[8], ip[9] = 0x45, 64, 17 // version and header length, time to live, UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(ipv4+udp+len(answer)))
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^sum(uint32(0), ip[:ipv4]))

	u := ip[ipv4:]
	binary.BigEndian.PutUint16(u, serverPort)
	binary.BigEndian.PutUint16(u[2:], clientPort)
	binary.BigEndian.PutUint16(u[4:], uint16(udp+len(answer)))
	check := sum(sum(sum(17+udp+uint32(len(answer)), ip[12:20]), u[:udp]), answer) // of the pseudo header, too
	if check = ^check; check == 0 {
		check = 0xffff // zero says that there is none
	}
	binary.BigEndian.PutUint16(u[6:], check)
	return append(b, answer...)
}

// sum adds 16-bit words in ones' complement, as in RFC 1071.
func sum[N uint16 | uint32](start N, b []byte) uint16 {
	s := uint32(start)
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
