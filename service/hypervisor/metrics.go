package hypervisor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
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
	reg.MustRegister(vmCollector{s})
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

// vmCollector has the counters of each VM that runs, as they were last measured. They begin anew with the VM's
// process. VMs' names and tenants are not for everybody: it is empty if /metrics is open to everybody although
// other requests take credentials.
type vmCollector struct{ s *Service }

var vmMetrics = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(m *backend.Metrics) float64
}{
	{
		vmDesc("cpu_seconds_total", "Processor time of the VM's process."), prometheus.CounterValue,
		func(m *backend.Metrics) float64 { return m.CPUSeconds },
	},
	{
		vmDesc("memory_bytes", "Memory of the host that the VM's process has."), prometheus.GaugeValue,
		func(m *backend.Metrics) float64 { return float64(m.MemoryBytes) },
	},
	{
		vmDesc("disk_read_bytes_total", "What the VM has read of its disks."), prometheus.CounterValue,
		func(m *backend.Metrics) float64 { return float64(m.DiskReadBytes) },
	},
	{
		vmDesc("disk_written_bytes_total", "What the VM has written to its disks."), prometheus.CounterValue,
		func(m *backend.Metrics) float64 { return float64(m.DiskWrittenBytes) },
	},
	{
		vmDesc("net_received_bytes_total", "What the VM has received, but with network mode user."), prometheus.CounterValue,
		func(m *backend.Metrics) float64 { return float64(m.NetReceivedBytes) },
	},
	{
		vmDesc("net_sent_bytes_total", "What the VM has sent, but with network mode user."), prometheus.CounterValue,
		func(m *backend.Metrics) float64 { return float64(m.NetSentBytes) },
	},
}

func vmDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("hypervisor_vm_"+name, help, []string{"vm", "name", "tenant"}, nil)
}

// Describe implements prometheus.Collector.
func (c vmCollector) Describe(ch chan<- *prometheus.Desc) {
	for i := range vmMetrics {
		ch <- vmMetrics[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c vmCollector) Collect(ch chan<- prometheus.Metric) {
	if !c.s.api.MetricsForAdmins() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	latest := c.s.usage.Latest()
	all, err := c.s.store.Named(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(vmMetrics[0].desc, err)
		return
	}
	for i := range all {
		m, ok := latest[all[i].ID]
		if !ok {
			continue
		}
		for k := range vmMetrics {
			v := &vmMetrics[k]
			ch <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(&m), all[i].ID, all[i].Name, all[i].Tenant)
		}
	}
}
