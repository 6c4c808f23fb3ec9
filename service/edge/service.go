package edge

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/pki"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Deps holds the dependencies of the service.
type Deps struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	Tracer   trace.TracerProvider // nil: no traces
	Console  fs.FS                // the built web console; nil: none
	// Workspace knows the other services of the installation. Nil: those in the settings.
	Workspace session.Workspace
}

// Service is the edge control plane.
type Service struct {
	cfg Config
	log *slog.Logger
	now func() time.Time

	db       *db.DB
	audit    *audit.Log
	jobs     *jobs.Runner
	delivery *delivery.Engine
	ca       *pki.Authority // nil if disabled
	oidc     *auth.OIDC     // nil if not configured
	hasher   *auth.Hasher
	throttle *auth.Throttle
	targets  webhook.Guard // restricts the targets of routes

	routeSecrets *auth.Sealer
	keys         *keyring.Keys
	configured   atomic.Pointer[configured]

	tokens     tokenCache
	routing    routing
	topics     *topicmap.Map
	ingest     *db.Batcher[*Event, bool]
	heartbeats *db.Batcher[Heartbeat, HeartbeatReply]
	otaReports *db.Batcher[otaReport, otaReported]
	batchSlots chan struct{}
	callers    *httpserve.Slots // requests in flight, by token
	strangers  *httpserve.Slots // requests without credentials in flight, by network

	deafUntil      time.Time // no heartbeats could be received before; changed only by markOffline
	activityBell   feed.Bell
	alerts         *alert.Alerts
	alertNudge     chan struct{}
	campaignNudge  chan struct{}
	shell          *shell.Shell[Caller]
	registry       *prometheus.Registry
	closeTransport func()
}

// Contract loads the service's contract.
func Contract() (*contract.Contract, error) {
	return contract.Load(edgeapi.Document, edgeapi.BasePath, access.Classes())
}

