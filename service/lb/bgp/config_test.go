//go:build linux

package bgp_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/bgp"
)

func TestWrongSettingsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		field  string
		change func(*bgp.Config)
	}{
		"no ASN":                 {"localASN", func(c *bgp.Config) { c.LocalASN = 0 }},
		"no router id":           {"routerID", func(c *bgp.Config) { c.RouterID = netip.Addr{} }},
		"IPv6 router id":         {"routerID", func(c *bgp.Config) { c.RouterID = netip.MustParseAddr("2001:db8::1") }},
		"IPv6 for IPv4":          {"nextHop4", func(c *bgp.Config) { c.NextHop4 = netip.MustParseAddr("2001:db8::1") }},
		"IPv4 for IPv6":          {"nextHop6", func(c *bgp.Config) { c.NextHop6 = netip.MustParseAddr("192.0.2.1") }},
		"peer without address":   {"peers[1].address", func(c *bgp.Config) { c.Peers[1].Address = netip.Addr{} }},
		"peer twice":             {"peers[1].address", func(c *bgp.Config) { c.Peers[1].Address = c.Peers[0].Address }},
		"mapped address":         {"peers[0].address", func(c *bgp.Config) { c.Peers[0].Address = netip.MustParseAddr("::ffff:10.0.0.1") }},
		"peer without ASN":       {"peers[0].asn", func(c *bgp.Config) { c.Peers[0].ASN = 0 }},
		"hold time too short":    {"peers[0].holdTime", func(c *bgp.Config) { c.Peers[0].HoldTime = 2 * time.Second }},
		"hold time not of whole": {"peers[0].holdTime", func(c *bgp.Config) { c.Peers[0].HoldTime = 3500 * time.Millisecond }},
		"password too long":      {"peers[1].password", func(c *bgp.Config) { c.Peers[1].Password = strings.Repeat("hidden", 20) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := config(
				bgp.Peer{Address: netip.MustParseAddr("10.0.0.1"), ASN: 65000, HoldTime: 9 * time.Second},
				bgp.Peer{Address: netip.MustParseAddr("10.0.0.2"), ASN: 65000, HoldTime: 9 * time.Second},
			)
			c.change(wrong)
			s := bgp.New(slog.New(slog.DiscardHandler), nil)
			err := s.Configure(wrong)
			if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field {
				t.Errorf("error %v, want one of the field %s", err, c.field)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("a password in %v", err)
			}
			if n := len(s.Sessions()); n > 0 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

func TestOnlyAddressesAreAnnounced(t *testing.T) {
	t.Parallel()
	for _, wrong := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("::ffff:192.0.2.1")} {
		if err := bgp.New(slog.New(slog.DiscardHandler), nil).Announce(
			[]netip.Addr{wrong},
		); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
