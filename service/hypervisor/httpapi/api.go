// Package httpapi translates between the API contract and the packages ("rooms") of the daemon:
// requests to calls, rows to responses, and sockets to channels of VMs.
//
//	api.go       the API and its dependencies
//	access.go    identifies and authorizes callers: the Gate
//	vms.go, disks.go, agent.go, images.go, templates.go, fleet.go, audit.go   operations of the contract
//	feed.go      the stream of events of all VMs
//	policies.go  network policies and their decisions
//	forward.go             requests for other hosts of the fleet
//	acting.go    admins' credentials that act for a tenant or a person
//	person.go    the sessions of the web console
//	socket.go    consoles and screens, and the tickets with which browsers open them
//
// # Invariants
//
//   - It makes no decisions: it rejects only malformed requests. All other checks are in the rooms.
//   - It knows neither SQL nor transactions.
//   - Nothing is served before the VMs are restored.
//
// It imports the rooms whose methods it calls. None imports it.
package httpapi

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/kit/ticket"
	"github.com/mainstay-infra/mainstay/service/hypervisor/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/disk"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/migrate"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/policy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/template"
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
	Auth        *configfile.Auth
	NodeName    string
	StopGrace   time.Duration // default for requests that do not give one
	Local       bool          // the daemon can only be reached from this host
	// Restored is closed when recovery has restored the VMs.
	Restored <-chan struct{}
	// Ping returns an error if the database does not answer.
	Ping func(ctx context.Context) error

	Store      *record.Store
	Machines   *machine.Set
	Operations *operation.Runner
	Catalog    *catalog.Catalog
	Plan       *plan.Planner
	Agent      *agent.Keeper
	Life       *life.Life
	Disk       *disk.Manager
	Migrate    *migrate.Manager
	Fleet      *fleet.Registry
	Policies   *policy.Keeper
	Templates  *template.Keeper

	// Cookies seals the sessions of the console, and Ended knows those that were signed out.
	Cookies *auth.Sealer
	Ended   session.Ended
	// SignOn is the login at an OIDC provider, or nil if there is none.
	SignOn *auth.OIDC
	// Workspace knows the other services of the installation, or is nil if there are none.
	Workspace session.Workspace
}

// API serves the contract's operations.
type API struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	shell    *shell.Shell[caller.Caller]
	gate     atomic.Pointer[Gate]
	tickets  *ticket.Tickets[visitor]
	store    *record.Store
	machines *machine.Set
	operate  *operation.Runner
	catalog  *catalog.Catalog
	plan     *plan.Planner
	agent    *agent.Keeper
	life     *life.Life
	disk     *disk.Manager
	migrate  *migrate.Manager
	fleet    *fleet.Registry
	policies *policy.Keeper

	templates *template.Keeper
}

var _ hypervisorapi.Server = (*API)(nil)

// Contract loads the service's contract.
func Contract() (*contract.Contract, error) {
	return contract.Load(hypervisorapi.Document, hypervisorapi.BasePath, access.Classes())
}

// New returns an API with the contract's operations behind a gate and the rate limit.
func New(cfg Config, gate *Gate) (*API, error) {
	a := &API{
		cfg: cfg, log: cfg.Log, now: cfg.Now, tickets: ticket.New("mtk_", ownerOf, cfg.Now), store: cfg.Store, machines: cfg.Machines,
		operate: cfg.Operations, catalog: cfg.Catalog, plan: cfg.Plan, agent: cfg.Agent, life: cfg.Life, disk: cfg.Disk,
		migrate: cfg.Migrate,
		fleet:   cfg.Fleet, policies: cfg.Policies, templates: cfg.Templates,
	}
	a.gate.Store(gate)
	c, err := Contract()
	if err != nil {
		return nil, err
	}
	a.shell, err = shell.New(shell.Config[caller.Caller]{
		Name:        "hypervisor",
		Contract:    c,
		Log:         cfg.Log,
		Registry:    cfg.Registry,
		Errors:      problem.Flat,
		AccessLog:   cfg.AccessLog,
		MaxInFlight: cfg.MaxInFlight,
		MaxBody:     maxBody,
		Tracer:      cfg.Tracer,
		Console:     cfg.Console,
		Ready: []shell.Check{
			{Name: "database", Run: func(ctx context.Context) (string, error) { return "", cfg.Ping(ctx) }},
			{Name: "VMs", Run: a.restoredVMs},
			{Name: "backends", Run: cfg.Plan.Usable},
		},
		Identify:     a.identify,
		Still:        a.still,
		Admit:        a.authorize,
		Rates:        map[string]shell.Rate{"": {PerSecond: cfg.Auth.RateLimitRPS, Burst: cfg.Auth.RateLimitBurst}},
		Whom:         whom,
		Now:          cfg.Now,
		Sessions:     a.sessions(),
		Who:          who,
		GuardMetrics: cfg.Auth.Require && !cfg.Auth.OpenMetrics,
	})
	if err != nil {
		return nil, err
	}
	hypervisorapi.Register(a.shell, hypervisorapi.BasePath, a, a.shell.Fail)
	a.shell.Raw("GET /v1/vms/{id}/console", a.openConsole)
	a.shell.Raw("GET /v1/vms/{id}/vnc", a.openScreen)
	a.shell.Raw("GET /v1/vms/{id}/served-disk", a.serveDisk)
	a.shell.Raw("GET /v1/operations/{operation}/events", a.watchOperation)
	a.shell.Raw("GET /v1/events", a.watchVMs)
	a.shell.Raw("GET /v1/flows", a.followFlows)
	a.shell.Mirror("/fleet/nodes/{node}", ofHost, a.forward)
	return a, nil
}

// Handler returns the handler of all requests.
func (a *API) Handler() http.Handler { return a.shell.Handler() }

// Gate returns the current gate.
func (a *API) Gate() *Gate { return a.gate.Load() }

// SetGate replaces the gate. Streams and sockets whose callers it does not admit end within a second.
func (a *API) SetGate(g *Gate) { a.gate.Store(g) }

// Exposed reports whether anyone who reaches the daemon from another host is an admin.
func (a *API) Exposed() bool { return a.Gate().Open() && !a.cfg.Local }

// MetricsForAdmins reports whether everybody who reads /metrics is an admin.
func (a *API) MetricsForAdmins() bool {
	return a.Gate().Open() || a.cfg.Auth.Require && !a.cfg.Auth.OpenMetrics
}

// restoredVMs is a readiness check: it fails until the VMs are restored.
func (a *API) restoredVMs(context.Context) (string, error) {
	select {
	case <-a.cfg.Restored:
		return "", nil
	default:
		return "", fault.New(fault.Unavailable, "the VMs that there are are being brought back").WithCode("not_ready")
	}
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
