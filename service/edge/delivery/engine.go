package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
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
	Blocked   bool // OnBlocked has noted a reason
}

// Config is what an Engine is made of.
type Config struct {
	DB     *db.DB
	Client *webhook.Client
	// Route reads a route. A route that is gone is db.ErrNoRows.
	Route func(ctx context.Context, id string) (Route, error)
	// Revision is a number that grows with every change of a route, on whichever replica.
	Revision func(ctx context.Context) (int64, error)
	// HoldRoutes comes before the changes of a transaction that changes routes.
	HoldRoutes func(ctx context.Context, tx *db.Tx, routeIDs ...string) error
	// OnGone disables a route whose target answered 410, in the transaction that
	// records the answer.
	OnGone func(ctx context.Context, tx *db.Tx, routeID string) error
	// OnBlocked notes that a route cannot be used, for a reason of ours such as a secret that does not
	// open, or, with an empty reason, that it can be used again.
	OnBlocked func(ctx context.Context, routeID, reason string) error
	// Concurrency is how many requests may be under way to one route's target.
	Concurrency int
	// StopLimit is how long Run keeps trying to store outcomes after its context ended, since a full
	// disk may refuse them for ever. 0 means 10 s.
	StopLimit time.Duration
	// Replica names this process among those on one database.
	Replica  string
	Log      *slog.Logger
	Registry prometheus.Registerer
	Now      func() time.Time
}

// Engine makes deliveries until Run ends.
type Engine struct {
	Config
	now                                 func() time.Time
	onGone                              func(ctx context.Context, tx *db.Tx, routeID string) error
	schedule                            backoff.Schedule
	outcomes                            *db.Batcher[verdict, struct{}]
	metrics                             metrics
	finding, storing, renewing, reading *telemetry.Trouble

	poke     chan struct{} // somebody was marked in woken
	looks    atomic.Int64  // at the revision of the routes
	unstored atomic.Int64  // outcomes that were given up at the end

	storingUntil context.Context // when it ends, outcomes that cannot be stored are given up

	mu       sync.Mutex
	woken    map[string]bool   // routes with new deliveries; true: also with a replay
	blocked  map[string]string // reasons that were noted
	breakers map[string]*webhook.Breaker
	workers  map[string]*worker
	cursors  map[string]int64 // where the last worker of a route had read to
	pauses   map[string]pause // that targets asked for
}

type metrics struct {
	attempts *prometheus.CounterVec
	latency  prometheus.Histogram
}

// New returns an engine; Run starts it.
func New(cfg Config) *Engine {
	e := &Engine{
		Config:       cfg,
		now:          cfg.Now,
		onGone:       cfg.OnGone,
		schedule:     backoff.Schedule{Min: webhook.MinDelay, Base: time.Second, Max: 5 * time.Minute},
		poke:         make(chan struct{}, 1),
		pauses:       map[string]pause{},
		storingUntil: context.Background(),
		woken:        map[string]bool{},
		blocked:      map[string]string{},
		breakers:     map[string]*webhook.Breaker{},
		workers:      map[string]*worker{},
		cursors:      map[string]int64{},
		metrics: metrics{
			attempts: prometheus.NewCounterVec(
				prometheus.CounterOpts{
					Name: "edge_delivery_attempts_total",
					Help: "Requests to route targets by outcome.",
				},
				[]string{"outcome"},
			),
			latency: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name:    "edge_delivery_seconds",
				Help:    "From acceptance of an event to the target's yes.",
				Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
			}),
		},
	}
	e.finding = telemetry.NewTrouble(cfg.Log, "delivery: cannot find due routes")
	e.storing = telemetry.NewTrouble(cfg.Log, "delivery: cannot store an outcome, trying again")
	e.renewing = telemetry.NewTrouble(cfg.Log, "delivery: cannot renew shards")
	e.reading = telemetry.NewTrouble(cfg.Log, "delivery: cannot read deliveries")
	cfg.Registry.MustRegister(e.metrics.attempts, e.metrics.latency)
	e.outcomes = db.NewBatcher(cfg.DB, 500, e.settle)
	e.outcomes.Linger = outcomesLinger
	return e
}

// Wake tells the engine that routes have new deliveries.
func (e *Engine) Wake(routeIDs ...string) { e.wake(false, routeIDs...) }

// Replay tells the engine that dead letters of routes are to be delivered again.
func (e *Engine) Replay(routeIDs ...string) { e.wake(true, routeIDs...) }

func (e *Engine) wake(again bool, routeIDs ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range routeIDs {
		e.woken[id] = e.woken[id] || again
	}
	e.pokeLocked()
}

