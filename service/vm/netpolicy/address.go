package netpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// parseCIDR returns a network, which must be written with its first address.
func parseCIDR(field, text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil || network.Addr().Zone() != "" || network.Addr().Is4In6():
		return network, fault.InvalidField(field, "%.50q is not a network, as in 10.0.0.0/8 or 2001:db8::/32", text)
	case network != network.Masked():
		return network, fault.InvalidField(field, "%s has bits beyond its length; the network is %s", text, network.Masked())
	}
	return network, nil
}

// checkExcept checks that networks are inside another one.
func checkExcept(field string, network netip.Prefix, except []string) error {
	if len(except) > maxExcept {
		return fault.InvalidField(field, "has %d networks; at most %d are taken", len(except), maxExcept)
	}
	for i, text := range except {
		e, err := parseCIDR(at(field, i), text)
		if err != nil {
			return err
		}
		if !network.Contains(e.Addr()) || e.Bits() <= network.Bits() {
			return fault.InvalidField(at(field, i), "%s is not a part of %s", text, network)
		}
	}
	return nil
}

// everywhere are the networks that hold all addresses.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// outside returns peers for all addresses except those of some networks. A peer takes few exceptions,
// so networks with more of them are halved.
func outside(without []netip.Prefix) (peers []Peer) {
	var add func(network netip.Prefix, inside []netip.Prefix)
	add = func(network netip.Prefix, inside []netip.Prefix) {
		if slices.ContainsFunc(inside, func(e netip.Prefix) bool { return e.Bits() <= network.Bits() }) {
			return // nothing of it is left
		}
		if len(inside) <= maxExcept {
			p := Peer{CIDR: network.String()}
			for _, e := range inside {
				p.Except = append(p.Except, e.String())
			}
			peers = append(peers, p)
			return
		}
		for _, half := range halves(network) {
			add(half, within(inside, half))
		}
	}
	for _, network := range everywhere {
		add(network, within(without, network))
	}
	return peers
}

// within returns the networks that overlap another one, sorted and without those inside of others.
func within(all []netip.Prefix, network netip.Prefix) (out []netip.Prefix) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range sorted {
		covered := len(out) > 0 && out[len(out)-1].Overlaps(p)
		if network.Overlaps(p) && !covered {
			out = append(out, p)
		}
	}
	return out
}

// halves returns the two halves of a network that is larger than one address.
func halves(network netip.Prefix) [2]netip.Prefix {
	bits := network.Bits()
	address := network.Addr().AsSlice()
	address[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(address)
	return [2]netip.Prefix{netip.PrefixFrom(network.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)}
}

// single returns the network that holds one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Addresses returns the addresses in texts; others are left out.
func Addresses(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err == nil && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() {
			out = append(out, a.Unmap())
		}
	}
	return out
}
