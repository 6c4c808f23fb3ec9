package network

import (
	"io"
	"net/netip"
	"os"
	"strings"
)

const (
	maxResolv  = 64 << 10 // bytes of a resolv.conf that are read
	maxServers = 3        // as resolvers ask
)

// resolvFiles contain the host's name servers. The second is that of systemd-resolved, whose
// /etc/resolv.conf only contains its own loopback address.
var resolvFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// hostServers returns the name servers of the first file that has any for guests.
func hostServers(files []string) []netip.Addr {
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(f, maxResolv))
		f.Close()
		if servers := nameServers(string(text)); err == nil && len(servers) > 0 {
			return servers
		}
	}
	return nil
}

// nameServers returns the servers in a resolv.conf that guests can reach: IPv4, and not on the
// host's loopback.
func nameServers(text string) []netip.Addr {
	var found []netip.Addr
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || len(found) == maxServers {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil && a.Is4() && !a.IsLoopback() && !a.IsUnspecified() {
			found = append(found, a)
		}
	}
	return found
}
