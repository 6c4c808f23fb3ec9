package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// NewRegistry returns a registry with the collectors of the Go runtime and of the
// process, and the gauge mainstay_build_info, which is always 1 and has BuildInfo
// in its labels version, commit and go_version. goroutine_panics_total is in it too
// (package routine).
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := BuildInfo()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mainstay_build_info",
		Help: "What the program was built from; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"version": build.Version, "commit": build.Commit, "go_version": build.GoVersion,
		},
	})
	info.Set(1)
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
		routine.Panics,
	)
	return reg
}

// MetricsHandler serves reg in the Prometheus text format, or in OpenMetrics to clients that ask
// for it. If one collector fails, the others are still shown.
func MetricsHandler(reg *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		Registry:          reg,
	})
}
