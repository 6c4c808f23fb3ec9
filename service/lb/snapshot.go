package lb

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// snapshot is the node at one moment, for the API and the metrics.
type snapshot struct {
	cfg       *configfile.Config
	plan      []planned
	counters  datapath.Counters
	attached  string // generic or native; empty when nothing is attached
	announced []netip.Addr
	sessions  []bgp.Session
	// orchestrated are the drains of orchestrators, sorted.
	orchestrated []orchestratorDrain
}

// orchestratorDrain is what one orchestrator drains.
type orchestratorDrain struct {
	source   string
	backends []string
}

// snapshot reads everything once. Counters that cannot be read are those of the last
// time they could be: /readyz reports the failure.
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

// inputs are the part of a snapshot that is in memory, and the plane that has the rest.
func (c *controller) inputs() (snapshot, Plane) {
	c.mu.Lock()
	defer c.mu.Unlock() // also after a panic: requests need the lock
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

// perBackend adds up what was sent to each backend by all VIPs.
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
