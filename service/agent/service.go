package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/agent/ota"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
	"github.com/mainstay-infra/mainstay/service/agent/store"
	"github.com/mainstay-infra/mainstay/service/agent/twin"
	"github.com/mainstay-infra/mainstay/service/agent/workload"
)

// Deps holds the dependencies of the agent.
type Deps struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	// Transport makes requests to the control plane. nil means over the network, with the site's
	// certificate.
	Transport http.RoundTripper
	// Rand returns a number in [0, 1). nil means a random one.
	Rand func() float64
	// RetryMin is the shortest wait after a failed request; 0 means one second.
	RetryMin time.Duration
}

// Agent is the site agent.
type Agent struct {
	cfg             Config
	enrollmentToken string
	log             *slog.Logger
	now             func() time.Time
	random          func() float64
	transport       http.RoundTripper
	registry        *prometheus.Registry
	retryMin        time.Duration

	db        *store.DB
	identity  *keeper
	link      *link
	outbox    *outbox.Outbox
	twins     *twin.Store
	updates   *ota.Manager
	workloads *workload.Manager

	shell  *shell.Shell[struct{}]
	bodies *ration // memory for the bodies of requests

	forwardError atomic.Pointer[string] // why events are not forwarded; empty if they are
	syncError    atomic.Pointer[string] // why devices or the desired state are not in step; empty if they are
	reportError  atomic.Pointer[string] // why reports of updates are not sent; empty if they are
	// Only keepLink uses the fields below.
	renewNotBefore time.Time
	unknownSince   time.Time // since when heartbeats have been answered with 401; zero if they are not
	unkept         *Identity // a new identity that could not be stored yet
}

// AccessLocal is the only access class of the contract: anyone who can reach the socket or the
// loopback address.
const AccessLocal = "local"

// Contract loads the contract of the local API.
func Contract() (*contract.Contract, error) {
	return contract.Load(agentapi.Document, agentapi.BasePath, []string{AccessLocal})
}

// New opens the data folder and everything else that can fail at start. If it succeeds, the caller
// must call Close.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Agent, err error) {
	if cfg.Name == "" {
		if cfg.Name, err = os.Hostname(); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "name: this machine has none; set --name")
		}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.checkHook(); err != nil {
		return nil, err
	}
	// Hooks run in another working directory and get paths in the data folder.
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: the path %s cannot be made absolute", cfg.Data)
	}
	a := &Agent{
		cfg:             cfg,
		enrollmentToken: cfg.EnrollmentToken,
		log:             deps.Log,
		now:             deps.Now,
		random:          deps.Rand,
		transport:       deps.Transport,
		registry:        deps.Registry,
		retryMin:        cmp.Or(deps.RetryMin, time.Second),
		link:            newLink(deps.Now),
		bodies:          newRation(bodyBudget / bodyBudgetUnit),
	}
	a.cfg.EnrollmentToken = ""
	a.forwardError.Store(new(string))
	note(&a.syncError, nil)
	note(&a.reportError, nil)
	if a.random == nil {
		a.random = rand.Float64
	}
	if err := a.openShell(deps); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Data, 0o750); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", cfg.Data)
	}
	if err := checkFolder(cfg.Data); err != nil {
		return nil, err
	}
	// Open the database first: its lock keeps other agents out of the folder.
	open := store.Open
	if _, err := os.Lstat(filepath.Join(cfg.Data, identityFile)); err == nil {
		open = store.Reopen // an enrolled site has had a database
	}
	if a.db, err = open(ctx, cfg.Data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.db.Close())
		}
	}()
	for _, path := range store.SetAside(cfg.Data) {
		a.log.Error("a damaged database was set aside; it may hold events that were not sent", "path", path)
	}
	for _, path := range store.Missing(cfg.Data) {
		a.log.Error("the database was missing or empty; events in it that were not sent are lost", "recorded_in", path)
	}
	if err := a.openIdentity(); err != nil {
		return nil, err
	}
	a.outbox, err = outbox.New(
		ctx,
		outbox.Config{DB: a.db, MaxBytes: int64(cfg.OutboxMaxSize), DropOldest: cfg.OutboxFull == fullDropOldest,
			Log: a.log, Now: a.now, Registry: deps.Registry},
	)
	if err != nil {
		return nil, err
	}
	if a.twins, err = twin.Open(ctx, a.db, filepath.Join(cfg.Data, "twins")); err != nil {
		return nil, err
	}
	artifacts, err := artifactClient(cfg.CA)
	if err != nil {
		return nil, err
	}
	a.updates, err = ota.New(ota.Config{
		DB:              a.db,
		Folder:          filepath.Join(cfg.Data, "ota"),
		Hook:            cfg.OTAHook,
		MaxSize:         int64(cfg.OTAMaxSize),
		Parallel:        cfg.OTAParallel,
		HookTimeout:     cfg.OTAHookTimeout,
		RebootWait:      cfg.OTARebootWait,
		DownloadTimeout: cfg.OTADownloadTimeout,
		RetryAfterMax:   cfg.RetryAfterMax,
		Client:          artifacts,
		Firmware:        a.twins.Firmware,
		Log:             a.log,
		Now:             a.now,
		Rand:            a.random,
	})
	if err != nil {
		return nil, err
	}
	if a.workloads, err = workload.New(workload.Config{
		DB:          a.db.DB,
		Socket:      cfg.PodmanSocket,
		Log:         a.log,
		Now:         a.now,
		Registry:    deps.Registry,
		ReportRetry: deps.RetryMin,
	}); err != nil {
		return nil, err
	}
	a.registerMetrics()
	return a, nil
}

