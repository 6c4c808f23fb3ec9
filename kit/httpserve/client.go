package httpserve

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// maxForwarded limits how many proxies of a chain are examined.
const maxForwarded = 16

// ParsePrefixes parses addresses and networks in CIDR notation. Faults name the setting field.
func ParsePrefixes(field string, list []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(list))
	for _, text := range list {
		if addr, err := netip.ParseAddr(text); err == nil {
			addr = addr.Unmap()
			prefixes = append(prefixes, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fault.InvalidField(field, "%q is not an address or a network such as 10.0.0.0/8", text)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// forwarded records the client of a request that a trusted proxy forwards: the last address in
// Forwarded (RFC 7239) or X-Forwarded-For that is not itself a trusted proxy. Addresses before it
// were sent by the client and may be forged.
func forwarded(next http.Handler, proxies []netip.Prefix) http.Handler {
	if len(proxies) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addr := addressOf(r.RemoteAddr); contains(proxies, addr) {
			if client := clientOf(r.Header, proxies); client.IsValid() {
				var x *exchange
				x, w, r = track(w, r)
				x.client = client
			}
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf returns the client that the headers report, or an invalid address if none. A proxy sets
// one of the two headers and may pass on the other as the client sent it. If both are present, they
// are trusted only if they agree.
func clientOf(h http.Header, proxies []netip.Prefix) netip.Addr {
	standard, usual := forwardedFor(h), splitAll(h.Values("X-Forwarded-For"))
	switch {
	case len(standard) == 0:
		return lastStranger(usual, proxies)
	case len(usual) == 0:
		return lastStranger(standard, proxies)
	}
	if client := lastStranger(standard, proxies); client == lastStranger(usual, proxies) {
		return client
	}
	return netip.Addr{}
}

// lastStranger returns the last address of a chain that is not a trusted proxy. It is invalid if
// there is none, or if a later entry is not an address, such as "unknown".
func lastStranger(chain []string, proxies []netip.Prefix) netip.Addr {
	for _, text := range slices.Backward(chain[max(0, len(chain)-maxForwarded):]) {
		addr := addressOf(text)
		if !addr.IsValid() || !contains(proxies, addr) {
			return addr
		}
	}
	return netip.Addr{}
}

// forwardedFor returns the addresses in the Forwarded header (RFC 7239), the client's first.
func forwardedFor(h http.Header) (chain []string) {
	for _, element := range splitAll(h.Values("Forwarded")) {
		for pair := range strings.SplitSeq(element, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if strings.EqualFold(name, "for") {
				chain = append(chain, strings.Trim(value, `"`))
			}
		}
	}
	return chain
}

func splitAll(lines []string) (items []string) {
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			items = append(items, strings.TrimSpace(item))
		}
	}
	return items
}

// addressOf parses an address with or without a port, and with or without brackets.
func addressOf(text string) netip.Addr {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// network returns the part of an address that belongs to one client: all of an IPv4 address, and
// the first 64 bits of an IPv6 address, since hosts choose the remaining bits freely (RFC 4291).
func network(addr netip.Addr) string {
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}

// RemoteIP returns the client's address without its port: the peer's or, if the peer is a trusted
// proxy, the one that the proxy reports.
func RemoteIP(r *http.Request) string {
	if x := exchangeOf(r.Context()); x != nil && x.client.IsValid() {
		return x.client.String()
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// RemoteNetwork is RemoteIP as a key for RateLimit: addresses that one client can choose freely
// share it.
func RemoteNetwork(r *http.Request) string {
	ip := RemoteIP(r)
	if addr := addressOf(ip); addr.IsValid() {
		return network(addr)
	}
	return ip
}
