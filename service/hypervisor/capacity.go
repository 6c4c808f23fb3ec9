package hypervisor

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// capacity is what there is, and what is left of it.
func (s *Service) capacity(ctx context.Context) (hypervisorapi.Host, error) {
	c, err := s.plan.Capacity(ctx)
	h := hypervisorapi.Host{
		Name: s.cfg.NodeName, Version: telemetry.BuildInfo().Version, Vcpus: c.VCPUs, MemoryMib: c.MemoryMiB,
		FreeVcpus: c.FreeVCPUs, FreeMemoryMib: c.FreeMemoryMiB, Vms: c.VMs, Backends: []hypervisorapi.BackendInfo{},
	}
	for _, b := range c.Backends {
		h.Backends = append(h.Backends, hypervisorapi.BackendInfo{
			Name: hypervisorapi.Backend(b.Name), Available: b.Available, Version: some(b.Version), Detail: b.Detail,
		})
	}
	return h, err
}

// heartbeat is what this host tells the registry.
func (s *Service) heartbeat(ctx context.Context) (hypervisorapi.Heartbeat, error) {
	h, err := s.capacity(ctx)
	if err != nil {
		return hypervisorapi.Heartbeat{}, err
	}
	given, err := s.cfg.labels()
	if err != nil {
		return hypervisorapi.Heartbeat{}, err
	}
	labels := hypervisorapi.Labels(given)
	out := hypervisorapi.Heartbeat{Url: s.advertised(), Version: h.Version, Labels: &labels, Vcpus: h.Vcpus, MemoryMib: h.MemoryMib, FreeVcpus: h.FreeVcpus, FreeMemoryMib: h.FreeMemoryMib, Vms: h.Vms, Backends: []hypervisorapi.Backend{}}
	for _, b := range h.Backends {
		if b.Available {
			out.Backends = append(out.Backends, b.Name)
		}
	}
	return out, nil
}

// nudgeFleet has the registry know soon that this host has more or less room.
func (s *Service) nudgeFleet() {
	if s.reporter != nil {
		s.reporter.Nudge()
	}
}

// noteFleet writes the audit entry of what another host has done, and has noted itself:
// the answer is what that host says, whether or not it can be noted here too.
func (s *Service) noteFleet(ctx context.Context, action, target, tenant, message string) {
	ctx = context.WithoutCancel(ctx)
	if err := s.store.Note(ctx, audit.Entry{Action: action, Target: target, Tenant: tenant, Message: message}); err != nil {
		s.log.Error("what was done on another host is not in this one's audit log", "action", action, "target", target, "error", err)
	}
}

// admitted is called for each new VM.
func (s *Service) admitted(r *record.VM) {
	s.nudgeFleet()
	if !r.ExpiresAt.IsZero() {
		s.life.Timed()
	}
}
