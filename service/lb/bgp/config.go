package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config holds the settings of a Speaker.
type Config struct {
	LocalASN uint32
	RouterID netip.Addr // IPv4
	// Communities are added to every announcement: ASN in the upper half, value in the lower.
	Communities []uint32
	// LargeCommunities are added too; each has three numbers (RFC 8092).
	LargeCommunities [][3]uint32
	// NextHop4 and NextHop6 are announced as the next hop of all routes of their family. If one is
	// not set, each session uses its own local address, and routes of that family go only to peers
	// that are connected over it.
	NextHop4, NextHop6 netip.Addr
	// GracefulRestart is how long routers keep the routes after the process has ended or died, so
	// that the next one can take over (RFC 4724). It is in whole seconds, at most 4095; 0 makes
	// routers drop the routes at once.
	GracefulRestart time.Duration
	// Restarting means that an earlier process announced routes and that forwarding has continued
	// since. New sessions tell the routers so.
	Restarting bool
	Peers      []Peer
}

// Peer is a router to connect to.
type Peer struct {
	Address  netip.Addr
	Port     uint16 // 0 means 179
	ASN      uint32 // the node's own ASN for iBGP
	Password string // for TCP MD5, at most 80 bytes; empty means none
	// HoldTime is proposed to the peer, which may lower it: whole seconds, 3 to 65535. Keepalives
	// are sent three times per hold time.
	HoldTime time.Duration
}

const (
	defaultPort  = 179
	minHoldTime  = 3 * time.Second
	maxHoldTime  = 65535 * time.Second
	maxPassword  = 80 // TCP_MD5SIG_MAXKEYLEN; the kernel would use only a part of a longer one
	connectRetry = 5  // seconds
	// deferral is how long a restarted speaker waits for the other sessions to come up before it
	// sends a router End-of-RIB, in seconds.
	deferral   = 5
	maxRestart = 4095 * time.Second // 12 bits of the capability
)

// check returns an error for the first setting with which sessions would not come up or not work as
// intended.
func (c *Config) check() error {
	switch {
	case c.LocalASN == 0:
		return fault.InvalidField("localASN", "must be 1 to 4294967295")
	case !c.RouterID.Is4() || c.RouterID.IsUnspecified():
		return fault.InvalidField("routerID", "must be an IPv4 address")
	case c.NextHop4.IsValid() && !c.NextHop4.Is4():
		return fault.InvalidField("nextHop4", "must be an IPv4 address")
	case c.NextHop6.IsValid() && !c.NextHop6.Is6():
		return fault.InvalidField("nextHop6", "must be an IPv6 address")
	case c.GracefulRestart < 0 || c.GracefulRestart > maxRestart || c.GracefulRestart%time.Second != 0:
		return fault.InvalidField("gracefulRestart", "must be whole seconds, at most %s", maxRestart)
	}
	for i, p := range c.Peers {
		if err := p.check(fmt.Sprintf("peers[%d].", i)); err != nil {
			return err
		}
		if slices.ContainsFunc(c.Peers[:i], func(other Peer) bool { return other.Address == p.Address }) {
			return fault.InvalidField(fmt.Sprintf("peers[%d].address", i), "%s is given twice", p.Address)
		}
	}
	return nil
}

func (p Peer) check(prefix string) error {
	switch {
	case !p.Address.IsValid() || p.Address.IsUnspecified() || p.Address.IsMulticast() || p.Address.Is4In6():
		return fault.InvalidField(prefix+"address", "must be the address of a machine")
	case p.ASN == 0:
		return fault.InvalidField(prefix+"asn", "must be 1 to 4294967295")
	case p.HoldTime < minHoldTime || p.HoldTime > maxHoldTime || p.HoldTime%time.Second != 0:
		return fault.InvalidField(prefix+"holdTime", "must be whole seconds from %s to %s", minHoldTime, maxHoldTime)
	case len(p.Password) > maxPassword:
		return fault.InvalidField(prefix+"password", "must have at most %d bytes", maxPassword)
	}
	return nil
}

// families reports which routes a peer receives: those of the session's own family, and those of
// the other one if their next hop is set.
func (c *Config) families(p Peer) (ipv4, ipv6 bool) {
	return p.Address.Is4() || c.NextHop4.IsValid(), p.Address.Is6() || c.NextHop6.IsValid()
}

// Carries reports whether any peer receives addresses of this family.
func (c *Config) Carries(address netip.Addr) bool {
	return slices.ContainsFunc(c.Peers, func(p Peer) bool {
		ipv4, ipv6 := c.families(p)
		return ipv4 && address.Is4() || ipv6 && address.Is6()
	})
}

// sameMarks reports whether two configurations have the same communities and next hops.
func sameMarks(a, b *Config) bool {
	return slices.Equal(a.Communities, b.Communities) && slices.Equal(a.LargeCommunities, b.LargeCommunities) &&
		a.NextHop4 == b.NextHop4 && a.NextHop6 == b.NextHop6
}

func (c *Config) clone() *Config {
	copied := *c
	copied.Communities = slices.Clone(c.Communities)
	copied.LargeCommunities = slices.Clone(c.LargeCommunities)
	copied.Peers = slices.Clone(c.Peers)
	return &copied
}
