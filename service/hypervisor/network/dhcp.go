package network

import (
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

const (
	// leaseTime is how long a guest may use its address before it must renew. It always gets the
	// same address again, so the time only limits how long it takes to learn of new name servers.
	leaseTime = time.Hour
	// maxQuestion is the maximum length of a request, in bytes. Clients send at most 1472, which
	// fits an Ethernet frame.
	maxQuestion = 1500
	// maxClientID is the longest client identifier that is echoed, in bytes.
	maxClientID = 64
)

// answerer answers DHCP requests. It has no state; the book has it all.
type answerer struct {
	book *book
	mtu  int
	dns  func() []netip.Addr
}

// answer returns the reply to a request and its destination: the guest's address, or broadcast. For
// malformed requests and unknown clients, it returns no reply but a reason.
func (a answerer) answer(question []byte) (reply *dhcpv4.DHCPv4, to netip.Addr, why string) {
	if len(question) > maxQuestion {
		return nil, to, "too long"
	}
	q, err := dhcpv4.FromBytes(question)
	if err != nil {
		return nil, to, "malformed"
	}
	if q.OpCode != dhcpv4.OpcodeBootRequest || q.HWType != iana.HWTypeEthernet || len(q.ClientHWAddr) != len(mac{}) ||
		!q.GatewayIPAddr.IsUnspecified() {
		return nil, to, "not from a guest"
	}
	l, known := a.book.guest(mac(q.ClientHWAddr))
	if !known {
		return nil, to, "from an unknown guest"
	}
	if id := q.ServerIdentifier(); id != nil && ip(id) != a.book.address.Addr() {
		return nil, to, "for another server"
	}
	kind := dhcpv4.MessageTypeAck
	switch q.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest:
		if wanted(q) != l.IP {
			kind = dhcpv4.MessageTypeNak
		}
	case dhcpv4.MessageTypeInform:
		if ip(q.ClientIPAddr) != l.IP {
			return nil, to, "from another's address"
		}
	case dhcpv4.MessageTypeRelease:
		return nil, to, "" // the address remains the guest's until its VM is deleted
	case dhcpv4.MessageTypeDecline:
		return nil, to, "its address is in use by another"
	default:
		return nil, to, "no question"
	}
	reply, err = a.reply(q, kind, l)
	if err != nil {
		return nil, to, "malformed"
	}
	return reply, destination(q, kind, l), ""
}

// wanted returns the address that a client requests: from an option if it has none yet, else from
// the header.
func wanted(q *dhcpv4.DHCPv4) netip.Addr {
	if r := q.RequestedIPAddress(); r != nil {
		return ip(r)
	}
	return ip(q.ClientIPAddr)
}

// destination returns where to send a reply, as in RFC 2131, 4.1.
func destination(q *dhcpv4.DHCPv4, kind dhcpv4.MessageType, l lease) netip.Addr {
	if kind == dhcpv4.MessageTypeNak || q.IsBroadcast() && ip(q.ClientIPAddr) != l.IP {
		return broadcast
	}
	return l.IP
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func (a answerer) reply(q *dhcpv4.DHCPv4, kind dhcpv4.MessageType, l lease) (*dhcpv4.DHCPv4, error) {
	gateway := net.IP(a.book.address.Addr().AsSlice())
	with := []dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway))}
	if kind != dhcpv4.MessageTypeNak {
		with = append(with, a.facts(l, gateway)...)
		if q.MessageType() == dhcpv4.MessageTypeInform {
			with = append(with, dhcpv4.WithClientIP(l.IP.AsSlice()))
		} else {
			with = append(
				with, dhcpv4.WithYourIP(l.IP.AsSlice()), dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(leaseTime)),
			)
		}
	}
	reply, err := dhcpv4.NewReplyFromRequest(q, with...)
	if err != nil {
		return nil, err
	}
	if len(q.GetOneOption(dhcpv4.OptionClientIdentifier)) > maxClientID {
		reply.DeleteOption(dhcpv4.OptionClientIdentifier)
	}
	reply.DeleteOption(dhcpv4.OptionRelayAgentInformation)
	return reply, nil
}

// facts returns the DHCP options about the network.
func (a answerer) facts(l lease, gateway net.IP) []dhcpv4.Modifier {
	with := []dhcpv4.Modifier{
		dhcpv4.WithNetmask(net.CIDRMask(a.book.address.Bits(), 32)),
		dhcpv4.WithRouter(gateway),
		dhcpv4.WithOption(dhcpv4.OptBroadcastAddress(last(a.book.address).AsSlice())),
		dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, []byte{byte(a.mtu >> 8), byte(a.mtu)}),
	}
	if servers := a.dns(); len(servers) > 0 {
		ips := make([]net.IP, len(servers))
		for i, s := range servers {
			ips[i] = s.AsSlice()
		}
		with = append(with, dhcpv4.WithDNS(ips...))
	}
	if l.Hostname != "" {
		with = append(with, dhcpv4.WithOption(dhcpv4.OptHostName(l.Hostname)))
	}
	return with
}

// ip converts an address of the library; zero if it is not valid.
func ip(a net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(a)
	return addr.Unmap()
}
