package httpserve

import (
	"net"
	"net/netip"
	"strings"
)

// Loopback reports whether a host name or address is this machine's loopback.
func Loopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761, section 6.3
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// Local reports whether only programs on this machine can reach the Listen address.
func (c Config) Local() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && Loopback(host)
}

// Listening returns the address that the server listens on, for the log. Unlike URL it notes if
// that is every address of the machine.
func (s *Server) Listening() string { return Listening(s.ln.Addr()) }

// Listening returns the address of a listener, for the log.
func Listening(a net.Addr) string {
	address := a.String()
	if host, _, _ := net.SplitHostPort(address); net.ParseIP(host).IsUnspecified() {
		return address + ", all addresses"
	}
	return address
}
