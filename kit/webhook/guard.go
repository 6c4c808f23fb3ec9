package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	maxURLBytes  = 2048
	maxHostBytes = 253 // RFC 1035, 2.3.4, without the final full stop
	maxLabel     = 63
	fieldTarget  = "target_url"
	allowHint    = "set allow-private-targets on the server if targets inside the network are meant"
)

// ErrBlockedTarget is in the chain of every error with which a Guard refuses a target because of
// its address or name, as opposed to the form of its URL. The error is also a *fault.Error of kind
// Invalid with the code "target_blocked". Its public message does not reveal the address that a
// name resolved to; its Error text does.
var ErrBlockedTarget = errors.New("webhook: blocked target")

// Guard keeps requests to customer-chosen targets out of the server's own network (server-side
// request forgery).
//
// It refuses every address that is not public: unspecified, loopback, link-local, private,
// carrier-grade NAT, multicast, broadcast, reserved, documentation and benchmarking ranges of IPv4;
// for IPv6 everything outside global unicast, and Teredo, documentation and protocol ranges inside
// it; and IPv6 forms that embed a refused IPv4 address (mapped, compatible, NAT64, 6to4).
//
// The zero Guard is the strictest.
type Guard struct {
	// AllowPrivate permits all of these, for installations whose targets are inside the network.
	// The addresses and names of cloud metadata services, such as 169.254.169.254 and
	// fd00:ec2::254, are refused even then.
	AllowPrivate bool
}

// CheckURL checks a target when it is configured. It resolves no names; Control refuses a name that
// resolves to a refused address on connect.
//
// The URL must be at most 2048 bytes, http or https, with a host, without userinfo
// and fragment, and with a port of 1 to 65535 if any. The host is an IPv6 address
// without zone in brackets, an IPv4 address of four decimal numbers, or an ASCII
// name (use the xn-- form for others, since mapping to ASCII can turn look-alike
// digits into an address). Every other numeric spelling of IPv4 that the C library
// understands ("2130706433", "0177.0.0.1", "0x7f.1", "127.1", "127.0.0.1.") is
// refused even if the address is public, by the rule of the WHATWG URL standard
// that a host ending in a number is an IPv4 address.
//
// The names localhost, *.localhost and *.internal need AllowPrivate. Faults are of
// kind Invalid, name the field "target_url" and do not repeat the URL.
func (g Guard) CheckURL(raw string) (*url.URL, error) {
	if len(raw) > maxURLBytes {
		return nil, fault.InvalidField(fieldTarget, "must be at most %d bytes, not %d", maxURLBytes, len(raw))
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error repeats the URL, which may contain a password.
		return nil, fault.InvalidField(fieldTarget, "is not a valid URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fault.InvalidField(fieldTarget, "must begin with http:// or https://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, fault.InvalidField(fieldTarget, "must have a host")
	case u.User != nil:
		return nil, fault.InvalidField(fieldTarget, "must not contain a user name or password")
	case strings.Contains(raw, "#"):
		return nil, fault.InvalidField(fieldTarget, "must not have a fragment")
	}
	if err := g.CheckHost(u); err != nil {
		return nil, err
	}
	return u, nil
}

// CheckHost checks the host and the port of a URL of any scheme as CheckURL does.
func (g Guard) CheckHost(u *url.URL) error {
	if err := checkPort(u); err != nil {
		return err
	}
	return g.checkHost(u)
}

func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return fault.InvalidField(fieldTarget, "must have a port after the colon, or no colon")
		}
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fault.InvalidField(fieldTarget, "must have a port of 1 to 65535")
	}
	return nil
}

func (g Guard) checkHost(u *url.URL) error {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return fault.InvalidField(fieldTarget, "must have an IPv6 address without zone in the brackets")
		}
		return g.CheckAddr(addr)
	}
	if endsInNumber(host) {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return fault.InvalidField(fieldTarget, "must spell an IPv4 address as four decimal numbers, like 192.0.2.1")
		}
		return g.CheckAddr(addr)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if !validName(name) {
		return fault.InvalidField(fieldTarget, "must have a valid host name in ASCII")
	}
	return g.checkName(name)
}

// endsInNumber is the check of the same name in the WHATWG URL standard. No top-level domain is
// numeric, so it affects no real name.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if last == "" {
		return false
	}
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

func validName(name string) bool {
	if len(name) > maxHostBytes {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return false
		}
		for i := range len(label) {
			c := label[i]
			// Underscores are not valid in host names by RFC 952, but container networks use them
			// in service names.
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}

func (g Guard) checkName(name string) error {
	under := func(domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
	switch {
	case under("metadata.google.internal"), under("metadata.goog"), under("instance-data.ec2.internal"):
		return blocked("the host is a cloud metadata service, which is never a target", name)
	case g.AllowPrivate:
		return nil
	case under("localhost"):
		return blocked("the host is this server itself; "+allowHint, name)
	case under("internal"):
		return blocked("the host is inside the network; "+allowHint, name)
	}
	return nil
}

// CheckAddr refuses an address as described at Guard. The fault has ErrBlockedTarget in its chain.
func (g Guard) CheckAddr(addr netip.Addr) error {
	if isMetadata(addr) {
		return blocked("the address is that of a cloud metadata service, which is never a target", addr.String())
	}
	if reason := notPublic(addr); reason != "" && !g.AllowPrivate {
		return blocked("the address is not public ("+reason+"); "+allowHint, addr.String())
	}
	return nil
}

// Control is a hook for net.Dialer. It runs after name resolution for each address that is tried
// and before the connection is made, so a name cannot be redirected in between (DNS rebinding).
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return blocked("only TCP connections are made", network)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("webhook: address to dial: %w", err)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("webhook: address to dial: %w", err)
	}
	return g.CheckAddr(addr)
}

func blocked(why, what string) error {
	f := fault.Wrap(fault.Invalid, fmt.Errorf("%w: %s", ErrBlockedTarget, what), "%s: %s", fieldTarget, why)
	f.Field = fieldTarget
	return f.WithCode("target_blocked")
}
