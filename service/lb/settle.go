package lb

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// takeoverWait is the maximum time that a daemon that finds a balancing kernel waits for the next
// hops of its backends before it applies anything. Applying without them would interrupt existing
// flows.
const takeoverWait = 2 * time.Second

// run brings plane, prober and speaker in line with the inputs until ctx ends. At the end, it
// leaves the kernel balancing and withdraws all announcements.
func (c *controller) run(ctx context.Context) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		var hopsChanged, linksChanged <-chan struct{}
		_ = routine.Run(
			c.log, "settle", func() { c.settle(ctx) },
		) // logged; the next change or tick repeats it
		if c.hops != nil { // only run sets it
			hopsChanged, linksChanged = c.hops.Changed(), c.hops.Links()
		}
		select {
		case <-ctx.Done():
			return c.close(ctx)
		case <-c.wake:
		case <-hopsChanged:
		case <-linksChanged:
			_ = routine.Run(c.log, "settle", c.follow) // logged; the next tick repeats it
		case <-retry.C:
			_ = routine.Run(c.log, "settle", c.follow) // logged; the next tick repeats it
		}
	}
}

// follow adapts the plane to changes of its interfaces.
func (c *controller) follow() {
	if c.plane == nil { // only run sets it
		return
	}
	err := c.plane.Follow()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && (c.planeErr == nil || c.planeErr.Error() != err.Error()) {
		c.log.Error("cannot balance; it is tried again", "error", err)
	}
	c.planeErr = err
}

// closeWait is the time limit for closing the BGP sessions.
const closeWait = 5 * time.Second

func (c *controller) close(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	err := c.speaker.Close(limited)
	c.resolving.Wait()
	if c.plane != nil {
		err = errors.Join(err, c.plane.Close())
	}
	return err
}

// settle applies all pending changes once.
func (c *controller) settle(ctx context.Context) {
	c.mu.Lock()
	number, cfg := c.changes, c.cfg
	none := len(c.in.services) == 0
	c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	opened := false
	if c.plane == nil && !none {
		opened = c.openPlane(ctx, cfg)
	}
	news := c.given != cfg || opened
	if c.hops != nil && news {
		c.hops.Want(c.targets())
	}
	if opened {
		c.follow() // the interface may be down
		c.awaitWays(ctx)
	}
	wanted, inKernel, failed := c.wanted()
	var applyErr error
	if c.plane != nil && (opened || failed || !equalVIPs(wanted, inKernel)) {
		if applyErr = c.plane.Apply(wanted); applyErr == nil {
			inKernel = wanted
		} else {
			c.metrics.applyErrors.Inc()
			c.log.Error(
				"the kernel did not take the configuration; it keeps the one before, and it is tried again",
				"error", applyErr,
			)
		}
	}
	var announced []netip.Addr
	if c.planeErr == nil { // only run sets it
		announced = toAnnounce(wanted, inKernel)
	}
	speakErr := c.announce(announced, cfg.BGP)
	// After the kernel, through which some backends are probed, and after the addresses that new
	// sessions start with.
	if news {
		c.tell(cfg)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.settledChanges, c.applyErr, c.inKernel = number, applyErr, inKernel
	c.speakErr, c.announced = speakErr, announced
	close(c.settled)
	c.settled = make(chan struct{})
}

// wanted returns the VIPs that follow from the inputs, the VIPs that the kernel has, and whether
// the last attempt to apply failed.
func (c *controller) wanted() (wanted, inKernel []datapath.VIP, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock() // also after a panic, since requests need the lock
	return vipsOf(plan(c.in)), c.inKernel, c.applyErr != nil
}

// announce passes the addresses to the speaker if they have changed. It does so even without a BGP
// configuration, so that the speaker has them once it gets one.
func (c *controller) announce(addresses []netip.Addr, speaking *configfile.BGP) error {
	if c.speakErr == nil && slices.Equal(addresses, c.announced) {
		return nil
	}
	err := c.speaker.Announce(addresses)
	switch {
	case err != nil:
		c.log.Error("cannot announce by BGP", "error", err)
	case speaking != nil:
		c.log.Info("announced by BGP", "addresses", carried(addresses, speaking))
	}
	return err
}

// openPlane attaches to the interfaces, and takes over the states of backends that the kernel
// already has. It reports whether it succeeded.
func (c *controller) openPlane(ctx context.Context, cfg *configfile.Config) bool {
	plane, hops, err := c.open(
		ctx,
		PlaneOptions{Interfaces: cfg.Interfaces(), Sources: cfg.SNATSources, MaxFlows: cfg.MaxFlows, Mode: cfg.XDPMode,
			TunnelSource: cfg.TunnelSource, TunnelSource6: cfg.TunnelSource6, BPFDir: c.bpfDir, Log: c.log},
	)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if c.planeErr == nil || c.planeErr.Error() != err.Error() {
			c.log.Error("cannot balance; it is tried again", "interfaces", cfg.Interfaces(), "error", err)
		}
		c.planeErr = err
		return false
	}
	c.plane, c.hops, c.planeErr = plane, hops, nil
	c.tookOver = len(plane.States()) > 0
	c.in.hop = hops.Lookup
	for vip, backends := range plane.States() {
		for backend, state := range backends {
			id := probe.ID{VIP: vip, Backend: backend}
			if _, known := c.in.health[id]; !known && c.checked[id] {
				c.in.health[id] = health{state != datapath.Down, "as before the restart"}
			}
		}
	}
	c.resolving.Go(func() {
		_ = routine.Run(c.log, "ways to backends", func() { c.resolve(ctx, hops) }) // logged
	})
	c.log.Info("attached", "interfaces", plane.Interfaces(), "mode", plane.AttachedMode())
	return true
}

