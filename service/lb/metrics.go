package lb

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// metrics are the metrics that the service counts itself. The kernel's counters are read at each
// scrape (collector).
type metrics struct {
	applyErrors   prometheus.Counter
	reloadOK      prometheus.Gauge
	reloadedAt    prometheus.Gauge
	probeDuration prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		applyErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lb_apply_errors_total",
			Help: "Attempts to change the kernel's tables that failed.",
		}),
		reloadOK: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lb_config_last_reload_successful",
			Help: "1 if the configuration file as it was last loaded is in force.",
		}),
		reloadedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lb_config_last_reload_timestamp_seconds",
			Help: "When the configuration in force was loaded, in seconds since 1970.",
		}),
		probeDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lb_probe_duration_seconds",
			Help:    "How long health probes took, whatever they found.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
	}
	reg.MustRegister(m.applyErrors, m.reloadOK, m.reloadedAt, m.probeDuration)
	return m
}

func (m *metrics) probed(took time.Duration, _ bool) { m.probeDuration.Observe(took.Seconds()) }

// collector reads the node's state at each scrape.
type collector struct {
	c *controller
	// Descriptions of the series.
	vipPackets, vipBytes, vipFlows, vipDropped *prometheus.Desc
	backendPackets, backendBytes, backendState *prometheus.Desc
	lostReplies                                *prometheus.Desc
	flows, evictions, drops, session, xdpMode  *prometheus.Desc
}

func newCollector(c *controller) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		c:          c,
		vipPackets: desc("lb_vip_packets_total", "Packets of the VIP that were forwarded to backends.", "vip"),
		vipBytes:   desc("lb_vip_bytes_total", "Bytes of those packets, Ethernet headers included.", "vip"),
		vipFlows:   desc("lb_vip_flows_total", "New flows of the VIP.", "vip"),
		vipDropped: desc("lb_vip_dropped_total", "Packets for the VIP that were not forwarded.", "vip", "reason"),
		backendPackets: desc(
			"lb_backend_packets_total", "Packets of the VIP that were sent to the backend.", "vip", "backend",
		),
		backendBytes: desc("lb_backend_bytes_total", "Bytes of those packets.", "vip", "backend"),
		backendState: desc("lb_backend_state", "1 for the state that the backend is in.", "vip", "backend", "state"),
		flows:        desc("lb_conntrack_entries", "Entries in the flow tables."),
		evictions:    desc("lb_conntrack_evictions_total", "Entries lost because the flow tables were full."),
		lostReplies:  desc("lb_lost_replies_total", "Packets from backends of VIPs in mode nat that belong to no flow."),
		drops:        desc("lb_drops_total", "Packets dropped on the node.", "reason"),
		session:      desc("lb_bgp_session_up", "1 while the session with the peer is established.", "peer"),
		xdpMode:      desc("lb_xdp_mode", "1 for the mode in which the program is attached.", "mode"),
	}
}

// Describe implements prometheus.Collector. It sends nothing, so that the registry does not call
// Collect to find out the descriptions.
func (k *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (k *collector) Collect(out chan<- prometheus.Metric) {
	s := k.c.snapshot()
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	is := func(d *prometheus.Desc, yes bool, labels ...string) {
		v := 0.0
		if yes {
			v = 1
		}
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for i := range s.plan {
		k.collectVIP(&s, &s.plan[i], count, is)
	}
	for reason, n := range s.counters.Drops {
		count(k.drops, n, reason)
	}
	out <- prometheus.MustNewConstMetric(k.flows, prometheus.GaugeValue, float64(s.counters.Flows))
	count(k.evictions, s.counters.Evictions)
	count(k.lostReplies, s.counters.LostReplies)
	for _, session := range s.sessions {
		is(k.session, session.Established(), session.Peer.String())
	}
	for _, mode := range []configfile.XDPMode{configfile.XDPGeneric, configfile.XDPNative} {
		is(k.xdpMode, s.attached == string(mode), string(mode))
	}
}

func (k *collector) collectVIP(
	s *snapshot, v *planned, count func(*prometheus.Desc, uint64, ...string),
	is func(*prometheus.Desc, bool, ...string),
) {
	name, n := v.VIPKey.String(), s.counters.VIPs[v.VIPKey]
	count(k.vipPackets, n.Packets, name)
	count(k.vipBytes, n.Bytes, name)
	count(k.vipFlows, n.Flows, name)
	count(k.vipDropped, n.DroppedRateLimited, name, "rate_limited")
	count(k.vipDropped, n.DroppedNoBackend, name, "no_backend")
	count(k.vipDropped, n.Unserved, name, "unserved")
	for _, b := range v.VIP.Backends {
		backend, sent := b.BackendKey.String(), s.counters.Backends[v.VIPKey][b.BackendKey]
		count(k.backendPackets, sent.Packets, name, backend)
		count(k.backendBytes, sent.Bytes, name, backend)
		for _, state := range []datapath.State{datapath.Healthy, datapath.Draining, datapath.Down} {
			is(k.backendState, b.State == state, name, backend, state.String())
		}
	}
}
