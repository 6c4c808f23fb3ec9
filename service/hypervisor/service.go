package hypervisor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/hypervisor/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/disk"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/httpapi"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/migrate"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	policies "github.com/mainstay-infra/mainstay/service/hypervisor/policy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/recovery"
	"github.com/mainstay-infra/mainstay/service/hypervisor/template"
	"github.com/mainstay-infra/mainstay/service/hypervisor/usage"
)

// Deps holds what the service needs besides its settings.
type Deps struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	Tracer   trace.TracerProvider // nil: no traces
	Console  fs.FS                // the built web console; nil: none
	// Workspace knows the other services of the installation. Nil: those in the settings.
	Workspace session.Workspace
	// Backends run VMs; nil: all that this host supports.
	Backends map[string]backend.Backend
	// Reload receives a value when credentials should be reloaded, as on SIGHUP; nil: never.
	Reload <-chan struct{}
	// Settings reads the settings again. Required if Reload is set.
	Settings func() (Config, error)
}

// Service is the daemon of one host: its settings, its loops, and the rooms that do the work.
type Service struct {
	cfg  Config
	data string // absolute
	log  *slog.Logger
	now  func() time.Time

	db       *db.DB
	audit    *audit.Log
	machines *machine.Set
	operate  *operation.Runner
	host     *host.Host
	plan     *plan.Planner
	life     *life.Life
	recovery *recovery.Recovery
	store    *record.Store
	usage    *usage.Sampler
	policies *policies.Keeper
	api      *httpapi.API
	fleet    *fleet.Registry
	reporter *fleet.Reporter // nil: this host is in no fleet
	peers    *fleet.Peers    // nil: likewise
	migrate  *migrate.Manager

	// reloading and settings come from Deps.
	reloading <-chan struct{}
	settings  func() (Config, error)
	begun     restartable
	// url is where this daemon can be reached; nil until it listens.
	url      atomic.Pointer[string]
	restored chan struct{} // closed when recovery has restored the VMs; requests wait for it
}

// New opens the database and everything else that can fail on start. It starts no VM. The caller
// must call Close if New succeeded.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	doc, err := configfile.Load(cfg.ConfigFile)
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(doc); err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, log: deps.Log, now: deps.Now, reloading: deps.Reload, settings: deps.Settings,
		begun: withoutCredentials(cfg, doc), restored: make(chan struct{}),
	}
	for _, warning := range cfg.warnings(doc) {
		s.log.Warn(warning)
	}
	gate := httpapi.NewGate(cfg.credentials(doc), deps.Now)
	if s.data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, err
	}
	if err := host.MakeFolders(s.data, &doc.Jailer); err != nil {
		return nil, err
	}
	if s.db, err = openDatabase(ctx, s.data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	if err := s.openRooms(ctx, doc, gate, deps); err != nil {
		return nil, err
	}
	registerMetrics(deps.Registry, s)
	return s, nil
}

// openRooms creates the rooms, dependencies first.
func (s *Service) openRooms(ctx context.Context, doc *configfile.Config, gate *httpapi.Gate, deps Deps) error {
	sealer, cookies, err := s.openKeys(ctx, deps.Registry)
	if err != nil {
		return err
	}
	workspace, err := session.OpenWorkspace(deps.Workspace, s.cfg.Workspace)
	if err != nil {
		return err
	}
	signOn, err := s.openSignOn(doc, cookies)
	if err != nil {
		return err
	}
	policy := policyOf(doc, s.data)
	s.store = record.New(record.Config{DB: s.db, Audit: s.audit, Sealer: sealer, Policy: policy, Now: s.now})
	if err := s.store.Describe(ctx); err != nil {
		return err
	}
	s.machines = machine.NewSet(s.store, s.log)
	s.operate = operation.New(operation.Config{
		Store: s.store, DB: s.db, Log: s.log, Registry: deps.Registry, Now: s.now, Ending: s.machines.Ending(),
	})
	images, err := catalog.Open(catalog.Config{
		Data: s.data, Images: &doc.Images, Policy: policy, AgentProgram: s.agentProgram,
		Store: s.store, Operations: s.operate,
	})
	if err != nil {
		return err
	}
	if deps.Backends == nil {
		deps.Backends = s.localBackends(doc)
	}
	flows := policies.NewInbox()
	s.host, err = host.Open(host.Config{
		Data: s.data, Document: doc, Backends: deps.Backends, AgentProgram: s.agentProgram, Policy: policy,
		Store: s.store, Log: s.log, OnFlow: flows.Put,
	})
	if err != nil {
		return err
	}
	s.policies = policies.New(policies.Config{Store: s.store, Host: s.host, Log: s.log, Now: s.now, Flows: flows})
	s.plan = plan.New(plan.Config{
		Document: doc, Policy: policy, Store: s.store, Host: s.host, Catalog: images, Now: s.now,
		VCPUs: s.cfg.NodeVCPUs, MemoryMiB: s.cfg.NodeMemoryMiB, Admitted: s.admitted, Changed: s.nudgeFleet,
	})
	guests := agent.New(agent.Config{Store: s.store, Machines: s.machines, Host: s.host, Log: s.log})
	templates := template.New(template.Config{
		Store: s.store, Machines: s.machines, Host: s.host, Plan: s.plan, Catalog: images, Operations: s.operate,
		Log: s.log, Now: s.now, Most: doc.Images.MaxTemplates,
		Undo: func(ctx context.Context, r record.VM, why string) error { return s.life.Undo(ctx, r, why) },
	})
	s.life = life.New(life.Config{
		Store: s.store, Machines: s.machines, Host: s.host, Plan: s.plan, Agent: guests, Operations: s.operate,
		Templates: templates,
		Registry:  deps.Registry, Log: s.log, Now: s.now, RoomChanged: s.nudgeFleet,
	})
	s.usage = usage.New(usage.Config{
		Running: s.machines.Running, Store: s.store.AddUsage, Log: s.log, Now: s.now,
		Read: func(ctx context.Context, id string) (backend.Metrics, error) {
			return s.life.Metrics(caller.ByItself(ctx), id)
		},
	})
	disks := disk.New(disk.Config{
		Store: s.store, Machines: s.machines, Host: s.host, Life: s.life, Plan: s.plan, Catalog: images,
		Operations: s.operate, Policy: policy, Log: s.log, Now: s.now,
	})
	s.recovery = recovery.New(recovery.Config{
		Data: s.data, Store: s.store, Machines: s.machines, Host: s.host, Catalog: images, Life: s.life,
		Disk: disks, Templates: templates, Log: s.log, Now: s.now,
	})
	if err := s.openFleet(); err != nil {
		return err
	}
	s.migrate = migrate.New(migrate.Config{
		Store: s.store, Machines: s.machines, Host: s.host, Life: s.life, Plan: s.plan, Catalog: images,
		Operations: s.operate, Peers: s.peers, Log: s.log, Now: s.now,
	})
	s.api, err = httpapi.New(httpapi.Config{
		Log: s.log, Registry: deps.Registry, Tracer: deps.Tracer, Console: deps.Console, Now: s.now,
		AccessLog: s.cfg.AccessLog, MaxInFlight: s.cfg.MaxInFlight, Auth: &doc.Auth, NodeName: s.cfg.NodeName,
		StopGrace: s.cfg.StopGrace, Local: s.cfg.server().Local(), Restored: s.restored, Ping: s.db.Ping,
		Store: s.store, Machines: s.machines, Operations: s.operate, Catalog: images, Plan: s.plan, Agent: guests,
		Life: s.life, Disk: disks, Migrate: s.migrate, Fleet: s.fleet, Policies: s.policies, Templates: templates,
		Cookies: cookies, Ended: session.InDatabase(s.db, s.now), Workspace: workspace, SignOn: signOn,
	}, gate)
	return err
}

