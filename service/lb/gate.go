package lb

import (
	"cmp"
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
	"github.com/mainstay-infra/mainstay/kit/session"
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

// caller is the authenticated origin of a request.
type caller struct {
	name string
	role Role
	// label is the name in metrics. Names that clients can choose freely share one label.
	label string
}

// anonymous is the caller of all requests while authentication is off.
var anonymous = caller{"anonymous", RoleAdmin, "anonymous"}

// certificateLabel is the metrics label of all certificates that are not an admin's.
const certificateLabel = "certificate"

// signOnLabel is the metrics label of everybody who came by single sign-on.
const signOnLabel = "single-sign-on"

// gate authenticates and authorizes callers, and logs who changed what.
type gate struct {
	log      *slog.Logger
	now      func() time.Time
	on       bool // authentication is required
	keys     []apiKey
	adminCNs []string
	names    []string // of this node, for requests without credentials

	failures *prometheus.CounterVec
	changes  *prometheus.CounterVec

	mu       sync.Mutex
	lastLine time.Time // when a refused login was last logged
	omitted  int       // refused logins that were not logged since
}

// newGate reads the credentials from the settings. It logs a warning for suspicious ones.
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
		on:       len(keys) > 0 || cfg.TLSClientCA != "" || cfg.OIDC.Issuer != "",
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
		g.failures.WithLabelValues(reason) // so that rate() works from the first one
	}
}

const (
	reasonUnauthenticated = "unauthenticated"
	reasonForbidden       = "forbidden"
)

// identify returns the caller of a request, and counts refused credentials.
func (g *gate) identify(r *http.Request, op *contract.Operation) (caller, error) {
	who, err := g.callerOf(r)
	if err == nil || op == shell.Console && r.Header.Get("Authorization") == "" {
		return who, err // whoever opens the console has not tried anything yet
	}
	reason := reasonUnauthenticated
	if fault.Is(err, fault.Denied) {
		reason = reasonForbidden
	}
	g.failures.WithLabelValues(reason).Inc()
	g.logRefused(r)
	return caller{}, err
}

// callerOf returns the caller of a request. If the request carries a key, only the key counts, even
// if it also has a client certificate.
func (g *gate) callerOf(r *http.Request) (caller, error) {
	if !g.on {
		// Without credentials, any web page in a browser that reaches this node could make
		// requests.
		return anonymous, httpserve.RefuseForeign(r, g.names...)
	}
	if id, ok := session.IdentityFrom(r.Context()); ok {
		return caller{cmp.Or(id.Email, id.Subject), Role(id.Role), signOnLabel}, nil
	}
	if token, ok := auth.Bearer(r); ok {
		hash, found := auth.HashToken(token), caller{}
		for _, k := range g.keys { // check all of them, so that timing reveals nothing
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

// admit returns an error if the caller may not use an operation.
func (g *gate) admit(_ *http.Request, op *contract.Operation, who caller) error {
	if access.Admits(op.Access, who) {
		return nil
	}
	g.failures.WithLabelValues(reasonForbidden).Inc()
	return fault.New(fault.Denied, "%s may only read; changes need an admin key or certificate", who.name)
}

// recordChanges counts and logs each request that would change something, whether it succeeds or is
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
				answer.status = http.StatusInternalServerError // a panic, which an outer handler answers
			}
			g.changes.WithLabelValues(who.label, strconv.Itoa(answer.status)).Inc()
			g.log.InfoContext(r.Context(), "api change", "user", who.name, "role", string(who.role),
				"method", r.Method, "path", loggedPath(r), "status", answer.status, "remote", r.RemoteAddr)
		}()
		next.ServeHTTP(answer, r)
		returned = true
	})
}

// refusedEvery is the minimum time between two log lines about refused logins, since anyone can
// cause them.
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

// loggedPath returns the path for a log line, cut to 256 bytes, since a client can make it as long
// as a header.
func loggedPath(r *http.Request) string {
	const most = 256
	return r.URL.Path[:min(len(r.URL.Path), most)]
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
