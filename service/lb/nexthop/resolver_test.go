//go:build linux

package nexthop_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/nexthop"
)

type net struct {
	t                   *testing.T
	node, near, far, gw *netlab.Host
	resolver            *nexthop.Resolver
}

// newNet is a node with a neighbour and a router on one switch, and a far host behind
// the router.
func newNet(t *testing.T) *net {
	t.Helper()
	lab := netlabtest.New(t)
	n := &net{t: t}
	sw, err := lab.Switch("switch")
	n.must(err)
	for _, h := range []struct {
		host      **netlab.Host
		name      string
		addresses []netip.Prefix
	}{
		{&n.node, "node", prefixes("10.0.0.1/24", "fd00::1/64")},
		{&n.near, "near", prefixes("10.0.0.2/24", "fd00::2/64")},
		{&n.gw, "gw", prefixes("10.0.0.3/24")},
	} {
		*h.host, err = lab.Host(h.name)
		n.must(err)
		n.must(netlab.Plug(sw, *h.host, "eth0", h.addresses...))
	}
	n.far, err = lab.Host("far")
	n.must(err)
	n.must(netlab.Join(n.gw, "eth1", n.far, "eth0"))
	n.must(n.node.Do(func() error {
		n.resolver, err = nexthop.New("eth0", slog.New(slog.NewTextHandler(t.Output(), nil)))
		return err
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.resolver.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		n.must(<-done)
	})
	return n
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func (n *net) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *net) mac(h *netlab.Host) datapath.MAC {
	n.t.Helper()
	mac, err := h.MAC("eth0")
	n.must(err)
	return mac
}

// await waits until the resolver sends to a target by a MAC, or not at all if it is zero.
func (n *net) await(target nexthop.Target, mac datapath.MAC) datapath.NextHop {
	n.t.Helper()
	timeout := time.After(time.Minute)
	for {
		hop := n.resolver.Lookup(target)
		if hop.Destination == mac {
			return hop
		}
		select {
		case <-n.resolver.Changed():
		case <-timeout:
			n.t.Fatalf("the way to %v is %+v, want by %v", target, hop, mac)
		}
	}
}

func TestNeighboursAndHostsBehindARouterAreFound(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	near4, near6 := nexthop.Target{
		Address: netip.MustParseAddr("10.0.0.2"),
	}, nexthop.Target{
		Address: netip.MustParseAddr("fd00::2"),
	}
	far := nexthop.Target{Address: netip.MustParseAddr("10.7.0.1")}
	given := nexthop.Target{Address: netip.MustParseAddr("192.0.2.1"), MAC: datapath.MAC{2, 0, 0, 0, 0, 9}}
	n.must(n.node.Route(netip.MustParsePrefix("10.7.0.0/24"), netip.MustParseAddr("10.0.0.3")))
	n.resolver.Want([]nexthop.Target{near4, near6, far, given})
	if hop := n.await(
		near4, n.mac(n.near),
	); hop.Source != n.mac(n.node) || hop.MTU != 1500 || hop.Local != netip.MustParseAddr("10.0.0.1") || hop.Device != "eth0" ||
		!hop.Known() {
		t.Errorf("%+v", hop)
	}
	if hop := n.await(near6, n.mac(n.near)); hop.Local != netip.MustParseAddr("fd00::1") {
		t.Errorf("%+v", hop)
	}
	n.await(far, n.mac(n.gw))
	n.await(given, given.MAC)
}

func TestARouteThatChangesChangesTheWay(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	far := nexthop.Target{Address: netip.MustParseAddr("10.7.0.1")}
	n.resolver.Want([]nexthop.Target{far})
	n.must(n.node.Route(netip.MustParsePrefix("10.7.0.0/24"), netip.MustParseAddr("10.0.0.3")))
	n.await(far, n.mac(n.gw))
	n.must(n.node.Route(netip.MustParsePrefix("10.7.0.0/24"), netip.MustParseAddr("10.0.0.2")))
	n.await(far, n.mac(n.near))
	n.must(n.node.Down("eth0"))
	n.await(far, datapath.MAC{})
}

func TestOwnAddressesAndUnknownOnesHaveNoWay(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	near := nexthop.Target{Address: netip.MustParseAddr("10.0.0.2")}
	self, nobody, nowhere := nexthop.Target{
		Address: netip.MustParseAddr("10.0.0.1"),
	}, nexthop.Target{
		Address: netip.MustParseAddr("10.0.0.77"),
	}, nexthop.Target{
		Address: netip.MustParseAddr("203.0.113.1"),
	}
	n.resolver.Want([]nexthop.Target{near, self, nobody, nowhere})
	n.await(near, n.mac(n.near))
	for _, target := range []nexthop.Target{self, nobody, nowhere} {
		if hop := n.resolver.Lookup(target); hop.Known() || hop.Own != (target == self) ||
			(hop.Device == "eth0") != (target == nobody) {
			t.Errorf("%v: %+v", target, hop)
		}
	}
}

func TestNewsOfInterfacesComeAtOnce(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	await := func(what string) {
		t.Helper()
		select {
		case <-n.resolver.Links():
		case <-time.After(time.Minute):
			t.Fatalf("no news of %s", what)
		}
	}
	n.must(n.node.SetMTU("eth0", 1400))
	await("another MTU")
	n.must(n.node.Address("eth0", netip.MustParsePrefix("10.0.0.9/24")))
	await("another address")
}

func TestABackendBehindAnInterfaceThatIsDownSaysSo(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	n.must(netlab.Join(n.node, "eth1", n.far, "eth1"))
	n.must(n.node.Address("eth1", netip.MustParsePrefix("10.8.0.1/24")))
	n.must(n.far.Address("eth1", netip.MustParsePrefix("10.8.0.2/24")))
	mac, err := n.far.MAC("eth1")
	n.must(err)
	target := nexthop.Target{Address: netip.MustParseAddr("10.8.0.2")}
	n.resolver.Want([]nexthop.Target{target})
	n.await(target, mac)
	for _, c := range []struct {
		host *netlab.Host
		why  string
	}{
		{n.far, "interface eth1 has no carrier"},
		{n.node, "interface eth1 is down"},
	} {
		n.must(c.host.Down("eth1"))
		if hop := n.await(target, datapath.MAC{}); hop.Impassable != c.why || hop.Device != "eth1" {
			t.Errorf("%+v, want %s", hop, c.why)
		}
		n.must(c.host.Up("eth1"))
		if hop := n.await(target, mac); hop.Impassable != "" {
			t.Errorf("%+v", hop)
		}
	}
}
