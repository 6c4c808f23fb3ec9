package telemetry_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func TestTheRegistryServesBuildRuntimeAndProcessMetrics(t *testing.T) {
	t.Parallel()
	reg := telemetry.NewRegistry()
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "mainstay_own_total", Help: "x"})
	reg.MustRegister(own)
	own.Inc()
	rec := httptest.NewRecorder()
	telemetry.MetricsHandler(reg).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatal(rec.Code)
	}
	for _, want := range []string{
		"mainstay_build_info{", `go_version="` + telemetry.BuildInfo().GoVersion + `"`, "go_goroutines ", "process_start_time_seconds ",
		"mainstay_own_total 1",
	} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, rec.Body)
		}
	}
}

func TestRegistriesAreIndependent(t *testing.T) {
	t.Parallel()
	a, b := telemetry.NewRegistry(), telemetry.NewRegistry()
	for _, r := range []*prometheus.Registry{a, b} {
		r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "mainstay_same", Help: "x"}))
	}
}