// New returns a Service with its database open. It does everything that can fail at start. The
// caller must call Close.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, log: deps.Log, now: deps.Now, registry: deps.Registry,
		throttle:      auth.NewThrottle(10_000, deps.Now),
		targets:       webhook.Guard{AllowPrivate: cfg.AllowPrivateTargets},
		alertNudge:    make(chan struct{}, 1),
		campaignNudge: make(chan struct{}, 1),
		batchSlots:    make(chan struct{}, 8),
		deafUntil:     deps.Now(),
		callers:       httpserve.NewSlots(0, maxInFlightOfCaller),
		strangers:     httpserve.NewSlots(maxStrangers, maxStrangersOfNetwork),
	}
	if s.db, err = openDatabase(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	if err := s.beginHistory(ctx); err != nil {
		return nil, err
	}
	sealer, err := s.openSecrets(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.openShell(deps, sealer); err != nil {
		return nil, err
	}
	if cfg.PKI {
		dir := cfg.PKIDir
		if dir == "" {
			dir = filepath.Join(cfg.Data, "pki")
		}
		if err := s.openAuthority(ctx, dir); err != nil {
			return nil, err
		}
	}
	s.tokens.enabled = s.db.Engine() == db.SQLite // no other process writes to the file
	s.topics = topicmap.New()
	s.ingest = db.NewBatcher(s.db, 1000, s.writeEvents)
	s.heartbeats = db.NewBatcher(s.db, 500, s.writeHeartbeats)
	s.otaReports = db.NewBatcher(s.db, 200, s.writeOTAReports)

	s.alerts = alert.New(alert.Config{DB: s.db, Now: s.now, Changed: s.alertsChanged})

	replica := newID()
	s.jobs = jobs.New(jobs.Config{
		DB:       s.db,
		Queues:   map[string]int{"default": 4},
		Worker:   replica,
		Log:      s.log,
		Registry: deps.Registry,
		Now:      s.now,
		Rand:     mathrand.Float64,
	})
	jobs.Register(s.jobs, "default", rolloutKind, s.runRollout)
	jobs.Register(s.jobs, "default", bulkReplayKind, s.runBulkReplay)

	client := webhook.NewClient(s.targets, webhook.Options{})
	s.closeTransport = client.CloseIdleConnections
	s.delivery = delivery.New(delivery.Config{
		DB:          s.db,
		Client:      client,
		Route:       s.routeForDelivery,
		Revision:    s.routesRevision,
		HoldRoutes:  s.holdRoutes,
		OnGone:      s.routeGone,
		OnBlocked:   s.routeBlocked,
		Concurrency: cfg.DeliveryConcurrency,
		Replica:     replica,
		Log:         s.log,
		Registry:    deps.Registry,
		Now:         s.now,
	})
	if s.keys.Replaced { // the routes' secrets may be sealed with a lost key
		if err := s.disableUnreadable(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// DatabaseFile returns the path of the SQLite database in the data folder.
func DatabaseFile(folder string) string { return filepath.Join(folder, "edge.db") }

func openDatabase(ctx context.Context, cfg Config) (*db.DB, error) {
	d, err := db.Open(ctx, db.Config{URL: cfg.Database, Path: DatabaseFile(cfg.Data), Schema: "edge"})
	if err != nil {
		return nil, err
	}
	for _, m := range Migrations() {
		if err := d.Migrate(ctx, m.Owner, m.Files); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Migrations returns all migrations of the service, in the order in which to apply them.
func Migrations() []db.Migration {
	return []db.Migration{
		{Owner: "audit", Files: audit.Migrations()},
		{Owner: "jobs", Files: jobs.Migrations()},
		{Owner: "keyring", Files: keyring.Migrations()},
		{Owner: "session", Files: session.Migrations()},
		{Owner: "edge", Files: db.EmbeddedMigrations(migrationFiles)},
	}
}

// openSecrets derives the service's keys from its secret key, and hashes the
// credentials of the configuration. It returns the sealer for the cookies of the console.
func (s *Service) openSecrets(ctx context.Context) (*auth.Sealer, error) {
	keys, err := keyring.SecretKeys(ctx, s.db, keyring.Config{
		Configured: s.cfg.SecretKey, Accepted: s.cfg.AcceptedSecretKey, Data: s.cfg.Data, Log: s.log,
		Replace: s.cfg.ReplaceLostKeys, Fits: s.keyFits,
	})
	if err != nil {
		return nil, err
	}
	if s.routeSecrets, err = newRouteSealer(keys.Current, keys.Accepted...); err != nil {
		return nil, err
	}
	seed, acceptedSeeds, err := keys.Derive("edge audit head")
	if err != nil {
		return nil, err
	}
	checkpoints := s.cfg.AuditCheckpoints
	if checkpoints == "" {
		checkpoints = filepath.Join(s.cfg.Data, "audit-checkpoints.jsonl")
	}
	s.audit, err = audit.Open(ctx, audit.Config{
		DB: s.db, Seed: seed, Accepted: acceptedSeeds, Now: s.now, Log: s.log, Registry: s.registry,
		Checkpoints: checkpoints,
		Send:        audit.Endpoint{URL: s.cfg.AuditCheckpointURL, Secret: s.cfg.AuditCheckpointSecret},
	})
	if err != nil {
		return nil, err
	}
	if err := keys.Settle(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) {
		return s.renewSeals(ctx, tx, rotated)
	}); err != nil {
		return nil, err
	}
	s.keys = keys
	if s.hasher, err = auth.NewHasher(auth.DefaultPasswordParams(), 2); err != nil {
		return nil, err
	}
	if err := s.configure(ctx, s.cfg); err != nil {
		return nil, err
	}
	for _, secret := range []*string{
		&s.cfg.AdminPassword, &s.cfg.AdminToken, &s.cfg.ViewerToken, &s.cfg.EnrollmentToken,
		&s.cfg.SecretKey, &s.cfg.AcceptedSecretKey, &s.cfg.AuditCheckpointSecret,
	} {
		*secret = ""
	}
	sessions, err := auth.NewSealer(keys.Current, "edge console sessions", keys.Accepted...)
	if err != nil || s.cfg.OIDC.Issuer == "" {
		return sessions, err
	}
	cookies, err := auth.NewSealer(keys.Current, "edge sign-on cookies", keys.Accepted...)
	if err != nil {
		return nil, err
	}
	s.oidc, err = s.cfg.OIDC.Open("/api/v1/auth/oidc/callback", string(RoleViewer), cookies, s.now)
	return sessions, err
}

// Close closes the database and idle connections. Run must have returned.
func (s *Service) Close() error {
	s.closeTransport()
	return s.db.Close()
}

// Run does the service's background work until ctx ends, then completes work in progress. The
// Handler needs it running.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	// Requests are still served while ctx ends, so what they depend on stops last.
	serving, stopServing := context.WithCancel(context.Background())
	var serve sync.WaitGroup
	for name, run := range map[string]func(context.Context){
		"ingest": s.ingest.Run, "heartbeats": s.heartbeats.Run, "update reports": s.otaReports.Run, "audit": s.audit.Run,
	} {
		serve.Go(func() { routine.Keep(serving, s.log, name, run) })
	}
	defer serve.Wait()
	defer stopServing()

	work.Go(func() { routine.Keep(ctx, s.log, "delivery", s.delivery.Run) })
	work.Go(func() { routine.Keep(ctx, s.log, "search", s.describeOld) })
	var jobsErr error
	work.Go(func() { routine.Keep(ctx, s.log, "jobs", func(ctx context.Context) { jobsErr = s.jobs.Run(ctx) }) })
	for _, p := range []jobs.Periodic{
		{Name: "mark offline", Interval: max(s.cfg.HeartbeatInterval/2, 500*time.Millisecond), Run: s.markOffline},
		{Name: "alerts", Interval: 15 * time.Second, Nudge: s.alertNudge, Run: s.sweepAlerts},
		{Name: "campaigns", Interval: 2 * time.Second, Nudge: s.campaignNudge, Run: s.advanceCampaigns},
		{Name: "retention", Interval: time.Minute, Run: s.expire},
		{Name: "seals", Interval: time.Minute, Run: s.renewLateSeals},
		{Name: "revocation list", Interval: time.Hour, Run: s.renewCRL},
	} {
		p.Log, p.Rand, p.Jitter = s.log, mathrand.Float64, 0.1
		work.Go(func() { routine.Keep(ctx, s.log, p.Name, func(ctx context.Context) { jobs.Every(ctx, p) }) })
	}
	work.Wait()
	return jobsErr
}

func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (s *Service) nudgeAlerts()    { nudge(s.alertNudge) }
func (s *Service) nudgeCampaigns() { nudge(s.campaignNudge) }

// StandsOn describes the service's storage: the database engine, and whether it has its own CA.
func (s *Service) StandsOn() string {
	on := s.db.Engine().String()
	if s.ca == nil {
		return on
	}
	return on + ", own CA"
}

// Serve listens as configured and serves requests until ctx ends. It calls ready with the URL once
// the service is reachable.
func (s *Service) Serve(ctx context.Context, ready func(url string)) error {
	server, err := httpserve.Listen(s.cfg.server(), s.Handler(), s.log)
	if err != nil {
		return err
	}
	background, stop := context.WithCancel(context.Background())
	defer stop()
	done := routine.Start(s.log, "edge", func() error { return s.Run(background) })
	ready(server.URL())
	err = server.Run(ctx) // drains before it returns
	stop()
	return errors.Join(err, <-done)
}
