package httpapi

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/billing"
	"github.com/mainstay-infra/mainstay/service/vm/browse"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/compliance"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
	"github.com/mainstay-infra/mainstay/service/vm/image"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/life"
	"github.com/mainstay-infra/mainstay/service/vm/notify"
	"github.com/mainstay-infra/mainstay/service/vm/record"
	"github.com/mainstay-infra/mainstay/service/vm/snapshot"
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
	// Cookies seals the sessions of the console, and Ended knows those that were signed out.
	Cookies *auth.Sealer
	Ended   session.Ended
	// Workspace knows the other services of the installation. Nil: there are none.
	Workspace session.Workspace
	// Ping returns the database's name, or an error if it does not answer.
	Ping func(ctx context.Context) (string, error)

	Identity  *identity.Service
	Store     *record.Store
	Jobs      *job.Runner
	Driver    *driver.Driver
	Life      *life.Life
	Snapshots *snapshot.Manager
	Backups   *backup.Manager
	Browser   *browse.Manager
	Dataplane *dataplane.Dataplane
	Notifier  *notify.Notifier
	Scanner   *compliance.Scanner
	Billing   *billing.Manager
	// Tickets seals the tokens that tickets stand for.
	Tickets *auth.Sealer
	Images  *image.Manager
}

// API serves the contract's operations.
type API struct {
	cfg       Config
	shell     *shell.Shell[caller.Caller]
	store     *record.Store
	jobs      *job.Runner
	driver    *driver.Driver
	life      *life.Life
	snapshots *snapshot.Manager
	backups   *backup.Manager
	browser   *browse.Manager
	identity  *identity.Service
	dataplane *dataplane.Dataplane
	notifier  *notify.Notifier
	scanner   *compliance.Scanner
	billing   *billing.Manager
	images    *image.Manager
}

var _ vmapi.Server = (*API)(nil)

// Contract loads the service's contract.
func Contract() (*contract.Contract, error) {
	return contract.Load(vmapi.Document, vmapi.BasePath, access.Classes())
}

// maxBody is the maximum size of a request body, in bytes.
const maxBody = 1 << 20

// New returns an API.
func New(cfg Config) (*API, error) {
	a := &API{
		cfg: cfg, store: cfg.Store, jobs: cfg.Jobs, driver: cfg.Driver, life: cfg.Life,
		snapshots: cfg.Snapshots, backups: cfg.Backups, browser: cfg.Browser,
		identity: cfg.Identity, dataplane: cfg.Dataplane, notifier: cfg.Notifier, scanner: cfg.Scanner,
		billing: cfg.Billing, images: cfg.Images,
	}
	c, err := Contract()
	if err != nil {
		return nil, err
	}
	a.shell, err = shell.New(shell.Config[caller.Caller]{
		Name:        "vm",
		Contract:    c,
		Log:         cfg.Log,
		Registry:    cfg.Registry,
		Errors:      problem.Bare,
		AccessLog:   cfg.AccessLog,
		MaxInFlight: cfg.MaxInFlight,
		MaxBody:     maxBody,
		Tracer:      cfg.Tracer,
		Console:     cfg.Console,
		Ready: []shell.Check{
			{Name: "database", Run: cfg.Ping},
			{Name: "hypervisor", Run: cfg.Driver.Ready},
		},
		Identify: a.identify,
		Sessions: a.sessions(),
		Who:      who,
		Still:    a.still,
		Admit:    a.authorize,
		Rates:    map[string]shell.Rate{shell.RateLogin: {PerSecond: 20, Burst: 500}},
		Now:      cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	vmapi.Register(a.shell, vmapi.BasePath, a, a.fail)
	a.shell.Raw("POST /api/auth/logout", a.logout)
	a.shell.Raw("GET /api/backups/{id}/files/content", a.backupFile)
	a.shell.Raw("GET /api/jobs/{job}/events", a.watchJob)
	a.shell.Raw("GET /api/dataplane/observe", a.observe)
	a.shell.Raw("PUT /api/billing/pricing", a.setPricing)
	a.shell.Raw("GET /api/vms/{name}/history", a.history)
	a.shell.Raw("GET /api/vms/{name}/events/stream", a.watchEvents)
	a.shell.Raw("POST /api/vms/{name}/tickets", a.createTicket)
	a.shell.Raw("GET /api/vms/{name}/console", a.socketTo("console"))
	a.shell.Raw("GET /api/vms/{name}/screen", a.socketTo("vnc"))
	a.shell.Raw("POST /api/vms/{name}/agent/exec", a.exec)
	a.shell.Raw("POST /api/vms/{name}/agent/put-file", a.inGuest("agent/put-file", "vm.put_file"))
	a.shell.Raw("POST /api/vms/{name}/agent/get-file", a.inGuest("agent/get-file", "vm.get_file"))
	return a, nil
}

// Handler returns the handler of all requests.
func (a *API) Handler() http.Handler { return a.shell.Handler() }

// fail writes an error as the whole response, without paths of hosts unless the caller is an admin
// of everything.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if c := caller.From(r.Context()); err != nil && !c.SeesAll() {
		f := *fault.From(err)
		f.Message = c.Public(f.Message)
		err = &f
	}
	a.shell.Fail(w, r, err)
}

// GetHealth answers while the process runs.
func (a *API) GetHealth(context.Context, vmapi.GetHealthRequestObject) (vmapi.GetHealthResponseObject, error) {
	return vmapi.GetHealth200JSONResponse{Status: vmapi.HealthStatusOk}, nil
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

// ref returns a pointer to a copy of v.
func ref[T any](v T) *T { return &v }

// some returns a pointer to a copy of v, or nil if v is zero.
func some[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// orEmpty returns an empty slice for nil, since the contract does not allow null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
