package lb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// inputs holds everything that determines what is balanced and how. It is a value: plan neither
// keeps nor changes it.
type inputs struct {
	services []configfile.Service
	ids      map[datapath.BackendKey]int
	// health holds the results of probes. The health of a backend that is not in it is unknown.
	health map[probe.ID]health
	// drained holds the IDs of the backends that an operator drained.
	drained map[int]bool
	// orchestrated holds the drains of orchestrators by source. Port 0 stands for all ports.
	orchestrated map[string]map[datapath.BackendKey]bool
	// weights override the weights of the document.
	weights map[probe.ID]uint16
	hop     func(Target) datapath.NextHop
	// devices are the interfaces that the program is attached to.
	devices []string
}

// health is the result of a probe and its reason.
type health struct {
	healthy bool
	detail  string
}

// planned is a VIP as it should be balanced, with details that only the API shows.
type planned struct {
	datapath.VIP
	backends []plannedBackend // one for each of VIP.Backends, in the same order
}

type plannedBackend struct {
	id         int
	healthy    bool
	detail     string
	drained    bool // by an operator
	overridden bool // the weight differs from the document's
}

// plan computes what the datapath should do.
func plan(in inputs) []planned {
	out := make([]planned, len(in.services))
	for i := range in.services {
		s := &in.services[i]
		p := planned{
			VIP: datapath.VIP{
				VIPKey:            s.VIPKey,
				Mode:              s.Mode,
				SNAT:              s.SNAT,
				ClientAffinity:    s.ClientAffinity,
				NewFlowsPerSecond: s.RateLimit,
				Backends:          make([]datapath.Backend, len(s.Endpoints)),
			},
			backends: make([]plannedBackend, len(s.Endpoints)),
		}
		for j, e := range s.Endpoints {
			p.VIP.Backends[j], p.backends[j] = in.backend(s, e)
		}
		out[i] = p
	}
	return out
}

func (in *inputs) backend(s *configfile.Service, e configfile.Endpoint) (datapath.Backend, plannedBackend) {
	id := probe.ID{VIP: s.VIPKey, Backend: e.BackendKey}
	found := in.health[id]
	if s.Check.Type == configfile.CheckNone {
		found = health{healthy: true, detail: "not checked"}
	} else if found.detail == "" && !found.healthy {
		found.detail = "not checked yet"
	}
	hop := in.hop(Target{e.Address, e.MAC})
	if why := outOfReach(hop, in.devices); why != "" {
		found = health{detail: why}
	}
	row := plannedBackend{id: in.ids[e.BackendKey], healthy: found.healthy, detail: found.detail}
	row.drained = in.drained[row.id]
	b := datapath.Backend{
		BackendKey: e.BackendKey, Weight: e.Weight, Hop: hop,
		State: stateOf(found.healthy, row.drained, in.orchestratorDrains(e.BackendKey)),
	}
	if w, ok := in.weights[id]; ok {
		b.Weight, row.overridden = w, true
	}
	return b, row
}

// outOfReach returns why the datapath cannot reach a backend even though it may answer probes,
// which the node's own network carries. It returns "" if there is no reason. The program sees only
// packets that arrive on the interfaces that it is attached to: it would never see replies of a
// backend behind another interface, and it cannot send to the node itself.
func outOfReach(hop datapath.NextHop, devices []string) string {
	switch {
	case hop.Own:
		return "the address is this node's own; a backend must be another machine, or have a network namespace with an address of its own"
	case hop.Device != "" && len(devices) > 0 && !slices.Contains(devices, hop.Device):
		return fmt.Sprintf(
			"it is reached by interface %s, and the load balancer is attached to %s only; add %s to backendInterfaces, or change the route to it",
			hop.Device, strings.Join(devices, ", "), hop.Device,
		)
	}
	return hop.Impassable
}

// stateOf returns the state of a backend: a failed probe takes precedence over a drain, and a drain
// over health, no matter who started the drain.
func stateOf(healthy, operatorDrains, orchestratorDrains bool) datapath.State {
	switch {
	case !healthy:
		return datapath.Down
	case operatorDrains || orchestratorDrains:
		return datapath.Draining
	}
	return datapath.Healthy
}

func (in *inputs) orchestratorDrains(b datapath.BackendKey) bool {
	for _, drains := range in.orchestrated {
		if drains[b] || drains[datapath.BackendKey{Address: b.Address}] {
			return true
		}
	}
	return false
}

// vipsOf returns the part of a plan that goes to the datapath.
func vipsOf(plan []planned) []datapath.VIP {
	vips := make([]datapath.VIP, len(plan))
	for i := range plan {
		vips[i] = plan[i].VIP
	}
	return vips
}

// backendIDs numbers the backends (address and port) from 1. A backend keeps its number as long as
// it is configured. The number is not reused afterwards.
type backendIDs struct {
	byKey map[datapath.BackendKey]int
	last  int
}

// update returns the numbers of the backends of services. New backends get theirs in order of
// appearance.
func (b *backendIDs) update(services []configfile.Service) map[datapath.BackendKey]int {
	next := map[datapath.BackendKey]int{}
	for i := range services {
		for _, e := range services[i].Endpoints {
			if _, done := next[e.BackendKey]; done {
				continue
			}
			id, known := b.byKey[e.BackendKey]
			if !known {
				b.last++
				id = b.last
			}
			next[e.BackendKey] = id
		}
	}
	b.byKey = next
	return next
}