func (e *Engine) pokeLocked() {
	select {
	case e.poke <- struct{}{}:
	default:
	}
}

// Changed tells the engine that routes were changed, so that what their workers have
// read ahead is read again.
func (e *Engine) Changed(routeIDs ...string) {
	e.mu.Lock()
	for _, id := range routeIDs {
		if w := e.workers[id]; w != nil {
			w.stale.Store(true)
		}
		delete(e.cursors, id)
		delete(e.pauses, id) // it may have another target
	}
	e.mu.Unlock()
	e.wake(true, routeIDs...)
}

// follow finds out whether another replica changed routes. It does not know which, so that all
// workers read their routes again.
func (e *Engine) follow(ctx context.Context, seen int64) (int64, error) {
	defer e.looks.Add(1)
	revision, err := e.Revision(ctx)
	if err != nil || revision == seen {
		return seen, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.workers {
		w.stale.Store(true)
		w.nudge(true)
	}
	clear(e.cursors)
	clear(e.pauses)
	return revision, nil
}

// Looks is how often the engine has looked at Config.Revision.
func (e *Engine) Looks() int64 { return e.looks.Load() }

// Breaker is the state of a route's circuit breaker in this process.
func (e *Engine) Breaker(routeID string) webhook.State {
	e.mu.Lock()
	b := e.breakers[routeID]
	e.mu.Unlock()
	if b == nil {
		return webhook.Closed
	}
	return b.State()
}

// pause is what a target asked for by Retry-After.
type pause struct {
	until time.Time // nothing is given up for want of an attempt until some time after this
	hold  time.Time // nothing is sent until this: the target said that there are too many requests
}

// pause notes that a route's target asked for a pause. The zero time is none.
func (e *Engine) pause(routeID string, until time.Time, hold bool) {
	if until.IsZero() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pauses[routeID]
	if until.After(p.until) {
		p.until = until
	}
	if hold && until.After(p.hold) {
		p.hold = until
	}
	e.pauses[routeID] = p
}

// pauseOf is the last pause that a route's target asked for.
func (e *Engine) pauseOf(routeID string) pause {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pauses[routeID]
}

// paused is how long a route's target still wants no requests. A pause that is longer than a target
// may ask for does not count: the clock was set back.
func (e *Engine) paused(routeID string) time.Duration {
	left := e.pauseOf(routeID).hold.Sub(e.now())
	if left > webhook.MaxRetryAfter {
		return 0
	}
	return left
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
// their outcomes. What cannot be stored by then is sent again after the next start.
func (e *Engine) Run(ctx context.Context) {
	var giveUp context.CancelFunc
	e.storingUntil, giveUp = context.WithCancel(context.Background())
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cmp.Or(e.StopLimit, 10*time.Second), giveUp) })()
	defer func() {
		if n := e.unstored.Load(); n > 0 {
			e.Log.Error(
				"delivery: outcomes could not be stored before the end; these deliveries will be made again",
				"deliveries", n,
			)
		}
	}()
	// Outcomes must still be stored while the last requests come in.
	storing, stopStoring := context.WithCancel(context.Background())
	var store sync.WaitGroup
	store.Go(func() { routine.Keep(storing, e.Log, "delivery outcomes", e.outcomes.Run) })
	defer store.Wait()
	defer stopStoring()

	if e.DB.Engine() == db.SQLite {
		e.work(ctx, allShards()) // the only process: no shards to share
		return
	}
	e.shareShards(ctx)
}

// outcomesLinger is how long outcomes wait for others to share a transaction with. Meanwhile lanes go
// on. After a crash, what waits is sent again, as what is under way.
const outcomesLinger = 4 * time.Millisecond

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
	start := func(id string, again bool) {
		if len(shards) == 0 {
			return // others have them all
		}
		if w := e.startWorker(id, shards, again); w != nil {
			running.Go(func() {
				defer e.endWorker(w)
				// After a panic the engine starts a new worker, as soon as something is due.
				_ = routine.Run(e.Log, "delivery worker", func() { w.run(ctx) }) // logged
			})
		}
	}
	var revision int64
	for {
		var followErr error
		if e.DB.Engine() == db.Postgres { // SQLite has no other replica
			revision, followErr = e.follow(ctx, revision)
		}
		ids, err := e.dueRoutes(ctx, shards)
		if ctx.Err() == nil {
			e.finding.Report(errors.Join(followErr, err))
		}
		for _, id := range ids {
			start(id, true)
		}
		for look := false; !look; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				look = true
			case <-e.poke:
				e.mu.Lock()
				woken := e.woken
				e.woken = map[string]bool{}
				e.mu.Unlock()
				for id, again := range woken {
					start(id, again)
				}
			}
		}
	}
}

