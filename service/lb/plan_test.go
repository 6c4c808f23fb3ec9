package lb

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

const twoVIPs = `
interface: eth0
vips:
  - address: 192.0.2.1
    port: 80
    backends: [{address: 10.0.0.1, weight: 5}, {address: 10.0.0.2}]
  - address: 192.0.2.1
    port: 81
    backends: [{address: 10.0.0.1, port: 80}, {address: 10.0.0.3}]
  - address: 192.0.2.2
    port: 53
    protocol: udp
    healthCheck: {type: none}
    backends: [{address: 10.0.0.2, port: 80}]
`

func noHop(Target) datapath.NextHop { return datapath.NextHop{} }

// Whatever happens in whatever order, the states are those that the rules say.
func TestRandomWalksKeepTheRulesOfStates(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	services := parsed(t, twoVIPs).Expand()
	ids := (&backendIDs{}).update(services)
	in := inputs{services: services, ids: ids, health: map[probe.ID]health{}, drained: map[int]bool{},
		orchestrated: map[string]map[datapath.BackendKey]bool{}, weights: map[probe.ID]uint16{}, hop: noHop}
	var pairs []probe.ID
	for _, s := range services {
		for _, e := range s.Endpoints {
			pairs = append(pairs, probe.ID{VIP: s.VIPKey, Backend: e.BackendKey})
		}
	}
	seen := map[datapath.State]int{}
	for step := range 20000 {
		pair := pairs[random.IntN(len(pairs))]
		id := ids[pair.Backend]
		source := []string{"a", "b"}[random.IntN(2)]
		switch random.IntN(7) {
		case 0:
			in.health[pair] = health{random.IntN(3) > 0, "x"}
		case 1:
			in.drained[id] = true
		case 2:
			delete(in.drained, id)
		case 3:
			in.orchestrated[source] = map[datapath.BackendKey]bool{pair.Backend: true}
		case 4:
			in.orchestrated[source] = map[datapath.BackendKey]bool{{Address: pair.Backend.Address}: true}
		case 5:
			delete(in.orchestrated, source)
		case 6:
			in.weights[pair] = uint16(1 + random.IntN(1000)) //nolint:gosec // small
		}
		for i, p := range plan(in) {
			for j, b := range p.VIP.Backends {
				row := p.backends[j]
				key := probe.ID{VIP: p.VIPKey, Backend: b.BackendKey}
				orchestrated := false
				for _, drains := range in.orchestrated {
					for d := range drains {
						orchestrated = orchestrated || d.Address == b.Address && (d.Port == 0 || d.Port == b.Port)
					}
				}
				healthy := in.health[key].healthy || i == 2 // which is not checked
				want := datapath.Healthy
				if in.drained[row.id] || orchestrated {
					want = datapath.Draining
				}
				if !healthy {
					want = datapath.Down
				}
				if b.State != want || row.healthy != healthy || row.drained != in.drained[row.id] {
					t.Fatalf("step %d: %s is %s, want %s; row %+v", step, key.Backend, b.State, want, row)
				}
				if w, ok := in.weights[key]; ok != row.overridden || ok && b.Weight != w ||
					!ok && b.Weight != services[i].Endpoints[j].Weight {
					t.Fatalf("step %d: %s has weight %d, row %+v", step, key.Backend, b.Weight, row)
				}
				seen[want]++
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the walk met %v only", seen)
	}
}

func TestAPlanSaysWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	services := parsed(
		t,
		"interface: eth0\ntunnelSource: 10.9.9.9\nvips: [{address: 192.0.2.1, portRange: 80-90, mode: dsr-gre, sessionAffinity: clientIP, rateLimit: 7, backends: [{address: 10.0.0.1}]},"+
			"{address: 192.0.2.1, port: 81, snat: true}]",
	).Expand()
	hop := datapath.NextHop{Interface: 3, MTU: 1500}
	got := vipsOf(plan(inputs{services: services, hop: func(to Target) datapath.NextHop {
		if to != (Target{Address: netip.MustParseAddr("10.0.0.1")}) {
			t.Errorf("asked for the way to %v", to)
		}
		return hop
	}}))
	address := netip.MustParseAddr("192.0.2.1")
	want := []datapath.VIP{
		{
			VIPKey:            datapath.VIPKey{Address: address, Port: 80, LastPort: 90, Protocol: datapath.TCP},
			Mode:              datapath.DSRGRE,
			ClientAffinity:    true,
			NewFlowsPerSecond: 7,
			Backends: []datapath.Backend{
				{
					BackendKey: datapath.BackendKey{Address: netip.MustParseAddr("10.0.0.1")},
					Weight:     1,
					State:      datapath.Down,
					Hop:        hop,
				},
			},
		},
		{
			VIPKey:   datapath.VIPKey{Address: address, Port: 81, LastPort: 81, Protocol: datapath.TCP},
			SNAT:     true,
			Backends: []datapath.Backend{},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !equalVIPs(got, want) || equalVIPs(got, want[:1]) {
		t.Error("equal VIPs are not found so")
	}
}

func TestIdsOfBackendsAreStableAndNeverGivenTwice(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	var b backendIDs
	owner := map[int]datapath.BackendKey{} // of every id ever
	var before map[datapath.BackendKey]int
	for range 500 {
		var s configfile.Service
		for range random.IntN(6) {
			s.Endpoints = append(
				s.Endpoints, configfile.Endpoint{BackendKey: datapath.BackendKey{Port: uint16(1 + random.IntN(8))}},
			) //nolint:gosec // small
		}
		now := b.update([]configfile.Service{s, s})
		for key, id := range now {
			old, stayed := before[key]
			_, used := owner[id]
			if stayed && old != id || !stayed && used || id < 1 {
				t.Fatalf("%v has id %d, had %d", key, id, old)
			}
			owner[id] = key
		}
		before = now
	}
	services := parsed(t, twoVIPs).Expand()
	first := (&backendIDs{}).update(services)
	for i, text := range []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:81"} {
		at := netip.MustParseAddrPort(text)
		if id := first[datapath.BackendKey{Address: at.Addr(), Port: at.Port()}]; id != i+1 {
			t.Errorf("%s has id %d", text, id)
		}
	}
}

func TestAnAddressIsAnnouncedWhileTheKernelHasAHealthyBackendForIt(t *testing.T) {
	t.Parallel()
	vip := func(address string, states ...datapath.State) datapath.VIP {
		v := datapath.VIP{VIPKey: datapath.VIPKey{Address: netip.MustParseAddr(address)}}
		for _, s := range states {
			v.Backends = append(v.Backends, datapath.Backend{State: s})
		}
		return v
	}
	const up, out, down = datapath.Healthy, datapath.Draining, datapath.Down
	wanted := []datapath.VIP{
		vip("192.0.2.9", up), vip("192.0.2.1", down), vip("192.0.2.1", down, up), vip("192.0.2.2", out),
		vip("192.0.2.3"), vip("192.0.2.4", up),
	}
	got := toAnnounce(wanted, wanted[:5])
	if want := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"),
		netip.MustParseAddr("192.0.2.9"),
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got := toAnnounce(wanted[1:2], wanted); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestAnAddressIsAnnouncedToPeersThatGetItsFamily(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	peer := func(address string) configfile.BGP {
		return configfile.BGP{Peers: []configfile.Peer{{Address: netip.MustParseAddr(address)}}}
	}
	both := peer("10.0.0.254")
	both.NextHop6 = netip.MustParseAddr("fd00::9")
	for _, tt := range []struct {
		bgp  configfile.BGP
		want []netip.Addr
	}{{peer("10.0.0.254"), []netip.Addr{four}}, {peer("fd00::fe"), []netip.Addr{six}}, {both, []netip.Addr{four, six}}, {configfile.BGP{}, nil}} {
		if got := carried([]netip.Addr{four, six}, &tt.bgp); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v", tt.bgp.Peers, got)
		}
	}
	if got := carried([]netip.Addr{four}, nil); len(got) != 0 {
		t.Errorf("without BGP: %v", got)
	}
}

func TestABackendOutOfReachIsDownAndSaysWhy(t *testing.T) {
	t.Parallel()
	document := "interface: eth0\nbackendInterfaces: [eth1]\nvips: [{address: 192.0.2.1, port: 80, healthCheck: {type: none}, backends: [{address: 10.0.0.1}]}]"
	cfg := parsed(t, document)
	for name, c := range map[string]struct {
		hop  datapath.NextHop
		want datapath.State
		why  string
	}{
		"on the first interface":         {datapath.NextHop{Device: "eth0", Interface: 2}, datapath.Healthy, "not checked"},
		"on another that is attached to": {datapath.NextHop{Device: "eth1", Interface: 3}, datapath.Healthy, "not checked"},
		"no way yet":                     {datapath.NextHop{}, datapath.Healthy, "not checked"},
		"no neighbour yet":               {datapath.NextHop{Device: "eth1"}, datapath.Healthy, "not checked"},
		"behind one that is down":        {datapath.NextHop{Device: "eth1", Impassable: "interface eth1 is down"}, datapath.Down, "interface eth1 is down"},
		"behind another interface":       {datapath.NextHop{Device: "eth2", Interface: 4}, datapath.Down, "reached by interface eth2"},
		"behind another, no neighbour":   {datapath.NextHop{Device: "eth2"}, datapath.Down, "add eth2 to backendInterfaces"},
		"the node itself":                {datapath.NextHop{Own: true}, datapath.Down, "this node's own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan(inputs{services: cfg.Expand(), devices: cfg.Interfaces(), hop: func(Target) datapath.NextHop { return c.hop }})[0]
			if got, row := p.VIP.Backends[0].State, p.backends[0]; got != c.want ||
				!strings.Contains(row.detail, c.why) ||
				row.healthy != (c.want == datapath.Healthy) {
				t.Errorf("%s, %+v", got, row)
			}
			if announced := toAnnounce(
				vipsOf([]planned{p}), vipsOf([]planned{p}),
			); (len(announced) == 1) != (c.want == datapath.Healthy) {
				t.Errorf("announced: %v", announced)
			}
		})
	}
}
