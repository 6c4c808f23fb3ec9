package lb

import (
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// toAnnounce returns the addresses that BGP announces: those with at least one healthy backend.
// Draining backends do not count, since they take no new connections, and other nodes can serve
// those. wanted is what should be balanced and inKernel is what the kernel balances. An address
// must have a healthy backend in both, so that the node attracts no packets that it cannot serve.
func toAnnounce(wanted, inKernel []datapath.VIP) []netip.Addr {
	healthy := healthyAddresses(wanted)
	served := healthyAddresses(inKernel)
	var out []netip.Addr
	for address := range healthy {
		if served[address] {
			out = append(out, address)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func healthyAddresses(vips []datapath.VIP) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for i := range vips {
		for _, b := range vips[i].Backends {
			if b.State == datapath.Healthy {
				out[vips[i].Address] = true
				break
			}
		}
	}
	return out
}

// carried returns the addresses that at least one peer receives, given the families of the
// sessions.
func carried(addresses []netip.Addr, b *configfile.BGP) []netip.Addr {
	if b == nil {
		return nil
	}
	speaks := speakerConfig(b)
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !speaks.Carries(a) })
}

// speakerConfig converts the BGP section of the document. It returns nil if there is none.
func speakerConfig(b *configfile.BGP) *bgp.Config {
	if b == nil {
		return nil
	}
	out := &bgp.Config{
		GracefulRestart: b.GracefulRestart,
		LocalASN:        b.LocalASN,
		RouterID:        b.RouterID,
		NextHop4:        b.NextHop4,
		NextHop6:        b.NextHop6,
	}
	for _, c := range b.Communities {
		if c.Large {
			out.LargeCommunities = append(out.LargeCommunities, c.Parts)
		} else {
			out.Communities = append(out.Communities, c.Value())
		}
	}
	for _, p := range b.Peers {
		out.Peers = append(
			out.Peers,
			bgp.Peer{Address: p.Address, Port: p.Port, ASN: p.ASN, Password: string(p.Password), HoldTime: p.HoldTime},
		)
	}
	return out
}
