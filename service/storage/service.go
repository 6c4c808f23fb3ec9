package storage

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/grpcserve"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/backup"
	"github.com/mainstay-infra/mainstay/service/storage/bucket"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/dr"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/kubernetes"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
	"github.com/mainstay-infra/mainstay/service/storage/gate"
	"github.com/mainstay-infra/mainstay/service/storage/grpcapi"
	"github.com/mainstay-infra/mainstay/service/storage/httpapi"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
	"github.com/mainstay-infra/mainstay/service/storage/provision"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/schedule"
)

// Deps holds what the service needs besides its settings.
type Deps struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	Tracer   trace.TracerProvider // nil: no traces
	Console  fs.FS                // the built web console; nil: none
	Version  string
	// Workspace knows the other services of the installation. Nil: those in the settings.
	Workspace session.Workspace
}

// Service is the storage gateway: its settings, its loops, and the rooms that do the work.
type Service struct {
	cfg Config
	log *slog.Logger
	now func() time.Time

	// What the settings name, by the names of the entries.
	folders     map[string]string            // of backends of the type nfs
	datasets    map[string]string            // of backends of the type zfs
	kubernetes  map[string]kubernetes.Config // of backends of the type kubernetes
	inventories map[string]string            // files, of backends of the types san and cloud_block
	ceph        map[string]cephCluster
	gateways    map[string]*rgw.Gateway // of clusters, by the same names
	singles     map[string]driver.SingleBucket

	db        *db.DB
	audit     *audit.Log
	keys      *keyring.Keys
	store     *record.Store
	jobs      *job.Runner
	backends  *backend.Set
	volumes   *provision.Manager
	buckets   *bucket.Manager
	backups   *backup.Manager
	schedules *schedule.Manager
	dr        *dr.Manager
	sealer    *auth.Sealer // of keys of buckets
	monitor   *monitor.Monitor
	gate      *gate.Gate
	api       *httpapi.API
	registry  *prometheus.Registry

	ending context.Context // done when the service ends
	end    context.CancelFunc
}

// discoverInterval is how often the gateway looks at what all backends have.
const discoverInterval = time.Minute

// New opens the database and everything else that can fail on start. The caller must call Close if
// New succeeded.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: deps.Log, now: deps.Now, registry: deps.Registry}
	s.ending, s.end = context.WithCancel(context.Background())
	if s.db, err = openDatabase(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	return s, s.openRooms(ctx, deps)
}

// Handler returns the handler of all requests.
func (s *Service) Handler() http.Handler { return s.api.Handler() }

// Backups returns what keeps backups.
func (s *Service) Backups() *backup.Manager { return s.backups }

// Schedules returns what runs schedules.
func (s *Service) Schedules() *schedule.Manager { return s.schedules }

// DR returns what mirrors volumes.
func (s *Service) DR() *dr.Manager { return s.dr }

// Close closes what New opened. Run must have returned.
func (s *Service) Close() error {
	s.end()
	return errors.Join(s.backends.Close(), s.db.Close())
}

// Run does the service's background work until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	var work sync.WaitGroup
	var jobsErr error
	work.Go(func() { routine.Keep(ctx, s.log, "jobs", func(ctx context.Context) { jobsErr = s.jobs.Run(ctx) }) })
	work.Go(func() { routine.Keep(ctx, s.log, "audit", s.audit.Run) })
	for _, p := range []jobs.Periodic{
		{Name: "discover backends", Interval: discoverInterval, Run: s.discover},
		{Name: "end what lost jobs have left", Interval: 15 * time.Second, Run: s.sweep},
		{Name: "monitor", Interval: time.Duration(s.cfg.MonitorInterval) * time.Second, Run: s.monitor.Round},
		{Name: "tell of alerts", Interval: 2 * time.Second, Run: s.monitor.Notify},
		{Name: "forget alerts", Interval: time.Hour, Run: s.monitor.Expire},
		{Name: "empty the trash", Interval: time.Minute, Run: s.volumes.EmptyTrash},
		{Name: "schedules", Interval: 15 * time.Second, Run: s.schedules.Run},
		{Name: "backups", Interval: 15 * time.Second, Run: s.backups.Sweep},
		{Name: "mirrors", Interval: 15 * time.Second, Run: s.dr.Pass},
		{Name: "prune backups", Interval: time.Hour, Run: s.backups.Prune},
		{Name: "forget jobs", Interval: time.Hour, Run: s.jobs.Expire},
		{Name: "seals", Interval: time.Minute, Run: func(ctx context.Context) error {
			return s.keys.Renew(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) { return s.renew(ctx, tx, rotated) })
		}},
	} {
		p.Log, p.Rand, p.Jitter = s.log, rand.Float64, 0.1
		work.Go(func() { routine.Keep(ctx, s.log, p.Name, func(ctx context.Context) { jobs.Every(ctx, p) }) })
	}
	work.Wait()
	return jobsErr
}

