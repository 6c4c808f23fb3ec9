package configfile

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// Community is a BGP community: two numbers of 16 bits (RFC 1997), or three of 32 bits if it is a
// large one (RFC 8092).
type Community struct {
	Large bool
	Parts [3]uint32
}

// wellKnown holds well-known communities of IANA's registry.
var wellKnown = []struct {
	name  string
	value uint16 // the first part is 65535
}{
	{
		"graceful-shutdown",
		0,
	},
	{"blackhole", 666},
	{"no-export", 0xff01},
	{"no-advertise", 0xff02},
	{"no-export-subconfed", 0xff03},
	{"no-peer", 0xff04},
}

const wellKnownASN = 0xffff

func parseCommunity(text string) (Community, error) {
	for _, w := range wellKnown {
		if text == w.name {
			return Community{Parts: [3]uint32{wellKnownASN, uint32(w.value)}}, nil
		}
	}
	parts := strings.Split(text, ":")
	c := Community{Large: len(parts) == 3}
	width := 16
	if c.Large {
		width = 32
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, width)
		if err != nil || len(parts) < 2 || i > 2 {
			names := make([]string, len(wellKnown))
			for i, w := range wellKnown {
				names[i] = w.name
			}
			return Community{}, fmt.Errorf(
				"must be ASN:VALUE of 16 bits each, ASN:VALUE:VALUE of 32 bits each, or one of %s, not %s",
				strings.Join(names, ", "), document.Quoted(text),
			)
		}
		c.Parts[i] = uint32(n) //nolint:gosec // it has at most 32 bits
	}
	return c, nil
}

// Value returns the number of a community that is not large.
func (c Community) Value() uint32 { return c.Parts[0]<<16 | c.Parts[1] }

// String returns the community as written in the document.
func (c Community) String() string {
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.Parts[0], c.Parts[1], c.Parts[2])
	}
	for _, w := range wellKnown {
		if c.Parts[0] == wellKnownASN && c.Parts[1] == uint32(w.value) {
			return w.name
		}
	}
	return fmt.Sprintf("%d:%d", c.Parts[0], c.Parts[1])
}

// maxCommunities is low enough to leave room for routes in a BGP update, which has at most 4096
// bytes.
const maxCommunities = 64

func (b *BGP) validate(p *document.Problems) {
	if !b.RouterID.Is4() || b.RouterID.IsUnspecified() || b.RouterID.IsMulticast() || isBroadcast(b.RouterID) {
		p.Add("bgp.routerID", "must be an IPv4 address of one machine, not %s", b.RouterID)
	}
	if b.NextHop4.IsValid() && (!b.NextHop4.Is4() || !isUnicast(b.NextHop4)) {
		p.Add("bgp.nextHop4", "must be an IPv4 address of this node, not %s", b.NextHop4)
	}
	if b.NextHop6.IsValid() && (!b.NextHop6.Is6() || !isUnicast(b.NextHop6)) {
		p.Add("bgp.nextHop6", "must be an IPv6 address of this node, not %s", b.NextHop6)
	} else if needsZone(b.NextHop6) {
		p.Add("bgp.nextHop6", noZone, b.NextHop6)
	}
	if b.GracefulRestart%time.Second != 0 {
		p.Add("bgp.gracefulRestart", "must be whole seconds, not %s", b.GracefulRestart)
	}
	if len(b.Peers) == 0 {
		p.Add("bgp.peers", "needs at least one peer")
	}
	if len(b.Communities) > maxCommunities {
		p.Add("bgp.communities", "are %d; there may be %d", len(b.Communities), maxCommunities)
		return
	}
	for i, c := range b.Communities {
		if slices.Contains(b.Communities[:i], c) {
			p.Add(fmt.Sprintf("bgp.communities[%d]", i), "is given twice")
		}
	}
	seen := map[netip.Addr]int{}
	for i, peer := range b.Peers {
		at := fmt.Sprintf("bgp.peers[%d].", i)
		if first, twice := seen[peer.Address]; twice {
			p.Add(at+"address", "%s is also the address of bgp.peers[%d]", peer.Address, first)
		}
		seen[peer.Address] = i
		switch {
		case peer.Address.IsUnspecified() || peer.Address.IsMulticast() || isBroadcast(peer.Address):
			p.Add(at+"address", "must be the address of a machine, not %s", peer.Address)
		case needsZone(peer.Address):
			p.Add(at+"address", noZone, peer.Address)
		}
		if peer.HoldTime%time.Second != 0 {
			p.Add(at+"holdTime", "must be whole seconds, not %s", peer.HoldTime)
		}
		switch {
		case peer.Password != "" && peer.PasswordFile != "":
			p.Add(at+"passwordFile", "cannot be combined with password; keep one of them")
		case peer.Password != "":
			if err := checkPassword(string(peer.Password)); err != nil {
				p.Add(at+"password", "%v", err)
			}
		}
	}
}

// maxPassword is TCP_MD5SIG_MAXKEYLEN, in bytes.
const maxPassword = 80

// checkPassword returns an error for an invalid password. The error does not contain the password.
func checkPassword(s string) error {
	if s == "" || len(s) > maxPassword {
		return fmt.Errorf("must have 1 to %d characters", maxPassword)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return errors.New("must have printable ASCII characters only")
		}
	}
	return nil
}

// readPasswords reads the peers' password files.
func readPasswords(folder string, b *BGP, p *document.Problems) {
	for i := range b.Peers {
		peer := &b.Peers[i]
		if peer.PasswordFile == "" || peer.Password != "" {
			continue
		}
		at := fmt.Sprintf("bgp.peers[%d].passwordFile", i)
		path := peer.PasswordFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		raw, err := document.Read(path, MaxFileSize)
		if err != nil {
			p.Add(at, "%v", err)
			continue
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
		if err := checkPassword(text); err != nil {
			p.Add(at, "what %s holds %v", path, err)
			continue
		}
		peer.Password = Secret(text)
	}
}
