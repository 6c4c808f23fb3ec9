package lb

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// snapshot is the state of the node at one moment, for the API and the metrics.
type snapshot struct {
	cfg       *configfile.Config
	plan      []planned
	counters  datapath.Counters
	attached  string // generic or native; empty if nothing is attached
	announced []netip.Addr
	sessions  []bgp.Session
	// orchestrated holds the drains of orchestrators, sorted by source.
	orchestrated []orchestratorDrain
}

// orchestratorDrain holds the drains of one orchestrator.
type orchestratorDrain struct {
	source   string
	backends []string
}

// snapshot reads the state of the node. If the counters cannot be read, it returns those of the
// last successful read; /readyz reports the failure.
func (c *controller) snapshot() snapshot {
	s, plane := c.inputs()
	s.sessions = c.speaker.Sessions()
	if plane == nil {
		return s
	}
	s.attached = plane.AttachedMode()
	counters, err := plane.Counters()
	if err != nil {
		c.log.Warn("the kernel's counters cannot be read", "error", err)
		return s
	}
	s.counters = counters
	c.mu.Lock()
	c.counters = counters
	c.mu.Unlock()
	return s
}

// inputs returns the part of a snapshot that is in memory, and the plane for the rest.
func (c *controller) inputs() (snapshot, Plane) {
	c.mu.Lock()
	defer c.mu.Unlock() // also after a panic, since requests need the lock
	s := snapshot{cfg: c.cfg, plan: plan(c.in), announced: c.announced, counters: c.counters}
	for _, source := range slices.Sorted(maps.Keys(c.in.orchestrated)) {
		d := orchestratorDrain{source: source}
		for b := range c.in.orchestrated[source] {
			d.backends = append(d.backends, b.String())
		}
		slices.Sort(d.backends)
		s.orchestrated = append(s.orchestrated, d)
	}
	return s, c.plane
}

// perBackend returns the counters of each backend, summed over all VIPs.
func (s *snapshot) perBackend() map[datapath.BackendKey]datapath.BackendCounters {
	sums := map[datapath.BackendKey]datapath.BackendCounters{}
	for _, backends := range s.counters.Backends {
		for key, n := range backends {
			sum := sums[key]
			sum.Packets, sum.Bytes = sum.Packets+n.Packets, sum.Bytes+n.Bytes
			sums[key] = sum
		}
	}
	return sums
}
