package delivery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// Route is what the engine needs to know of a route.
type Route struct {
	ID        string
	OrgID     string
	TargetURL string
	Method    string
	Enabled   bool
	RetryMax  int // retries after the first attempt
	Timeout   time.Duration
	Secret    webhook.Secret
}

// Config is what an Engine is made of.
type Config struct {
	DB     *db.DB
	Client *webhook.Client
	// Route reads a route. A route that is gone is db.ErrNoRows.
	Route func(ctx context.Context, id string) (Route, error)
	// OnGone disables a route whose target answered 410, in the transaction that
	// records the answer.
	OnGone func(ctx context.Context, tx *db.Tx, routeID string) error
	// Concurrency is how many requests may be under way to one route's target.
	Concurrency int
	// Replica names this process among those on one database.
	Replica  string
	Log      *slog.Logger
	Registry prometheus.Registerer
	Now      func() time.Time
}

// Engine makes deliveries until Run ends.
type Engine struct {
	Config
	now      func() time.Time
	onGone   func(ctx context.Context, tx *db.Tx, routeID string) error
	schedule webhook.Schedule
	outcomes *db.Batcher[verdict, struct{}]
	metrics  metrics
	poke     chan struct{} // somebody was marked in woken

	mu       sync.Mutex
	woken    map[string]bool
	breakers map[string]*webhook.Breaker
	workers  map[string]*worker
	cursors  map[string]int64 // where the last worker of a route had read to
}

type metrics struct {
	attempts *prometheus.CounterVec
	latency  prometheus.Histogram
}

// New returns an engine; Run starts it.
func New(cfg Config) *Engine {
	e := &Engine{
		Config: cfg, now: cfg.Now, onGone: cfg.OnGone,
		schedule: webhook.Schedule{Base: time.Second, Max: 5 * time.Minute},
		poke:     make(chan struct{}, 1),
		woken:    map[string]bool{}, breakers: map[string]*webhook.Breaker{}, workers: map[string]*worker{}, cursors: map[string]int64{},
		metrics: metrics{
			attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "edge_delivery_attempts_total", Help: "Requests to route targets by outcome."}, []string{"outcome"}),
			latency:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "edge_delivery_seconds", Help: "From acceptance of an event to the target's yes.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}),
		},
	}
	cfg.Registry.MustRegister(e.metrics.attempts, e.metrics.latency)
	e.outcomes = db.NewBatcher(cfg.DB, 500, e.settle)
	return e
}

// Wake tells the engine that routes have new deliveries or were changed.
func (e *Engine) Wake(routeIDs ...string) {
	e.mu.Lock()
	for _, id := range routeIDs {
		e.woken[id] = true
	}
	e.mu.Unlock()
	select {
	case e.poke <- struct{}{}:
	default:
	}
}

// Changed tells the engine that a route was changed, so that what its worker has
// read ahead is read again.
func (e *Engine) Changed(routeID string) {
	e.mu.Lock()
	if w := e.workers[routeID]; w != nil {
		w.stale.Store(true)
	}
	delete(e.cursors, routeID)
	e.mu.Unlock()
	e.Wake(routeID)
}

// Breaker is the state of a route's circuit breaker in this process.
func (e *Engine) Breaker(routeID string) webhook.State {
	return e.breaker(routeID).State()
}

func (e *Engine) breaker(routeID string) *webhook.Breaker {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.breakerLocked(routeID)
}

func (e *Engine) breakerLocked(routeID string) *webhook.Breaker {
	b := e.breakers[routeID]
	if b == nil {
		b = webhook.NewBreaker(webhook.BreakerConfig{})
		e.breakers[routeID] = b
	}
	return b
}

// Run delivers until ctx ends, then waits for the requests under way and stores
// their outcomes.
func (e *Engine) Run(ctx context.Context) {
	// Outcomes must still be stored while the last requests come in.
	storing, stopStoring := context.WithCancel(context.Background())
	var store sync.WaitGroup
	store.Go(func() { e.outcomes.Run(storing) })
	defer store.Wait()
	defer stopStoring()

	if e.DB.Engine() == db.SQLite {
		e.work(ctx, allShards()) // the only process: no shards to share
		return
	}
	e.shareShards(ctx)
}

