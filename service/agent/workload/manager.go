package workload

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/podman"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Config holds the dependencies and settings of a Manager.
type Config struct {
	DB       *db.DB
	Socket   string // Podman's socket; empty means that deployments are not run
	Log      *slog.Logger
	Now      func() time.Time
	Registry prometheus.Registerer

	// Settle is how long a container without a health check must run to count as started; 0 means
	// 10 s. Look is the time between two checks of running containers; 0 means 15 s.
	Settle, Look time.Duration
	// ReportRetry is the minimum time between two attempts to report; 0 means 5 s.
	ReportRetry time.Duration
}

// Manager runs the deployments of a site.
type Manager struct {
	cfg      Config
	store    store
	podman   *podman.Client // nil if Podman is switched off
	instance string

	rollbacks, restarts prometheus.Counter

	news chan struct{} // receives a value when there is something to report

	mu      sync.Mutex
	packs   []edgeapi.PolicyPack
	pulled  bool
	workers map[string]*worker
	start   func(id string) // starts a worker; nil unless Run is active
	sweep   chan struct{}
}

// New creates a Manager with its tables in the agent's database.
func New(cfg Config) (*Manager, error) {
	if cfg.Settle == 0 {
		cfg.Settle = 10 * time.Second
	}
	if cfg.ReportRetry == 0 {
		cfg.ReportRetry = 5 * time.Second
	}
	if cfg.Look == 0 {
		cfg.Look = 15 * time.Second
	}
	m := &Manager{
		cfg:     cfg,
		store:   store{cfg.DB},
		news:    make(chan struct{}, 1),
		sweep:   make(chan struct{}, 1),
		workers: map[string]*worker{},
		rollbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agent_deployment_rollbacks_total",
			Help: "New versions that did not prove themselves, so that the version before runs again.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "agent_deployment_restarts_total",
			Help: "Containers that the agent started again.",
		}),
	}
	for _, c := range []prometheus.Collector{m.rollbacks, m.restarts} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, err
		}
	}
	if cfg.Socket != "" {
		m.podman = podman.New(cfg.Socket)
	}
	stored, err := m.store.open(context.Background())
	m.instance, m.pulled, m.packs = stored.Instance, stored.Pulled, stored.Packs.V
	return m, err
}

// SetDesired stores the desired state and wakes the workers that apply it. It returns when the
// state is stored.
func (m *Manager) SetDesired(
	ctx context.Context, deployments []edgeapi.AgentDeployment, packs []edgeapi.PolicyPack,
) error {
	if err := m.store.setDesired(ctx, deployments, packs); err != nil {
		return err
	}
	m.mu.Lock()
	m.packs, m.pulled = packs, true
	m.mu.Unlock()
	return m.wakeAll(ctx)
}

// wakeAll wakes the workers of all deployments, and starts missing ones.
func (m *Manager) wakeAll(ctx context.Context) error {
	rows, err := m.store.list(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	for _, r := range rows {
		if w := m.workers[r.ID]; w != nil {
			w.wake()
		} else if m.start != nil {
			m.start(r.ID)
		}
	}
	m.mu.Unlock()
	signal(m.sweep)
	return nil
}

// signal sends to a channel of capacity 1 unless a value is already pending.
func signal(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // a value is already pending
	}
}

// Run applies the desired state and sends reports until ctx is done. server returns a client of the
// control plane, the ID of this site, and whether there is a link.
func (m *Manager) Run(ctx context.Context, server func() (*edgeapi.Client, string, bool)) error {
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	m.mu.Lock()
	m.start = func(id string) { // called with mu held
		w := newWorker(m, id)
		m.workers[id] = w
		running.Go(func() {
			defer m.ended(ctx, id)
			routine.Keep(ctx, m.cfg.Log, "deployment", w.run)
		})
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.start = nil
		m.mu.Unlock()
		stop()
		running.Wait()
		if m.podman != nil {
			m.podman.Close()
		}
	}()
	running.Go(func() {
		routine.Keep(ctx, m.cfg.Log, "deployment reports", func(ctx context.Context) { m.report(ctx, server) })
	})
	for awake := false; ; {
		if !awake {
			err := m.wakeAll(ctx)
			if awake = err == nil; !awake && ctx.Err() == nil {
				m.cfg.Log.Error("read deployments; it is tried again", "error", err)
			}
		}
		_ = routine.Run(m.cfg.Log, "leftover containers", func() { m.removeLeftovers(ctx) }) // logged
		select {
		case <-ctx.Done():
			return nil
		case <-m.sweep:
		case <-time.After(10 * m.cfg.Look):
		}
	}
}

// ended removes the worker of a deployment. It then wakes all workers, since the deployment may
// have been added again after the worker's last check.
func (m *Manager) ended(ctx context.Context, id string) {
	m.mu.Lock()
	delete(m.workers, id)
	m.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err := m.wakeAll(ctx); err != nil {
		m.cfg.Log.Error("read deployments", "error", err)
	}
}

// removeLeftovers removes containers of unknown deployments. They exist only after a crash between
// two steps.
func (m *Manager) removeLeftovers(ctx context.Context) {
	m.mu.Lock()
	known := m.pulled
	m.mu.Unlock()
	if m.podman == nil || !known {
		return
	}
	rows, err := m.store.list(ctx)
	if err != nil {
		m.cfg.Log.Error("read deployments", "error", err)
		return
	}
	containers, err := m.podman.ListContainers(ctx, labelAgent, m.instance)
	if err != nil {
		return // the workers report that Podman is unavailable
	}
	for _, c := range containers {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.ID == c.Labels[labelDeployment] }) {
			if err := m.podman.RemoveContainer(ctx, c.ID); err != nil && ctx.Err() == nil {
				m.cfg.Log.Warn("remove a container that is left over", "container", c.ID, "error", err)
			}
		}
	}
}

// Status is the status of a deployment.
type Status struct {
	ID, Name, Image, Version string
	DesiredState             string
	Status, Message          string
	Revision                 int64 // revision that Status is about
	Reported                 bool  // the control plane has received it
}

// Status lists all deployments.
func (m *Manager) Status(ctx context.Context) ([]Status, error) {
	rows, err := m.store.list(ctx)
	if err != nil {
		return nil, err
	}
	out := []Status{}
	for _, r := range rows {
		if d := r.Desired.V; !r.Removed {
			out = append(
				out,
				Status{ID: r.ID, Name: d.Name, Image: d.Image, Version: d.Version, DesiredState: string(d.DesiredState),
					Status: r.Status, Message: r.Message, Revision: r.Revision, Reported: r.Reported},
			)
		}
	}
	return out, nil
}

// allows reports whether the last known packs allow a deployment's image.
func (m *Manager) allows(d edgeapi.AgentDeployment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return allowed(d, m.packs)
}

// errSwitchedOff is why deployments do not run without Podman.
var errSwitchedOff = errors.New("this agent runs no containers: start it with --podman-socket")
