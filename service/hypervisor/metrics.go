package hypervisor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// registerMetrics registers the daemon's metrics, which are served at /metrics.
func registerMetrics(reg *prometheus.Registry, s *Service) {
	reg.MustRegister(collector{s,
		prometheus.NewDesc("hypervisor_vms", "VMs by state.", []string{"state"}, nil),
		prometheus.NewDesc("hypervisor_vcpus_given", "Virtual processors of all VMs.", nil, nil),
		prometheus.NewDesc("hypervisor_memory_given_bytes", "Memory of all VMs.", nil, nil),
		prometheus.NewDesc("hypervisor_agents_connected", "Guest agents with a session.", nil, nil),
	})
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hypervisor_insecure",
		Help: "1 if everybody who reaches the daemon from elsewhere is an admin, since there are no credentials.",
	}, func() float64 {
		if s.api.Exposed() {
			return 1
		}
		return 0
	}))
}

// collector reads the remaining metrics from the database on every scrape.
type collector struct {
	s                          *Service
	vms, vcpus, memory, agents *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.vms, c.vcpus, c.memory, c.agents} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rows, err := c.s.store.GivenByState(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.vms, err)
		return
	}
	counts, vcpus, memory := map[vm.State]int{}, 0, int64(0)
	for _, r := range rows {
		counts[r.State], vcpus, memory = r.VMs, vcpus+r.VCPUs, memory+int64(r.MemoryMiB)
	}
	for _, state := range vm.States() {
		ch <- prometheus.MustNewConstMetric(c.vms, prometheus.GaugeValue, float64(counts[state]), string(state))
	}
	ch <- prometheus.MustNewConstMetric(c.vcpus, prometheus.GaugeValue, float64(vcpus))
	ch <- prometheus.MustNewConstMetric(c.memory, prometheus.GaugeValue, float64(memory<<20))
	ch <- prometheus.MustNewConstMetric(c.agents, prometheus.GaugeValue, float64(c.s.machines.ConnectedAgents()))
}
