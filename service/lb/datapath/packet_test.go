//go:build linux

package datapath_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// ip is an IP packet of either family, whose header is made around its payload.
type ip struct {
	source, destination netip.Addr
	protocol            uint8
	ttl, tos            uint8
	options             []byte // IPv4 options, or IPv6 extension headers, whose last must name protocol
	next                uint8  // of the first extension header, if there are options
	id                  uint16 // IPv4
	fragment            uint16 // flags and offset as in an IPv4 header
	payload             []byte
}

const (
	icmpProtocol   = 1
	ipipProtocol   = 4
	ipv6Protocol   = 41
	greProtocol    = 47
	icmpv6Protocol = 58
)

func (p ip) bytes() []byte {
	if p.ttl == 0 {
		p.ttl = 64
	}
	if p.source.Is4() {
		size := 20 + len(p.options)
		b := make([]byte, size, size+len(p.payload))
		b[0], b[1] = 4<<4|byte(size/4), p.tos
		binary.BigEndian.PutUint16(b[2:], uint16(size+len(p.payload)))
		binary.BigEndian.PutUint16(b[4:], p.id)
		binary.BigEndian.PutUint16(b[6:], p.fragment)
		b[8], b[9] = p.ttl, p.protocol
		copy(b[12:], p.source.AsSlice())
		copy(b[16:], p.destination.AsSlice())
		copy(b[20:], p.options)
		binary.BigEndian.PutUint16(b[10:], ^sum(b))
		return append(b, p.payload...)
	}
	b := make([]byte, 40, 40+len(p.options)+len(p.payload))
	b[0], b[1] = 6<<4|p.tos>>4, p.tos<<4
	binary.BigEndian.PutUint16(b[4:], uint16(len(p.options)+len(p.payload)))
	b[6], b[7] = p.protocol, p.ttl
	if len(p.options) > 0 {
		b[6] = p.next
	}
	copy(b[8:], p.source.AsSlice())
	copy(b[24:], p.destination.AsSlice())
	return append(append(b, p.options...), p.payload...)
}

// sum is the Internet checksum's sum, not inverted.
func sum(parts ...[]byte) uint16 {
	var s uint32
	for _, b := range parts { // each but the last of even length
		for i := 0; i+1 < len(b); i += 2 {
			s += uint32(b[i])<<8 | uint32(b[i+1])
		}
		if len(b)%2 == 1 {
			s += uint32(b[len(b)-1]) << 8
		}
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func pseudo(source, destination netip.Addr, protocol uint8, length int) []byte {
	b := append(source.AsSlice(), destination.AsSlice()...)
	return append(b, byte(length>>24), byte(length>>16), byte(length>>8), byte(length), 0, 0, 0, protocol)
}

const (
	fin = 1
	syn = 2
	rst = 4
	ack = 16
)

// tcp is a segment with a right checksum.
func tcp(source, destination netip.AddrPort, flags uint8, payload ...byte) ip {
	b := make([]byte, 20, 20+len(payload))
	binary.BigEndian.PutUint16(b[0:], source.Port())
	binary.BigEndian.PutUint16(b[2:], destination.Port())
	binary.BigEndian.PutUint32(b[4:], 12345)
	b[12], b[13] = 5<<4, flags
	b = append(b, payload...)
	binary.BigEndian.PutUint16(b[16:], ^sum(pseudo(source.Addr(), destination.Addr(), 6, len(b)), b))
	return ip{source: source.Addr(), destination: destination.Addr(), protocol: 6, payload: b}
}

// udp is a datagram with a right checksum.
func udp(source, destination netip.AddrPort, payload ...byte) ip {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b[0:], source.Port())
	binary.BigEndian.PutUint16(b[2:], destination.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	b = append(b, payload...)
	c := ^sum(pseudo(source.Addr(), destination.Addr(), 17, len(b)), b)
	if c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], c)
	return ip{source: source.Addr(), destination: destination.Addr(), protocol: 17, payload: b}
}

// icmp is a message with a right checksum, of the family of its addresses.
func icmp(source, destination netip.Addr, kind, code uint8, rest uint32, payload []byte) ip {
	b := []byte{kind, code, 0, 0}
	b = append(binary.BigEndian.AppendUint32(b, rest), payload...)
	p := ip{source: source, destination: destination, protocol: icmpProtocol, payload: b}
	if source.Is4() {
		binary.BigEndian.PutUint16(b[2:], ^sum(b))
		return p
	}
	p.protocol = icmpv6Protocol
	binary.BigEndian.PutUint16(b[2:], ^sum(pseudo(source, destination, icmpv6Protocol, len(b)), b))
	return p
}

// frame puts a packet on Ethernet, padded to the least length.
func frame(from, to datapath.MAC, packet []byte) []byte {
	b := append(append([]byte{}, to[:]...), from[:]...)
	if packet[0]>>4 == 4 {
		b = append(b, 0x08, 0x00)
	} else {
		b = append(b, 0x86, 0xdd)
	}
	b = append(b, packet...)
	for len(b) < 60 {
		b = append(b, 0)
	}
	return b
}

