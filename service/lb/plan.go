package lb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// inputs is everything that decides what is balanced and how. It is a value: plan
// neither keeps nor changes it.
type inputs struct {
	services []configfile.Service
	ids      map[datapath.BackendKey]int
	// health is what the probes found; a backend that is not in it is not known yet.
	health map[probe.ID]health
	// drained are the ids that an operator drained.
	drained map[int]bool
	// orchestrated are the drains of orchestrators, by source. A port of 0 is all ports.
	orchestrated map[string]map[datapath.BackendKey]bool
	// weights override those of the document.
	weights map[probe.ID]uint16
	hop     func(Target) datapath.NextHop
	// devices are the interfaces that are attached to.
	devices []string
}

// health is what a probe found, and why.
type health struct {
	healthy bool
	detail  string
}

// planned is a VIP as it shall be balanced, with what only the API shows of it.
type planned struct {
	datapath.VIP
	backends []plannedBackend // one for each of VIP.Backends, in their order
}

type plannedBackend struct {
	id         int
	healthy    bool
	detail     string
	drained    bool // by an operator
	overridden bool // the weight is not the document's
}

// plan decides what the datapath shall do.
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

// outOfReach says why a backend cannot be served, though it may answer probes, which the
// node's own network carries. It is empty if nothing speaks against it. The program sees
// only what comes in on the interfaces that it is attached to: it would never see what a
// backend behind another one answers, and cannot send to the node itself.
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

// stateOf is the rule of states: a failed probe wins over a drain, and a drain over
// health, whoever asked for it.
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

// vipsOf is what goes to the datapath.
func vipsOf(plan []planned) []datapath.VIP {
	vips := make([]datapath.VIP, len(plan))
	for i := range plan {
		vips[i] = plan[i].VIP
	}
	return vips
}

// backendIDs gives each backend, an address and port, a number from 1 on. A number
// lasts as long as its backend is configured, and is not given again afterwards.
type backendIDs struct {
	byKey map[datapath.BackendKey]int
	last  int
}

// update returns the numbers of the backends of services, in order of appearance
// for new ones.
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
