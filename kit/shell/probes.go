package shell

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// Check is a readiness condition.
type Check struct {
	// Name names the checked component for people, for example "database".
	Name string
	// Run returns a detail, such as "SQLite", or an error if the service cannot work. A fault keeps
	// its code and status; any other error is reported as "not_ready", and its text is only logged.
	Run func(context.Context) (detail string, err error)
}

// probes registers the endpoints for orchestrators and Prometheus.
func (s *Shell[C]) probes(handle func(pattern string, h http.Handler)) {
	handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Alive != nil {
			if err := s.cfg.Alive(r.Context()); err != nil {
				s.Fail(w, r, err)
				return
			}
		}
		writeText(w, http.StatusOK, "ok\n")
	}))
	handle("GET /readyz", http.HandlerFunc(s.ready))
	metrics := telemetry.MetricsHandler(s.cfg.Registry)
	if s.cfg.GuardMetrics {
		metrics = s.callers(Metrics, metrics)
	}
	handle("GET /metrics", metrics)
}

// checkWithin bounds a check: an orchestrator gives up long before something that hangs answers.
const checkWithin = 5 * time.Second

// ready serves /readyz: 200 with the details of the checks, or the first check that fails. With
// ?verbose it prints a line per check, as Kubernetes' own components do.
func (s *Shell[C]) ready(w http.ResponseWriter, r *http.Request) {
	var details, lines []string
	var failed *fault.Error
	verbose := r.URL.Query().Has("verbose")
	for _, c := range s.cfg.Ready {
		ctx, cancel := context.WithTimeout(r.Context(), checkWithin)
		detail, err := c.Run(ctx)
		cancel()
		switch {
		case err == nil:
			lines = append(lines, strings.TrimSpace("[+] "+c.Name+" ok "+detail))
			if detail != "" {
				details = append(details, detail)
			}
		default:
			if failed == nil {
				failed = notReady(c.Name, err)
			}
			lines = append(lines, "[-] "+c.Name+" failed: "+notReady(c.Name, err).Message)
		}
		if failed != nil && !verbose {
			break
		}
	}
	switch {
	case verbose && failed != nil:
		writeText(w, failed.Kind.HTTPStatus(), strings.Join(lines, "\n")+"\nnot ready\n")
	case verbose:
		writeText(w, http.StatusOK, strings.Join(append(lines, "ready"), "\n")+"\n")
	case failed != nil:
		s.Fail(w, r, failed)
	case len(details) == 0:
		writeText(w, http.StatusOK, "ready\n")
	default:
		writeText(w, http.StatusOK, "ready: "+strings.Join(details, ", ")+"\n")
	}
}

// notReady returns a failed check as a fault. The text of an Internal error is only logged.
func notReady(check string, err error) *fault.Error {
	if f := fault.From(err); f.Kind != fault.Internal {
		return f
	}
	return fault.Wrap(fault.Unavailable, err, "the %s does not work", check).WithCode("not_ready")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a client that disconnected needs no response
}