// parsed is what is in a frame that the program sent.
type parsed struct {
	from, to            datapath.MAC
	source, destination netip.AddrPort // ports 0 where there are none
	protocol            uint8
	ttl, tos            uint8
	fragment            uint16  // IPv4, or the 16 bits of an IPv6 fragment header
	payload             []byte  // of the transport
	inner               *parsed // of a tunnel
}

// parse reads a frame strictly: whatever has a checksum must have the right one, and
// lengths must fit.
func parse(b []byte) (*parsed, error) {
	if len(b) < 14 {
		return nil, errors.New("no Ethernet header")
	}
	p, err := parseIP(b[14:], binary.BigEndian.Uint16(b[12:]))
	if err != nil {
		return nil, err
	}
	p.to, p.from = datapath.MAC(b[0:6]), datapath.MAC(b[6:12])
	return p, nil
}

func parseIP(b []byte, ethertype uint16) (*parsed, error) {
	p := &parsed{}
	var source, destination netip.Addr
	switch ethertype {
	case 0x0800:
		if len(b) < 20 || b[0]>>4 != 4 {
			return nil, errors.New("no IPv4 header")
		}
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || total < header || total > len(b) {
			return nil, fmt.Errorf("an IPv4 header of %d bytes, %d in all, of %d", header, total, len(b))
		}
		if s := sum(b[:header]); s != 0xffff {
			return nil, fmt.Errorf("IPv4 header sums up to %04x", s)
		}
		p.tos, p.ttl, p.protocol, p.fragment = b[1], b[8], b[9], binary.BigEndian.Uint16(b[6:])
		source, destination = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		b = b[header:total]
		if p.fragment&0x1fff != 0 {
			p.payload = b
			p.source, p.destination = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0)
			return p, nil
		}
	case 0x86dd:
		if len(b) < 40 || b[0]>>4 != 6 {
			return nil, errors.New("no IPv6 header")
		}
		length := int(binary.BigEndian.Uint16(b[4:]))
		if 40+length > len(b) {
			return nil, fmt.Errorf("IPv6 payload of %d bytes in %d", length, len(b))
		}
		p.tos, p.protocol, p.ttl = b[0]<<4|b[1]>>4, b[6], b[7]
		source, destination = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		b = b[40 : 40+length]
		for p.protocol == 0 || p.protocol == 43 || p.protocol == 44 || p.protocol == 60 {
			size := 8 * (int(b[1]) + 1)
			if p.protocol == 44 {
				size, p.fragment = 8, binary.BigEndian.Uint16(b[2:])
			}
			p.protocol, b = b[0], b[size:]
			if p.fragment&^7 != 0 {
				p.payload = b
				p.source, p.destination = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0)
				return p, nil
			}
		}
	default:
		return nil, fmt.Errorf("ethertype %04x", ethertype)
	}
	return p, p.transport(source, destination, b)
}

func (p *parsed) transport(source, destination netip.Addr, b []byte) (err error) {
	p.source, p.destination, p.payload = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0), b
	whole := p.fragment&0x2000 == 0 && source.Is4() || p.fragment&1 == 0 && source.Is6()
	checked := func() error {
		if s := sum(pseudo(source, destination, p.protocol, len(b)), b); whole && s != 0xffff {
			return fmt.Errorf("protocol %d sums up to %04x", p.protocol, s)
		}
		return nil
	}
	ports := func() {
		p.source, p.destination = netip.AddrPortFrom(source, binary.BigEndian.Uint16(b)), netip.AddrPortFrom(
			destination, binary.BigEndian.Uint16(b[2:]),
		)
	}
	switch p.protocol {
	case 6:
		if len(b) < 20 {
			return errors.New("no TCP header")
		}
		ports()
		p.payload = b[20:]
		return checked()
	case 17:
		if len(b) < 8 {
			return errors.New("no UDP header")
		}
		ports()
		p.payload = b[8:]
		if binary.BigEndian.Uint16(b[6:]) == 0 && source.Is4() {
			return nil
		}
		return checked()
	case icmpProtocol:
		if s := sum(b); s != 0xffff {
			return fmt.Errorf("ICMP sums up to %04x", s)
		}
	case icmpv6Protocol:
		return checked()
	case ipipProtocol:
		p.inner, err = parseIP(b, 0x0800)
	case ipv6Protocol:
		p.inner, err = parseIP(b, 0x86dd)
	case greProtocol:
		if len(b) < 4 || binary.BigEndian.Uint16(b) != 0 {
			return errors.New("no GRE header")
		}
		p.inner, err = parseIP(b[4:], binary.BigEndian.Uint16(b[2:]))
	}
	return err
}
