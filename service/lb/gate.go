package lb

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// The access classes of the contract (x-access).
const (
	AccessBearer = "bearer" // any key or certificate
	AccessAdmin  = "admin"
)

// access is the authorization table.
var access = auth.NewAccess([]string{AccessBearer, AccessAdmin}, func(c caller) string {
	switch c.role {
	case RoleAdmin:
		return AccessAdmin
	case RoleReadonly:
		return AccessBearer
	}
	return ""
}, nil)

// caller is who makes a request.
type caller struct {
	name string
	role Role
	// label is the name in metrics: names that others may choose freely are one.
	label string
}

// anonymous is everybody while authentication is off.
var anonymous = caller{"anonymous", RoleAdmin, "anonymous"}

// certificateLabel stands in metrics for all certificates that are not an admin's.
const certificateLabel = "certificate"

// gate decides who may do what, and writes down who did.
type gate struct {
	log      *slog.Logger
	now      func() time.Time
	on       bool // somebody is asked
	keys     []apiKey
	adminCNs []string
	names    []string // of this node, for those who come without credentials

	failures *prometheus.CounterVec
	changes  *prometheus.CounterVec

	mu       sync.Mutex
	lastLine time.Time // when a refused login was last logged
	omitted  int       // since then
}

// newGate reads the credentials of the settings. What is suspicious in them is logged.
func newGate(cfg *Config, log *slog.Logger) (*gate, error) {
	keys, warnings, err := parseKeys(cfg.APIKey, cfg.APIReadonlyKey)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	return &gate{
		log:      log,
		now:      time.Now,
		on:       len(keys) > 0 || cfg.TLSClientCA != "",
		keys:     keys,
		adminCNs: cfg.CertAdminCNs,
		names:    cfg.names(),
		failures: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "lb_api_auth_failures_total",
				Help: "Requests to the API that were refused for who made them.",
			},
			[]string{"reason"},
		),
		changes: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "lb_api_changes_total",
				Help: "Requests that would change something, by caller and status; certificates that are not an admin's count as certificate.",
			},
			[]string{"user", "code"},
		),
	}, nil
}

func (g *gate) register(reg prometheus.Registerer) {
	reg.MustRegister(g.failures, g.changes)
	for _, reason := range []string{reasonUnauthenticated, reasonForbidden} {
		g.failures.WithLabelValues(reason) // so that a rate exists before the first one
	}
}

const (
	reasonUnauthenticated = "unauthenticated"
	reasonForbidden       = "forbidden"
)

// identify says who calls, and counts those whose credentials are refused.
func (g *gate) identify(r *http.Request, _ *contract.Operation) (caller, error) {
	who, err := g.callerOf(r)
	if err == nil {
		return who, nil
	}
	reason := reasonUnauthenticated
	if fault.Is(err, fault.Denied) {
		reason = reasonForbidden
	}
	g.failures.WithLabelValues(reason).Inc()
	g.logRefused(r)
	return caller{}, err
}

// callerOf says who calls. A key that was sent decides alone, also when a
// certificate came with it.
func (g *gate) callerOf(r *http.Request) (caller, error) {
	if !g.on {
		// Without credentials, any page that a browser near by shows could ask.
		return anonymous, httpserve.RefuseForeign(r, g.names...)
	}
	if token, ok := auth.Bearer(r); ok {
		hash, found := auth.HashToken(token), caller{}
		for _, k := range g.keys { // all of them, so that time tells nothing
			if auth.EqualHash(hash, k.hash) && found.role == "" {
				found = caller{k.name, k.role, k.name}
			}
		}
		if found.role == "" {
			return caller{}, fault.New(fault.Unauthenticated, "the key is not one of this load balancer's")
		}
		return found, nil
	}
	if r.Header.Get("Authorization") != "" {
		return caller{}, fault.New(fault.Unauthenticated, "the Authorization header must be: Bearer KEY")
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return g.byCertificate(r.TLS.PeerCertificates[0].Subject.CommonName), nil
	}
	return caller{}, fault.New(
		fault.Unauthenticated,
		"this needs credentials: send the header Authorization: Bearer KEY, or use a client certificate",
	)
}

func (g *gate) byCertificate(commonName string) caller {
	if slices.Contains(g.adminCNs, commonName) {
		return caller{commonName, RoleAdmin, commonName}
	}
	return caller{commonName, RoleReadonly, certificateLabel}
}

// admit says whether the caller may use an operation.
func (g *gate) admit(_ *http.Request, op *contract.Operation, who caller) error {
	if access.Admits(op.Access, who) {
		return nil
	}
	g.failures.WithLabelValues(reasonForbidden).Inc()
	return fault.New(fault.Denied, "%s may only read; changes need an admin key or certificate", who.name)
}

// recordChanges counts and logs each request that would change something, whether it did or was
// refused.
func (g *gate) recordChanges(op *contract.Operation, next http.Handler) http.Handler {
	if op.Audit == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known := shell.Caller[caller](r.Context())
		if !known {
			next.ServeHTTP(w, r)
			return
		}
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		returned := false
		defer func() {
			if !returned {
				answer.status = http.StatusInternalServerError // a panic, which is answered further out
			}
			g.changes.WithLabelValues(who.label, strconv.Itoa(answer.status)).Inc()
			g.log.InfoContext(r.Context(), "api change", "user", who.name, "role", string(who.role),
				"method", r.Method, "path", loggedPath(r), "status", answer.status, "remote", r.RemoteAddr)
		}()
		next.ServeHTTP(answer, r)
		returned = true
	})
}

// refusedEvery is the least time between two log lines about refused logins, which
// anybody can cause.
const refusedEvery = 10 * time.Second

func (g *gate) logRefused(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if !g.lastLine.IsZero() && now.Sub(g.lastLine) < refusedEvery {
		g.omitted++
		return
	}
	g.log.WarnContext(
		r.Context(), "api request without valid credentials", "method", r.Method, "path", loggedPath(r), "remote",
		r.RemoteAddr, "omitted", g.omitted,
	)
	g.lastLine, g.omitted = now, 0
}

// loggedPath is the path as far as it is worth a log line: a client may make it as
// long as a header.
func loggedPath(r *http.Request) string {
	const most = 256
	return r.URL.Path[:min(len(r.URL.Path), most)]
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
