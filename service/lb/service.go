package lb

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// Deps holds the dependencies of the Service.
type Deps struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	Tracer   trace.TracerProvider // nil means no traces
	Console  fs.FS                // the built web console; nil means none
	// Workspace knows the other services of the installation. Nil means those in the settings.
	Workspace session.Workspace
	// Reload receives a value when the document should be loaded again, as on SIGHUP. nil means
	// never.
	Reload <-chan struct{}
	// Open attaches to the interfaces. nil means OpenPlane.
	Open func(context.Context, PlaneOptions) (Plane, Hops, error)
	// Speaker announces the addresses. nil means BGP.
	Speaker Speaker
}

// Service is the load balancer of one node.
type Service struct {
	cfg        Config
	log        *slog.Logger
	registry   *prometheus.Registry
	reload     <-chan struct{}
	startedAt  time.Time
	apiListen  string
	controller *controller
	document   *watchedFile
	history    *history
	gate       *gate
	shell      *shell.Shell[caller]
}

// Contract loads the contract of the API.
func Contract() (*contract.Contract, error) {
	return contract.Load(lbapi.Document, lbapi.BasePath, access.Classes())
}

// New reads the document and checks everything that can be checked at start. It touches neither
// kernel nor network; Run does.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: deps.Log, registry: deps.Registry, reload: deps.Reload, startedAt: deps.Now(),
		history: newHistory(deps.Now)}
	var err error
	if s.gate, err = newGate(&cfg, deps.Log); err != nil {
		return nil, err
	}
	s.gate.now = deps.Now
	s.cfg.APIKey, s.cfg.APIReadonlyKey = "", ""
	m := newMetrics(deps.Registry)
	s.gate.register(deps.Registry)
	deps.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lb_insecure",
		Help: "1 if everybody who reaches the node from elsewhere may do everything, since there are neither keys nor client certificates.",
	}, func() float64 {
		if s.insecure() {
			return 1
		}
		return 0
	}))
	c := &controller{log: deps.Log, open: deps.Open, speaker: deps.Speaker, metrics: m, bpfDir: cfg.BPFDir}
	c.init()
	if c.open == nil {
		c.open = OpenPlane
	}
	if c.speaker == nil {
		c.speaker = bgp.New(deps.Log, nil)
	}
	c.prober = probe.New(probe.Options{Log: deps.Log, Dial: c.dialProbe, OnChange: c.healthChanged, OnProbe: m.probed})
	s.controller = c
	s.document = &watchedFile{path: cfg.ConfigFile, now: deps.Now, log: deps.Log, metrics: m,
		adopt: func(d *configfile.Config) error { return c.adopt(d, cfg.Listen != "") }}
	if err := s.document.begin(); err != nil {
		return nil, err
	}
	s.apiListen = c.cfg.APIListen
	deps.Registry.MustRegister(newCollector(c))
	return s, s.openShell(deps)
}

// SetOrchestratorDrains replaces the drains of the orchestrator with the name source. It is for
// programs that move workloads. These drains are separate from the drains of operators; ending one
// does not end the other. Port 0 stands for all ports of the address. Drains of backends that are
// not configured take effect when they are.
func (s *Service) SetOrchestratorDrains(source string, backends []datapath.BackendKey) {
	s.controller.setOrchestratorDrains(source, backends)
}

// Run balances until ctx ends. Then it withdraws the announcements and leaves the kernel balancing.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	var probeErr error
	work.Go(func() {
		routine.Keep(ctx, s.log, "document watch", func(ctx context.Context) { s.document.watch(ctx, s.reload) })
	})
	work.Go(func() {
		probeErr = routine.Call(s.log, "health checks", func() error { return s.controller.prober.Run(ctx) })
	})
	work.Go(func() {
		routine.Keep(ctx, s.log, "history", func(ctx context.Context) { s.history.run(ctx, s.controller) })
	})
	err := s.controller.run(ctx)
	work.Wait()
	return errors.Join(err, probeErr)
}

// StandsOn describes what the service balances with.
func (s *Service) StandsOn() string { return s.controller.standsOn() }

// insecure reports whether anyone who can reach the node from elsewhere may do everything.
func (s *Service) insecure() bool { return !s.gate.on && !s.cfg.server(s.apiListen).Local() }

// warnEvery is the time between two warnings while the node is insecure.
const warnEvery = time.Hour

// warnInsecure logs a warning every warnEvery while the node is insecure, until ctx ends.
func (s *Service) warnInsecure(ctx context.Context, address string) {
	if !s.insecure() {
		return
	}
	again := time.NewTicker(warnEvery)
	defer again.Stop()
	for {
		s.log.Warn(
			"everybody who reaches this load balancer may change it: there are neither keys nor client certificates; set LB_API_KEY",
			"address", address,
		)
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// Serve listens on the configured address, handles requests and balances until ctx ends. It calls
// ready with the URL once the service can be reached.
func (s *Service) Serve(ctx context.Context, ready func(url string)) error {
	server, err := httpserve.Listen(s.cfg.server(s.apiListen), s.Handler(), s.log)
	if err != nil {
		return settingOf(err)
	}
	servers := []*httpserve.Server{server}
	if s.cfg.MetricsListen != "" {
		second, err := httpserve.Listen(httpserve.Config{Listen: s.cfg.MetricsListen}, s.shell.Probes(), s.log)
		if err != nil {
			return errors.Join(err, server.Close())
		}
		servers = append(servers, second)
	}
	// Whichever stops first stops the others.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	errs := make([]error, len(servers)+1)
	for i, server := range servers {
		work.Go(func() {
			defer stop()
			errs[i] = routine.Call(s.log, "http server", func() error { return server.Run(ctx) })
		})
	}
	work.Go(func() {
		defer stop()
		errs[len(servers)] = routine.Call(s.log, "load balancer", func() error { return s.Run(ctx) })
	})
	s.log.Info("listening on " + server.Listening())
	work.Go(func() {
		routine.Keep(ctx, s.log, "insecure", func(ctx context.Context) { s.warnInsecure(ctx, server.Listening()) })
	})
	_ = s.controller.await(ctx, 1) // so that StandsOn has something to report
	ready(server.URL())
	work.Wait()
	return errors.Join(errs...)
}
