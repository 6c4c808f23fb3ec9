package jobs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	finished *prometheus.CounterVec
	running  *prometheus.GaugeVec
	seconds  *prometheus.HistogramVec
}

// newMetrics accepts a nil registry: the metrics then exist but are not exported.
func newMetrics(registry prometheus.Registerer) metrics {
	f := promauto.With(registry)
	return metrics{
		finished: f.NewCounterVec(prometheus.CounterOpts{
			Name: "jobs_finished_total", Help: "Jobs that reached a final state, by this process.",
		}, []string{"queue", "kind", "state"}),
		running: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "jobs_running", Help: "Jobs that run in this process.",
		}, []string{"queue"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "job_seconds", Help: "How long one attempt took.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800},
		}, []string{"kind"}),
	}
}
