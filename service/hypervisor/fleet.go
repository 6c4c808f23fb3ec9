package hypervisor

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// openFleet opens the registry, which every daemon has, and makes this host a node of the fleet
// that the settings name.
func (s *Service) openFleet() (err error) {
	cfg := &s.cfg
	token := cfg.FleetToken
	cfg.FleetToken = ""
	s.fleet, err = fleet.New(fleet.Config{
		DB: s.db, Token: token, Log: s.log, Now: s.now, Interval: cfg.HeartbeatInterval, CAFile: cfg.FleetCA,
	})
	if err != nil || cfg.Registry == "" {
		return err
	}
	node := fleet.ReporterConfig{
		Registry: cfg.Registry, Name: cfg.NodeName, Token: token, Report: s.heartbeat,
		Interval: cfg.HeartbeatInterval, CAFile: cfg.FleetCA, Log: s.log,
	}
	if s.peers, err = fleet.NewPeers(node); err != nil {
		return err
	}
	s.reporter, err = fleet.NewReporter(node)
	return err
}

// advertised returns the URL at which the registry reaches this daemon.
func (s *Service) advertised() string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	if url := s.url.Load(); url != nil {
		return *url
	}
	return ""
}

// heartbeat returns the report that this host sends to the registry.
func (s *Service) heartbeat(ctx context.Context) (hypervisorapi.Heartbeat, error) {
	c, err := s.plan.Capacity(ctx)
	if err != nil {
		return hypervisorapi.Heartbeat{}, err
	}
	given, err := s.cfg.labels()
	if err != nil {
		return hypervisorapi.Heartbeat{}, err
	}
	labels := hypervisorapi.Labels(given)
	out := hypervisorapi.Heartbeat{
		Url:           s.advertised(),
		Version:       telemetry.BuildInfo().Version,
		Labels:        &labels,
		Vcpus:         c.VCPUs,
		MemoryMib:     c.MemoryMiB,
		FreeVcpus:     c.FreeVCPUs,
		FreeMemoryMib: c.FreeMemoryMiB,
		Vms:           c.VMs,
		Backends:      []hypervisorapi.Backend{},
	}
	for _, b := range c.Backends {
		if b.Available {
			out.Backends = append(out.Backends, hypervisorapi.Backend(b.Name))
		}
	}
	return out, nil
}

// nudgeFleet makes the reporter send a heartbeat soon because the host's free capacity changed.
func (s *Service) nudgeFleet() {
	if s.reporter != nil {
		s.reporter.Nudge()
	}
}