// sweep ends what lost jobs have left.
func (s *Service) sweep(ctx context.Context) error {
	return errors.Join(s.volumes.Sweep(ctx), s.buckets.Sweep(ctx), s.dr.Sweep(ctx))
}

// discover looks at what all backends have. One that does not answer does not delay the others.
func (s *Service) discover(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	all, err := s.store.Backends(ctx)
	if err != nil {
		return err
	}
	var looking sync.WaitGroup
	for _, b := range all {
		looking.Go(func() {
			_ = routine.Run(s.log, "discovery of a backend", func() { // a panic was logged
				if _, err := s.backends.Discover(ctx, b.ID); err != nil && ctx.Err() == nil {
					s.log.Warn("a backend was not discovered", "backend", b.Name, "error", err)
				}
			})
		})
	}
	looking.Wait()
	return nil
}

// StandsOn names what the service stands on, for example "SQLite, 1 backend".
func (s *Service) StandsOn(ctx context.Context) string {
	on := s.db.Engine().String()
	all, err := s.store.Backends(ctx)
	if err != nil {
		return on
	}
	for _, b := range all {
		on += ", " + b.Name + " (" + b.Type + ")"
	}
	return on
}

// ListenGRPC binds the address of gRPC, with the API registered. The server is nil if gRPC is off.
func (s *Service) ListenGRPC() (*grpcserve.Server, error) {
	if !s.cfg.servesGRPC() {
		return nil, nil
	}
	server, err := grpcserve.Listen(grpcserve.Config{
		HTTP: s.cfg.grpcServer(), Log: s.log, Registry: s.registry, Domain: grpcapi.Domain, Codes: problem.Capitals,
		AccessLog: s.cfg.AccessLog,
	})
	if err != nil {
		return nil, err
	}
	grpcapi.Register(server, grpcapi.Config{
		Contract: s.api.Contract(), Gate: s.gate, Operations: s.api, Ending: s.ending,
	})
	return server, nil
}

// Serve listens on the configured addresses and answers requests until ctx ends. It calls ready with
// the URL once the service can be reached.
func (s *Service) Serve(ctx context.Context, ready func(url string)) error {
	server, err := httpserve.Listen(s.cfg.server(), s.Handler(), s.log)
	if err != nil {
		return err
	}
	rpc, err := s.ListenGRPC()
	if err != nil {
		return errors.Join(err, server.Close())
	}
	listening := "listening on " + server.Listening()
	if rpc != nil {
		listening += ", for gRPC on " + rpc.Listening()
	}
	s.log.Info(listening)
	background, stop := context.WithCancel(context.Background())
	defer stop()
	done := routine.Start(s.log, "storage", func() error { return s.Run(background) })
	// Requests that wait for jobs are answered, so that the servers can drain.
	stopWaiting := context.AfterFunc(ctx, s.end)
	defer stopWaiting()
	// If one of the servers fails, the other one ends, too.
	serving, fail := context.WithCancel(ctx)
	defer fail()
	rpcDone := routine.Start(s.log, "gRPC", func() error {
		if rpc == nil {
			return nil
		}
		defer fail()
		return rpc.Run(serving)
	})
	ready(server.URL())
	err = server.Run(serving)
	fail()
	err = errors.Join(err, <-rpcDone)
	stop()
	return errors.Join(err, <-done)
}