// openIdentity reads the identity, or checks that the settings allow to enroll.
func (a *Agent) openIdentity() (err error) {
	if a.identity, err = openKeeper(a.cfg.Data); err != nil {
		return err
	}
	switch id := a.identity.current; {
	case id == nil && a.enrollmentToken == "":
		return fault.InvalidField(
			"enrollment-token", "is required until the site is enrolled: AGENT_ENROLLMENT_TOKEN, or --enrollment-token",
		)
	case id == nil:
		a.link.state = Enrolling
	}
	return nil
}

// artifactClient creates the client that downloads the artifacts of updates. It does not present
// the site's certificate, since artifacts are on other servers than the control plane.
func artifactClient(caFile string) (*http.Client, error) {
	pool, err := trust(caFile, nil)
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig.RootCAs = pool
	t.MaxIdleConns, t.IdleConnTimeout, t.ResponseHeaderTimeout = 2, 10*time.Second, time.Minute
	return &http.Client{Transport: t}, nil
}

func (a *Agent) registerMetrics() {
	gauge := func(name, help string, value func() float64) {
		a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("agent_link_up", "1 while heartbeats are answered.", func() float64 {
		if _, online := a.link.online(); online {
			return 1
		}
		return 0
	})
	gauge(
		"agent_certificate_not_after_seconds",
		"When the site's certificate ends, in seconds since 1970; 0 without one.",
		func() float64 {
			if end := a.identity.get().notAfter(); !end.IsZero() {
				return float64(end.Unix())
			}
			return 0
		},
	)
	gauge("agent_clock_skew_seconds", "How far the control plane's clock is ahead.", func() float64 {
		if skew := a.link.clockSkew(); skew != nil {
			return skew.Seconds()
		}
		return 0
	})
}

// newBackoff returns the backoff for one loop's requests to the control plane.
func (a *Agent) newBackoff() backoff.Backoff {
	return backoff.Backoff{Min: a.retryMin, Max: a.cfg.RetryMax, MaxAsked: a.cfg.RetryAfterMax, Rand: a.random}
}

// serverNow returns the current time by the control plane's clock, or by our own clock if that is
// unknown.
func (a *Agent) serverNow() time.Time {
	if skew := a.link.clockSkew(); skew != nil {
		return a.now().Add(*skew)
	}
	return a.now()
}

// Close closes what New has opened. Run must have returned.
func (a *Agent) Close() error { return a.db.Close() }

// Run communicates with the control plane and does the work at the site until ctx ends. Local
// requests are answered only while it runs.
func (a *Agent) Run(ctx context.Context) error {
	var accepting, work sync.WaitGroup
	serving, stopServing := context.WithCancel(context.Background())
	accepting.Go(func() { routine.Keep(serving, a.log, "outbox", a.outbox.Run) })
	defer accepting.Wait()
	defer stopServing()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workloadErr error
	for name, run := range map[string]func(context.Context){
		"damage": func(ctx context.Context) {
			select {
			case <-a.db.Damaged():
				stop()
			case <-ctx.Done():
			}
		},
		"link": a.keepLink, "forwarding": a.forward, "device sync": a.syncDevices, "update reports": a.reportUpdates,
		"updates":     a.updates.Run,
		"deployments": func(ctx context.Context) { workloadErr = a.workloads.Run(ctx, a.server) },
	} {
		work.Go(func() { routine.Keep(ctx, a.log, name, run) })
	}
	work.Wait()
	select {
	case <-a.db.Damaged():
		return ErrDamaged
	default:
	}
	if ctx.Err() != nil && errors.Is(workloadErr, context.Canceled) {
		return nil // ctx ended before it had started
	}
	return workloadErr
}

// server returns the control plane's client for deployments.
func (a *Agent) server() (api *edgeapi.Client, site string, online bool) {
	s, online := a.link.online()
	if s == nil {
		return nil, "", false
	}
	return s.api, s.site(), online
}

// Serve listens on the socket and the loopback address, and runs the agent until ctx ends. It calls
// ready once local programs can reach the agent.
func (a *Agent) Serve(ctx context.Context, ready func(listening []string)) error {
	doors, err := a.listen()
	if err != nil {
		return err
	}
	background, stop := context.WithCancel(context.Background())
	defer stop()
	done := routine.Start(a.log, "agent", func() error { return a.Run(background) })
	ready(doors.names())
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	var ended error
	var work sync.WaitGroup
	work.Go(func() {
		defer stopServing() // without Run, requests would wait forever
		ended = routine.Call(a.log, "agent", func() error { return <-done })
	})
	err = doors.serve(serving) // drains before it returns
	stop()
	work.Wait()
	return errors.Join(err, ended)
}

// ErrDamaged is returned if the database has turned out to be damaged. The next New sets it aside
// and creates a new one.
var ErrDamaged = store.ErrDamaged
