package bgp

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// host returns the host route of an address, to be announced or withdrawn.
func (c *Config) host(address netip.Addr) (*apiutil.Path, error) {
	prefix, err := bgp.NewIPAddrPrefix(netip.PrefixFrom(address, address.BitLen()))
	if err != nil {
		return nil, err
	}
	// An unspecified next hop becomes the local address of each session.
	family, hop, unspecified := bgp.RF_IPv4_UC, c.NextHop4, netip.IPv4Unspecified()
	if address.Is6() {
		family, hop, unspecified = bgp.RF_IPv6_UC, c.NextHop6, netip.IPv6Unspecified()
	}
	if !hop.IsValid() {
		hop = unspecified
	}
	nextHop, err := bgp.NewPathAttributeNextHop(hop)
	if err != nil {
		return nil, err
	}
	attributes := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), nextHop}
	if len(c.Communities) > 0 {
		attributes = append(attributes, bgp.NewPathAttributeCommunities(slices.Clone(c.Communities)))
	}
	if len(c.LargeCommunities) > 0 {
		large := make([]*bgp.LargeCommunity, len(c.LargeCommunities))
		for i, l := range c.LargeCommunities {
			large[i] = bgp.NewLargeCommunity(l[0], l[1], l[2])
		}
		attributes = append(attributes, bgp.NewPathAttributeLargeCommunities(large))
	}
	return &apiutil.Path{Family: family, Nlri: prefix, Age: time.Now().Unix(), Attrs: attributes}, nil
}

// neighbor converts a peer for the BGP library.
func (c *Config) neighbor(p Peer) *api.Peer {
	port := p.Port
	if port == 0 {
		port = defaultPort
	}
	hold := uint64(p.HoldTime / time.Second)
	peer := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.ASN, AuthPassword: p.Password},
		Timers: &api.Timers{
			Config: &api.TimersConfig{
				ConnectRetry:           connectRetry,
				HoldTime:               hold,
				KeepaliveInterval:      hold / 3,
				IdleHoldTimeAfterReset: connectRetry,
			},
		},
		Transport: &api.Transport{RemotePort: uint32(port)},
	}
	ipv4, ipv6 := c.families(p)
	if ipv4 {
		peer.AfiSafis = append(peer.AfiSafis, unicast(api.Family_AFI_IP))
	}
	if ipv6 {
		peer.AfiSafis = append(peer.AfiSafis, unicast(api.Family_AFI_IP6))
	}
	if c.GracefulRestart > 0 {
		peer.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(c.GracefulRestart / time.Second),
			DeferralTime:    deferral,
			LocalRestarting: c.Restarting,
		} //nolint:gosec // bounded
		for _, family := range peer.AfiSafis {
			family.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
		}
	}
	return peer
}

// maxRoutes is how many routes of a family a peer may announce. The library keeps a copy of each,
// although nothing uses it.
const maxRoutes = 10000

func unicast(afi api.Family_Afi) *api.AfiSafi {
	family := &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}
	return &api.AfiSafi{
		Config:       &api.AfiSafiConfig{Family: family, Enabled: true},
		PrefixLimits: &api.PrefixLimit{Family: family, MaxPrefixes: maxRoutes},
	}
}

// takeNothing makes the library reject all routes but the speaker's own. Otherwise it would pass on
// to each peer what it learned from the others.
func takeNothing(ctx context.Context, engine *server.BgpServer) error {
	policy := &api.Policy{Name: "own-routes", Statements: []*api.Statement{{
		Name:       "own-routes",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := engine.AddPolicy(ctx, &api.AddPolicyRequest{Policy: policy}); err != nil {
		return err
	}
	return engine.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies: []*api.Policy{policy}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}
