package httpapi

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/backup"
	"github.com/mainstay-infra/mainstay/service/storage/bucket"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/dr"
	"github.com/mainstay-infra/mainstay/service/storage/gate"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
	"github.com/mainstay-infra/mainstay/service/storage/osd"
	"github.com/mainstay-infra/mainstay/service/storage/provision"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// Config holds the settings and dependencies of an API.
type Config struct {
	Log         *slog.Logger
	Registry    *prometheus.Registry
	Tracer      trace.TracerProvider // nil: no traces
	Console     fs.FS                // the built web console; nil: none
	Now         func() time.Time
	AccessLog   string
	MaxInFlight int
	Ending      context.Context // done when the service ends
	Version     string
	Gate        *gate.Gate
	// Cookies seals the sessions of the console, and Ended knows those that were signed out.
	Cookies *auth.Sealer
	Ended   session.Ended
	// Workspace knows the other services of the installation. Nil: there are none.
	Workspace session.Workspace
	// Ping returns the database's name, or an error if it does not answer.
	Ping func(ctx context.Context) (string, error)

	Store    *record.Store
	Jobs     *job.Runner
	Backends *backend.Set
	Volumes  *provision.Manager
	Monitor  *monitor.Monitor
	OSDs     *osd.Manager
	Backups  *backup.Manager
	Buckets  *bucket.Manager
	DR       *dr.Manager
}

// API serves the contract's operations.
type API struct {
	cfg      Config
	shell    *shell.Shell[caller.Caller]
	store    *record.Store
	jobs     *job.Runner
	backends *backend.Set
	volumes  *provision.Manager
	monitor  *monitor.Monitor
	osds     *osd.Manager
	backups  *backup.Manager
	buckets  *bucket.Manager
	dr       *dr.Manager
}

var _ storageapi.Server = (*API)(nil)

// Contract loads the service's contract.
func Contract() (*contract.Contract, error) {
	return contract.Load(storageapi.Document, storageapi.BasePath, gate.Classes())
}

// maxBody is the maximum size of a request body, in bytes.
const maxBody = 1 << 20

// New returns an API.
func New(cfg Config) (*API, error) {
	a := &API{
		cfg: cfg, store: cfg.Store, jobs: cfg.Jobs, backends: cfg.Backends, volumes: cfg.Volumes, monitor: cfg.Monitor,
		osds: cfg.OSDs, backups: cfg.Backups, buckets: cfg.Buckets, dr: cfg.DR,
	}
	c, err := Contract()
	if err != nil {
		return nil, err
	}
	a.shell, err = shell.New(shell.Config[caller.Caller]{
		Name: "storage", Contract: c, Log: cfg.Log, Registry: cfg.Registry, Errors: problem.Capitals,
		AccessLog: cfg.AccessLog, MaxInFlight: cfg.MaxInFlight, MaxBody: maxBody, Tracer: cfg.Tracer, Console: cfg.Console,
		Ready:    []shell.Check{{Name: "database", Run: cfg.Ping}},
		Sessions: a.sessions(), Who: who,
		Identify: cfg.Gate.Identify, Still: cfg.Gate.Still, Admit: cfg.Gate.Admit, Front: a.probes, Now: cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	storageapi.Register(a.shell, storageapi.BasePath, a, a.shell.Fail)
	a.shell.Raw("GET /jobs/{id}/watch", a.watchJob)
	return a, nil
}

// Contract returns the service's contract.
func (a *API) Contract() *contract.Contract { return a.shell.Contract() }

// Handler returns the handler of all requests.
func (a *API) Handler() http.Handler { return a.shell.Handler() }

// probes answers the paths beside the API that other services do not have.
func (a *API) probes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body any
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
		case r.URL.Path == "/health" || r.URL.Path == "/livez":
			body = storageapi.Health{Status: storageapi.HealthStatusOk}
		case r.URL.Path == "/version":
			body = a.Version()
		}
		if body == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(body) // a client that has left does not mind
	})
}

// Version says which version of the gateway this is.
func (a *API) Version() storageapi.Version {
	return storageapi.Version{Name: "mainstay-storage", Version: a.cfg.Version, Api: "v1"}
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// orElse returns *p, or usual if p is nil.
func orElse[T any](p *T, usual T) T {
	if p == nil {
		return usual
	}
	return *p
}

// known returns a pointer to n, or nil if n is negative: not known.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
