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

// Route holds what the engine needs to know about a route.
type Route struct {
	ID        string
	OrgID     string
	TargetURL string
	Method    string
	Enabled   bool
	RetryMax  int // retries after the first attempt
	Timeout   time.Duration
	Secret    webhook.Secret
	Blocked   bool // OnBlocked has recorded a reason
}

// Config holds the dependencies and settings of an Engine.
type Config struct {
	DB     *db.DB
	Client *webhook.Client
	// Route returns a route, or db.ErrNoRows if it does not exist.
	Route func(ctx context.Context, id string) (Route, error)
	// Revision returns a number that grows with every change of a route on any replica.
	Revision func(ctx context.Context) (int64, error)
	// HoldRoutes locks routes. It runs before the changes of a transaction that changes routes.
	HoldRoutes func(ctx context.Context, tx *db.Tx, routeIDs ...string) error
	// OnGone disables a route whose target answered 410. It runs in the transaction that records
	// the answer.
	OnGone func(ctx context.Context, tx *db.Tx, routeID string) error
	// OnBlocked records that a route cannot be used for an internal reason, such as a secret that
	// cannot be decrypted. An empty reason records that it can be used again.
	OnBlocked func(ctx context.Context, routeID, reason string) error
	// Concurrency is the maximum number of requests in flight to one route's target.
	Concurrency int
	// StopLimit is how long Run keeps trying to store outcomes after its context ends, since a full
	// disk may refuse them indefinitely. 0 means 10 s.
	StopLimit time.Duration
	// Replica is the unique name of this process among those that share the database.
	Replica  string
	Log      *slog.Logger
	Registry prometheus.Registerer
	Now      func() time.Time
}

// Engine makes deliveries while Run runs.
type Engine struct {
	Config
	now                                 func() time.Time
	onGone                              func(ctx context.Context, tx *db.Tx, routeID string) error
	schedule                            backoff.Schedule
	outcomes                            *db.Batcher[verdict, struct{}]
	metrics                             metrics
	finding, storing, renewing, reading *telemetry.Trouble

	poke     chan struct{} // signals that woken has changed
	looks    atomic.Int64  // number of reads of Config.Revision
	unstored atomic.Int64  // outcomes that were never stored because the engine stopped

	storingUntil context.Context // when it ends, the engine stops trying to store outcomes

	mu       sync.Mutex
	woken    map[string]bool   // routes with new deliveries; true: also with a replay
	blocked  map[string]string // reasons recorded by OnBlocked
	breakers map[string]*webhook.Breaker
	workers  map[string]*worker
	cursors  map[string]int64 // the cursor of each route's last worker
	pauses   map[string]pause // pauses that targets asked for
}

type metrics struct {
	attempts *prometheus.CounterVec
	latency  prometheus.Histogram
}

// New returns an engine. Run starts it.
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

// Replay tells the engine that routes have dead letters to deliver again.
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

// Changed tells the engine that routes were changed, so that their workers discard what they have
// read ahead and read it again.
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

// follow checks whether another replica has changed routes. It cannot know which ones, so all
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

// Looks returns how often the engine has read Config.Revision.
func (e *Engine) Looks() int64 { return e.looks.Load() }

// Breaker returns the state of a route's circuit breaker in this process.
func (e *Engine) Breaker(routeID string) webhook.State {
	e.mu.Lock()
	b := e.breakers[routeID]
	e.mu.Unlock()
	if b == nil {
		return webhook.Closed
	}
	return b.State()
}

// pause is a pause that a target asked for with Retry-After.
type pause struct {
	until time.Time // no delivery expires without an attempt until some time after this
	hold  time.Time // no requests until this: the target answered 429
}

// pause records that a route's target asked for a pause. A zero until means that it did not.
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

// pauseOf returns the last pause that a route's target asked for.
func (e *Engine) pauseOf(routeID string) pause {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pauses[routeID]
}

// paused returns for how much longer a route's target wants no requests. A pause longer than
// webhook.MaxRetryAfter is ignored, since it means that the clock was set back.
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

// Run delivers until ctx ends, then waits for the requests in flight and stores their outcomes.
// Deliveries whose outcome cannot be stored by then are sent again after the next start.
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
	// Outcomes must still be stored while the last requests finish.
	storing, stopStoring := context.WithCancel(context.Background())
	var store sync.WaitGroup
	store.Go(func() { routine.Keep(storing, e.Log, "delivery outcomes", e.outcomes.Run) })
	defer store.Wait()
	defer stopStoring()

	if e.DB.Engine() == db.SQLite {
		e.work(ctx, allShards()) // the only process: it owns all shards
		return
	}
	e.shareShards(ctx)
}

// outcomesLinger is how long an outcome waits for others to share a transaction with. Lanes do not
// wait for it. After a crash, deliveries whose outcome was not stored are sent again, like requests
// that were in flight.
const outcomesLinger = 4 * time.Millisecond

// pollInterval is how often the engine looks for due deliveries that nothing woke it for: those
// that other replicas accepted, and retries.
const pollInterval = 250 * time.Millisecond

// work runs a worker for every route that has something due in the given shards. It returns when
// ctx has ended and all requests in flight are settled.
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
			return // other replicas own all of them
		}
		if w := e.startWorker(id, shards, again); w != nil {
			running.Go(func() {
				defer e.endWorker(w)
				// After a panic the engine starts a new worker as soon as something is due.
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

// dueRoutes returns the enabled routes that have something due in the given shards.
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

// startWorker returns a new worker for a route. If the route has one already, it nudges that one
// and returns nil. again means that there may be retries or replays.
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
	if len(w.wake) > 0 && !w.removed { // nudged after it had found nothing more to do
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

// usable records whether a route can be used, if that has changed. It ignores database failures,
// which are logged elsewhere and are temporary.
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
		return // tried again the next time the route is read
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if reason == "" {
		delete(e.blocked, routeID)
		return
	}
	e.blocked[routeID] = reason
}

// store records a verdict. It retries for as long as the database refuses it, since the request was
// made and must not be made again. It stops only when ctx ends, and reports whether it did.
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

// send makes one attempt and returns its verdict.
func (e *Engine) send(ctx context.Context, r Route, item item) verdict {
	v, err := e.attempt(ctx, r, item)
	if err != nil {
		// A bug, or a row that was edited by hand. Trying again would not help.
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

// Try sends an event to a route's target once, bypassing all queues, and returns the result.
func (e *Engine) Try(ctx context.Context, r Route, ev Event) webhook.Result {
	req, err := request(r, ev, e.now())
	if err != nil {
		return webhook.Result{Err: err}
	}
	return e.Client.Send(ctx, req)
}

// isGone reports whether err means that a route was deleted.
func isGone(err error) bool { return errors.Is(err, db.ErrNoRows) }