// dueRoutes are the routes with something due in the given shards.
func (e *Engine) dueRoutes(ctx context.Context, shards []int64) (due []string, err error) {
	if len(shards) == 0 {
		return nil, nil
	}
	ours, args := within(shards)
	query, args, err := db.In(`SELECT id FROM routes r WHERE r.enabled AND (EXISTS
			(SELECT 1 FROM deliveries d WHERE d.route_id = r.id AND `+isNew+ours+`) OR EXISTS
			(SELECT 1 FROM deliveries d WHERE d.route_id = r.id AND `+isAgain+` AND d.next_at <= ?`+ours+`))`,
		slices.Concat(args, []any{db.At(e.now())}, args)...)
	if err != nil {
		return nil, err
	}
	err = e.DB.Select(ctx, &due, query, args...)
	return due, err
}

// startWorker returns a new worker for a route, or nudges the one that it has. again tells that
// there may be retries or replays.
func (e *Engine) startWorker(routeID string, shards []int64, again bool) *worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.workers[routeID]; w != nil {
		w.nudge(again)
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
	if len(w.wake) > 0 && !w.removed { // it was nudged after it had found nothing more to do
		e.woken[w.routeID] = true
		e.pokeLocked()
	}
	switch {
	case w.removed:
		delete(e.breakers, w.routeID)
		delete(e.pauses, w.routeID)
	case len(w.known) == 0 && !w.stale.Load(): // a worker that panicked may have lost some
		e.cursors[w.routeID] = w.cursor
	}
}

// usable notes whether a route can be used, when that changes. What hinders the database is logged
// elsewhere, and passes.
func (e *Engine) usable(ctx context.Context, routeID string, route Route, err error) {
	reason := ""
	if err != nil {
		if k := fault.KindOf(err); k == fault.Unavailable || k == fault.StorageFailed || ctx.Err() != nil {
			return
		}
		reason = clip(fault.From(err).Message)
	}
	e.mu.Lock()
	noted := e.blocked[routeID]
	e.mu.Unlock()
	if reason == noted && (err != nil || !route.Blocked) {
		return
	}
	if reason != "" {
		e.Log.Error("delivery: a route cannot be used; its deliveries wait", "route", routeID, "error", err)
	}
	if e.OnBlocked(ctx, routeID, reason) != nil {
		return // it is tried again with the next look at the route
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if reason == "" {
		delete(e.blocked, routeID)
		return
	}
	e.blocked[routeID] = reason
}

// store records a verdict, however long the database refuses it: the request was
// made and must not be made again. It gives up only when ctx ends, and reports whether it has.
func (e *Engine) store(ctx context.Context, v verdict) (gaveUp bool) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		_, err := e.outcomes.Do(ctx, v)
		if err == nil {
			e.storing.Report(nil)
			return false
		}
		if ctx.Err() != nil {
			return true
		}
		e.storing.Report(err)
		select {
		case <-ctx.Done():
			return true
		case <-time.After(wait):
		}
	}
}

// send makes one attempt and judges it.
func (e *Engine) send(ctx context.Context, r Route, item item) verdict {
	v, err := e.attempt(ctx, r, item)
	if err != nil {
		// A defect of ours, or a row that somebody changed. Trying again would not help.
		e.Log.Error(
			"delivery: an event cannot be sent; it is a dead letter", "route", r.ID, "event", item.event.EventID,
			"error", err,
		)
		v = verdict{delivery: item.Pending, route: r, at: e.now(), dead: Permanent, err: clip(err.Error())}
	}
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

func (e *Engine) attempt(ctx context.Context, r Route, item item) (v verdict, err error) {
	panicked := routine.Run(e.Log, "delivery attempt", func() {
		var req webhook.Request
		if req, err = request(r, item.event, e.now()); err == nil {
			v = judge(item.Pending, r, e.schedule, e.Client.Send(ctx, req), e.now(), rand.Float64)
		}
	})
	return v, errors.Join(err, panicked)
}

// Try sends an event to a route's target once, outside all queues, and reports
// what came of it.
func (e *Engine) Try(ctx context.Context, r Route, ev Event) webhook.Result {
	req, err := request(r, ev, e.now())
	if err != nil {
		return webhook.Result{Err: err}
	}
	return e.Client.Send(ctx, req)
}

// isGone reports whether a route was removed.
func isGone(err error) bool { return errors.Is(err, db.ErrNoRows) }
