package hypervisor

import (
	"context"
	"runtime"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// host is what there is, and what is left of it.
func (s *Service) host(ctx context.Context) (hypervisorapi.Host, error) {
	var given struct {
		VMs    int `db:"vms"`
		VCPUs  int `db:"vcpus"`
		Memory int `db:"memory"`
	}
	if err := s.db.Get(ctx, &given, "SELECT COUNT(*) AS vms, COALESCE(SUM(vcpus), 0) AS vcpus, COALESCE(SUM(memory_mib), 0) AS memory FROM vms"); err != nil {
		return hypervisorapi.Host{}, err
	}
	h := hypervisorapi.Host{Name: s.cfg.NodeName, Version: telemetry.BuildInfo().Version, Vcpus: runtime.NumCPU(), MemoryMib: memoryOfHost(), Vms: given.VMs, Backends: []hypervisorapi.BackendInfo{}}
	if s.cfg.NodeVCPUs > 0 {
		h.Vcpus = s.cfg.NodeVCPUs
	}
	if s.cfg.NodeMemoryMiB > 0 {
		h.MemoryMib = s.cfg.NodeMemoryMiB
	}
	h.FreeVcpus, h.FreeMemoryMib = h.Vcpus-given.VCPUs, h.MemoryMib-given.Memory
	for _, name := range []string{backend.QEMU, backend.CloudHypervisor, backend.Firecracker, backend.Sandbox} {
		if s.backends[name] != nil {
			info := s.probe(ctx, name)
			h.Backends = append(h.Backends, hypervisorapi.BackendInfo{Name: hypervisorapi.Backend(name), Available: info.Available, Version: some(info.Version), Detail: info.Detail})
		}
	}
	return h, nil
}

// heartbeat is what this host tells the registry.
func (s *Service) heartbeat(ctx context.Context) (hypervisorapi.Heartbeat, error) {
	h, err := s.host(ctx)
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