// admitted is called for each new VM.
func (s *Service) admitted(r *record.VM) {
	s.nudgeFleet()
	if !r.ExpiresAt.IsZero() {
		s.life.Timed()
	}
}

// Handler returns the handler of all requests.
func (s *Service) Handler() http.Handler { return s.api.Handler() }

// Close closes what New opened. Run must have returned.
func (s *Service) Close() error { return s.db.Close() }

// Run restores the existing VMs and manages them until ctx ends. VMs keep running after that.
func (s *Service) Run(ctx context.Context) error {
	// Restoring is not cancellable: it must not stop with only some of the VMs restored.
	if err := s.policies.Load(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := s.migrate.Restore(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := s.recovery.Restore(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	close(s.restored)
	s.machines.Go("autostart", func() { s.recovery.Autostart(ctx) })
	var jobsErr error
	loops := map[string]func(context.Context){
		"reload":     s.keepReloading,
		"jobs":       func(ctx context.Context) { jobsErr = s.operate.Run(ctx) },
		"expiry":     s.life.KeepTime,
		"migrations": s.migrate.Run,
		"audit":      s.audit.Run,
		"usage":      s.usage.Run,
		"flows":      s.policies.Run,
		"forget usage": func(ctx context.Context) {
			jobs.Every(ctx, jobs.Periodic{
				Name: "forget usage", Interval: time.Hour, Run: s.store.ExpireUsage, Log: s.log,
			})
		},
		"forget operations": func(ctx context.Context) {
			jobs.Every(ctx, jobs.Periodic{
				Name: "forget operations", Interval: time.Hour, Run: s.operate.Expire, Log: s.log,
			})
		},
	}
	if s.host.HasNetwork() {
		loops["network"] = s.host.KeepNetwork
	}
	if s.reporter != nil {
		loops["heartbeats"] = s.reporter.Run
	}
	var work sync.WaitGroup
	for name, loop := range loops {
		work.Go(func() { routine.Keep(ctx, s.log, name, loop) })
	}
	work.Wait()
	s.machines.Depart()
	return jobsErr
}

// StandsOn names what runs the VMs, for example "qemu (tcg)".
func (s *Service) StandsOn(ctx context.Context) string { return s.plan.StandsOn(ctx) }

// Serve listens on the configured address and answers requests until ctx ends. It calls ready with
// the URL once the service can be reached.
func (s *Service) Serve(ctx context.Context, ready func(url string)) error {
	server, err := httpserve.Listen(s.cfg.server(), s.Handler(), s.log)
	if err != nil {
		return err
	}
	url := server.URL()
	s.url.Store(&url)
	s.log.Info("listening on " + server.Listening())
	if s.api.Exposed() {
		s.log.Warn("everybody who reaches this daemon is an admin: there are no credentials, and --insecure is set; "+
			"set HYPERVISOR_TOKEN", "address", server.Listening())
	}
	background, stop := context.WithCancel(context.Background())
	defer stop()
	done := routine.Start(s.log, "hypervisor", func() error {
		defer stop()
		return s.Run(background)
	})
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(background, cancel) // without Run there is nothing to serve
	// Waiting requests are told to retry, so that the server can drain.
	stopWaiting := context.AfterFunc(serving, s.machines.Leave)
	defer stopWaiting()
	ready(server.URL())
	err = server.Run(serving)
	stop()
	return errors.Join(err, <-done)
}
