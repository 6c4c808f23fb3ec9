package httpserve

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts and times requests in reg:
//
//	http_requests_total{service,method,route,code}
//	http_request_duration_seconds{service,route}  (histogram; streams are left out)
//	http_in_flight{service}
//
// The route is the ServeMux pattern, as recorded by Mux, or "unmatched"; methods that HTTP does not
// define are "OTHER". So the number of series is bounded by the service's routes. Several chains
// may share a registry and service name. Any other conflict in reg is a programming error, and
// Metrics panics.
func Metrics(reg prometheus.Registerer, service string) func(http.Handler) http.Handler {
	labels := prometheus.Labels{"service": service}
	m := &httpMetrics{
		requests: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total", Help: "HTTP requests answered.", ConstLabels: labels,
		}, []string{"method", "route", "code"})),
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:        "http_request_duration_seconds",
			Help:        "Time from the request's headers to the end of the response.",
			ConstLabels: labels,
			Buckets:     []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"})),
		inFlight: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "http_in_flight", Help: "HTTP requests being served.", ConstLabels: labels,
		})),
	}
	m.series.Store(&map[seriesKey]series{})
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x, w, r := track(w, r)
			m.inFlight.Inc()
			returned := false
			defer func() {
				m.inFlight.Dec()
				s := m.lookup(seriesKey{knownMethod(r.Method), x.route(), x.finalStatus(returned)})
				s.requests.Inc()
				if !x.stream {
					s.seconds.Observe(time.Since(x.start).Seconds())
				}
			}()
			next.ServeHTTP(w, r)
			returned = true
		})
	}
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if err == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	panic("httpserve: metrics: " + err.Error())
}

type seriesKey struct {
	method, route string
	code          int
}

type series struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

type httpMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge

	// series is read for every request and written only when a combination is first seen, so it is
	// copied on write: a read takes no lock and, unlike a read of a sync.Map with a struct key,
	// allocates nothing.
	series atomic.Pointer[map[seriesKey]series]
	mu     sync.Mutex // held by writers
}

func (m *httpMetrics) lookup(k seriesKey) series {
	if s, ok := (*m.series.Load())[k]; ok {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(*m.series.Load())
	s, ok := next[k]
	if !ok {
		s = series{
			requests: m.requests.WithLabelValues(k.method, k.route, strconv.Itoa(k.code)),
			seconds:  m.seconds.WithLabelValues(k.route),
		}
		next[k] = s
		m.series.Store(&next)
	}
	return s
}

// knownMethod keeps methods invented by clients out of the labels.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return method
	}
	return "OTHER"
}