// pollInterval is how soon deliveries are found that nobody was woken for: those
// that other replicas accepted, and those due again.
const pollInterval = 250 * time.Millisecond

// work runs a worker for every route that has something due in the given shards,
// until ctx ends and all requests under way are settled.
func (e *Engine) work(ctx context.Context, shards []int64) {
	e.mu.Lock()
	clear(e.cursors) // they were read with other shards
	e.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ids, err := e.dueRoutes(ctx, shards)
		if err != nil && ctx.Err() == nil {
			e.Log.Error("delivery: find due routes", "error", err)
		}
		for _, id := range ids {
			if w := e.startWorker(id, shards); w != nil {
				running.Go(func() {
					w.run(ctx)
					e.endWorker(w)
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-e.poke:
		case <-tick.C:
		}
	}
}

// dueRoutes are the routes that were woken and those with something due.
func (e *Engine) dueRoutes(ctx context.Context, shards []int64) ([]string, error) {
	e.mu.Lock()
	ids := make([]string, 0, len(e.woken))
	for id := range e.woken {
		ids = append(ids, id)
		if w := e.workers[id]; w != nil {
			w.nudge()
		}
	}
	clear(e.woken)
	e.mu.Unlock()
	if len(shards) == 0 {
		return nil, nil
	}
	query, args, err := db.In(`SELECT id FROM routes r WHERE r.enabled AND EXISTS
		(SELECT 1 FROM deliveries d WHERE d.route_id = r.id AND d.next_at <= ? AND d.shard IN (?))`, db.At(e.now()), shards)
	if err != nil {
		return ids, err
	}
	var due []string
	err = e.DB.Select(ctx, &due, query, args...)
	return append(ids, due...), err
}

func (e *Engine) startWorker(routeID string, shards []int64) *worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.workers[routeID]; w != nil {
		w.nudge() // what another replica accepted, it may not know of
		return nil
	}
	w := newWorker(e, routeID, shards)
	e.workers[routeID] = w
	return w
}

func (e *Engine) endWorker(w *worker) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.workers, w.routeID)
	delete(e.cursors, w.routeID)
	switch {
	case w.removed:
		delete(e.breakers, w.routeID)
	case w.queued == 0 && !w.stale.Load():
		e.cursors[w.routeID] = w.cursor
	}
}

// store records a verdict, however long the database refuses it: the request was
// made and must not be made again. It gives up only when ctx ends.
func (e *Engine) store(ctx context.Context, v verdict) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		_, err := e.outcomes.Do(ctx, v)
		if err == nil || ctx.Err() != nil {
			return
		}
		e.Log.Error("delivery: cannot store an outcome, trying again", "route", v.route.ID, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// send makes one attempt and judges it.
func (e *Engine) send(ctx context.Context, r Route, item item) verdict {
	now := e.now()
	res := e.Client.Send(ctx, request(r, item.event, now))
	v := judge(item.Pending, r, e.schedule, res, e.now(), rand.Float64)
	switch {
	case v.delivered:
		e.metrics.attempts.WithLabelValues("delivered").Inc()
		e.metrics.latency.Observe(v.at.Sub(item.CreatedAt.Time).Seconds())
	case v.dead != "":
		e.metrics.attempts.WithLabelValues("dead").Inc()
	default:
		e.metrics.attempts.WithLabelValues("retry").Inc()
	}
	return v
}

// Try sends an event to a route's target once, outside all queues, and reports
// what came of it.
func (e *Engine) Try(ctx context.Context, r Route, ev Event) webhook.Result {
	return e.Client.Send(ctx, request(r, ev, e.now()))
}

// isGone reports whether a route was removed.
func isGone(err error) bool { return errors.Is(err, db.ErrNoRows) }