// resolve keeps the next hops of the backends up to date until ctx ends.
func (c *controller) resolve(ctx context.Context, hops Hops) {
	if err := hops.Run(ctx); err != nil && ctx.Err() == nil {
		c.log.Error("the ways to backends are not followed any more", "error", err)
	}
}

// targets returns the backends whose next hops are needed.
func (c *controller) targets() []Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	return targetsOf(c.in.services)
}

// tell passes a new configuration to prober and speaker.
func (c *controller) tell(cfg *configfile.Config) {
	if err := c.prober.Set(c.checks()); err != nil {
		c.log.Error("the health checks are not as configured", "error", err) // a bug, since the document was checked
	}
	if c.given == cfg {
		return
	}
	c.given = cfg
	speaking := speakerConfig(cfg.BGP)
	if speaking != nil {
		speaking.Restarting = c.tookOver
	}
	if err := c.speaker.Configure(speaking); err != nil {
		c.log.Error("BGP is not as configured; it is tried again", "error", err)
		c.given = nil
		return
	}
	c.tookOver = false // for peers that are added later, no earlier process announced routes
}

func (c *controller) checks() []probe.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	return checksOf(c.in.services, c.in.health)
}

// checksOf returns the health checks of all backends that are probed.
func checksOf(services []configfile.Service, known map[probe.ID]health) []probe.Check {
	var checks []probe.Check
	for i := range services {
		s := &services[i]
		if s.Check.Type == configfile.CheckNone {
			continue
		}
		for _, e := range s.Endpoints {
			check := s.Check.Probe()
			check.ID = probe.ID{VIP: s.VIPKey, Backend: e.BackendKey}
			check.Address, check.Direct = e.Probe, s.Mode == datapath.NAT
			if h, ok := known[check.ID]; ok {
				check.Initial = &h.healthy
			}
			checks = append(checks, check)
		}
	}
	return checks
}

// targetsOf returns the backends whose next hops are needed, each once.
func targetsOf(services []configfile.Service) []Target {
	seen := map[Target]bool{}
	for i := range services {
		for _, e := range services[i].Endpoints {
			seen[Target{e.Address, e.MAC}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b Target) int {
		if order := a.Address.Compare(b.Address); order != 0 {
			return order
		}
		return slices.Compare(a.MAC[:], b.MAC[:])
	})
}

// awaitWays waits until the next hops of the backends that have flows are known, at most
// takeoverWait.
func (c *controller) awaitWays(ctx context.Context) {
	var needed []Target
	states := c.plane.States()
	c.mu.Lock()
	for i := range c.in.services {
		s := &c.in.services[i]
		for _, e := range s.Endpoints {
			if state := states[s.VIPKey][e.BackendKey]; state == datapath.Healthy || state == datapath.Draining {
				needed = append(needed, Target{e.Address, e.MAC})
			}
		}
	}
	c.mu.Unlock()
	timeout := time.NewTimer(takeoverWait)
	defer timeout.Stop()
	for slices.ContainsFunc(needed, func(t Target) bool { return !c.hops.Lookup(t).Known() }) {
		select {
		case <-c.hops.Changed():
		case <-timeout.C:
			c.log.Warn("the way to some backends is not known yet", "waited", takeoverWait)
			return
		case <-ctx.Done():
			return
		}
	}
}

func equalVIPs(a, b []datapath.VIP) bool {
	return slices.EqualFunc(a, b, func(a, b datapath.VIP) bool {
		return a.VIPKey == b.VIPKey && a.Mode == b.Mode && a.SNAT == b.SNAT && a.ClientAffinity == b.ClientAffinity &&
			a.NewFlowsPerSecond == b.NewFlowsPerSecond && slices.Equal(a.Backends, b.Backends)
	})
}
