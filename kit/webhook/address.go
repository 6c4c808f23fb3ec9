package webhook

import (
	"net/netip"
	"slices"
)

// block is a range of addresses that are not public.
type block struct {
	prefix netip.Prefix
	reason string
}

// Ranges that are not globally reachable, from the IANA special-purpose address registries (RFC
// 6890 and its updates), with multicast and reserved space.
var blocks4 = []block{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
}

var blocks6 = []block{
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("2001::/32"), "Teredo"},
	{netip.MustParsePrefix("2001::/23"), "reserved"}, // benchmarking, ORCHID and others
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
}

// global6 is all of IPv6 that is allocated as global unicast (RFC 4291, 2.4). Everything else is
// refused, so that ranges put to use later are not open by default.
var global6 = netip.MustParsePrefix("2000::/3")

// metadataAddrs are addresses at which cloud platforms respond to any program on the machine, often
// with credentials. No webhook receiver has such an address.
var metadataAddrs = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, Google Cloud and most others
	netip.MustParseAddr("169.254.170.2"),   // AWS ECS task credentials
	netip.MustParseAddr("169.254.170.23"),  // AWS EKS pod identity
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure wire server
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS EKS pod identity
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// IPv6 forms that embed an IPv4 address to which a translator or tunnel delivers.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	compat4   = netip.MustParsePrefix("::/96")           // RFC 4291, 2.5.5.1
	siit      = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	sixToFour = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo    = netip.MustParsePrefix("2001::/32")       // RFC 4380
)

// embedded returns the IPv4 addresses that are embedded in the IPv6 address a.
func embedded(a netip.Addr) []netip.Addr {
	b := a.As16()
	low := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case nat64.Contains(a), compat4.Contains(a), siit.Contains(a):
		return []netip.Addr{low}
	case sixToFour.Contains(a):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(a):
		client := [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
		return []netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4(client)}
	}
	return nil
}

func isMetadata(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if slices.Contains(metadataAddrs, a) {
		return true
	}
	if a.Is4() {
		return false
	}
	return slices.ContainsFunc(embedded(a), isMetadata)
}

// notPublic returns why a is not a public address, or "" if it is.
func notPublic(a netip.Addr) string {
	// netip: a prefix contains no address with a zone and no mapped address.
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return "invalid"
	}
	blocks := blocks6
	if a.Is4() {
		blocks = blocks4
	}
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return b.reason
		}
	}
	if a.Is4() {
		return ""
	}
	if !global6.Contains(a) && !nat64.Contains(a) {
		return "reserved"
	}
	for _, e := range embedded(a) {
		if r := notPublic(e); r != "" {
			return r
		}
	}
	return ""
}
