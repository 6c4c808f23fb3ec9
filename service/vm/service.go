package vm

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/billing"
	"github.com/mainstay-infra/mainstay/service/vm/browse"
	"github.com/mainstay-infra/mainstay/service/vm/compliance"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/httpapi"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
	"github.com/mainstay-infra/mainstay/service/vm/image"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/life"
	"github.com/mainstay-infra/mainstay/service/vm/notify"
	"github.com/mainstay-infra/mainstay/service/vm/record"
	"github.com/mainstay-infra/mainstay/service/vm/snapshot"
	"github.com/mainstay-infra/mainstay/service/vm/watch"
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
}

// Service is VM management: its settings, its loops, and the rooms that do the work.
type Service struct {
	cfg Config
	log *slog.Logger
	now func() time.Time

	db        *db.DB
	audit     *audit.Log
	keys      *keyring.Keys
	identity  *identity.Service
	store     *record.Store
	jobs      *job.Runner
	driver    *driver.Driver
	life      *life.Life
	snapshots *snapshot.Manager
	backups   *backup.Manager
	browser   *browse.Manager
	watch     *watch.Watcher
	dataplane *dataplane.Dataplane
	notifier  *notify.Notifier
	scanner   *compliance.Scanner
	billing   *billing.Manager
	images    *image.Manager
	api       *httpapi.API
	// renew seals stored secrets again with the current secret key.
	renew func(ctx context.Context, tx *db.Tx, rotated bool) (unreadable int, err error)

	ending context.Context // done when the service ends
	end    context.CancelFunc
}

// New opens the database and everything else that can fail on start. The caller must call Close if
// New succeeded.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.absolute(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: deps.Log, now: deps.Now}
	s.ending, s.end = context.WithCancel(context.Background())
	if s.db, err = openDatabase(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	replica, err := replicaID(cfg.Data)
	if err != nil {
		return nil, err
	}
	if s.driver, err = driver.New(driver.Config{
		URL: cfg.HypervisorURL, Token: cfg.HypervisorToken, CAFile: cfg.HypervisorCA, Fleet: cfg.Fleet, Replica: replica,
	}); err != nil {
		return nil, err
	}
	s.cfg.HypervisorToken = ""
	return s, s.openRooms(ctx, deps)
}

// Handler returns the handler of all requests.
func (s *Service) Handler() http.Handler { return s.api.Handler() }

// Token returns a token of whoever has the username and the password, as a login does.
func (s *Service) Token(ctx context.Context, username, password string) (string, error) {
	opened, err := s.identity.Login(ctx, username, password, "")
	return opened.Token, err
}

// Close closes what New opened. Run must have returned.
func (s *Service) Close() error {
	s.end()
	s.browser.Shut()
	s.driver.Close()
	return s.db.Close()
}

// Run does the service's background work until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	var work sync.WaitGroup
	var jobsErr, notifyErr error
	work.Go(func() { routine.Keep(ctx, s.log, "jobs", func(ctx context.Context) { jobsErr = s.jobs.Run(ctx) }) })
	work.Go(func() {
		routine.Keep(ctx, s.log, "webhooks", func(ctx context.Context) { notifyErr = s.notifier.Run(ctx) })
	})
	work.Go(func() { routine.Keep(ctx, s.log, "audit", s.audit.Run) })
	work.Go(func() { routine.Keep(ctx, s.log, "events of the daemon", s.watch.Follow) })
	work.Go(func() { routine.Keep(ctx, s.log, "backups of an earlier installation", s.backups.ScanAtStart) })
	work.Go(func() { routine.Keep(ctx, s.log, "usage by events of the daemon", s.billing.Follow) })
	for _, p := range []jobs.Periodic{
		{Name: "compare with the daemon", Interval: s.cfg.CompareInterval, Nudge: s.watch.Nudged(), Run: s.watch.Compare},
		{Name: "remove deleted VMs", Interval: 5 * time.Second, Nudge: s.life.Nudged(), Run: s.life.Sweep},
		{Name: "apply network policies", Interval: s.cfg.CompareInterval, Nudge: s.dataplane.Nudged(), Run: s.dataplane.Sync},
		{Name: "compare network policies", Interval: s.cfg.CompareInterval, Run: s.dataplane.Compare},
		{Name: "remove unfinished snapshots", Interval: time.Minute, Run: s.snapshots.Sweep},
		{Name: "backup policies", Interval: 30 * time.Second, Run: s.backups.RunPolicies},
		{Name: "boot a backup", Interval: 10 * time.Minute, Run: s.backups.BootOne},
		{Name: "close backups that nobody reads", Interval: time.Minute, Run: s.browser.Tidy},
		{Name: "remove VMs that read backups", Interval: 15 * time.Second, Run: s.driver.SweepReaders},
		{Name: "remove expired backups", Interval: time.Minute, Run: s.backups.Expire},
		{Name: "free room in the backup repository", Interval: time.Hour, Run: s.backups.Prune},
		{Name: "count usage", Interval: s.cfg.CompareInterval, Run: s.billing.Measure},
		{Name: "forget usage", Interval: time.Hour, Run: s.billing.Expire},
		{Name: "end images whose jobs were broken off", Interval: 15 * time.Second, Run: s.images.Sweep},
		{Name: "forget jobs", Interval: time.Hour, Run: s.jobs.Expire},
		{Name: "forget tickets", Interval: time.Hour, Run: s.store.ForgetTickets},
		{Name: "forget deliveries of webhooks", Interval: time.Hour, Run: s.notifier.Expire},
		{Name: "seals", Interval: time.Minute, Run: s.renewLateSeals},
	} {
		p.Log, p.Rand, p.Jitter = s.log, rand.Float64, 0.1
		work.Go(func() { routine.Keep(ctx, s.log, p.Name, func(ctx context.Context) { jobs.Every(ctx, p) }) })
	}
	work.Wait()
	return errors.Join(jobsErr, notifyErr)
}

// StandsOn names what the service stands on, for example "SQLite, host node1".
func (s *Service) StandsOn(ctx context.Context) string {
	on, err := s.driver.Ready(ctx)
	if err != nil {
		on = "no hypervisor daemon yet"
	}
	return s.db.Engine().String() + ", " + on
}

// Serve listens on the configured address and answers requests until ctx ends. It calls ready with
// the URL once the service can be reached.
func (s *Service) Serve(ctx context.Context, ready func(url string)) error {
	server, err := httpserve.Listen(s.cfg.server(), s.Handler(), s.log)
	if err != nil {
		return err
	}
	s.log.Info("listening on " + server.Listening())
	background, stop := context.WithCancel(context.Background())
	defer stop()
	done := routine.Start(s.log, "vm", func() error { return s.Run(background) })
	// Requests that wait for jobs are answered, so that the server can drain.
	stopWaiting := context.AfterFunc(ctx, s.end)
	defer stopWaiting()
	ready(server.URL())
	err = server.Run(ctx)
	stop()
	return errors.Join(err, <-done)
}
