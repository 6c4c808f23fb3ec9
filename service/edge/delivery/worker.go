package delivery

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

const (
	// readAhead is how many deliveries a worker holds in memory.
	readAhead = 128
	// maxUnstored is how many outcomes may wait for the database before the worker
	// holds back.
	maxUnstored = 512
)

// item is a delivery with the event to send.
type item struct {
	Pending
	event Event
}

// worker makes the deliveries of one route, as long as there are any due. All of
// its fields but the atomic ones belong to the goroutine of run.
type worker struct {
	engine  *Engine
	routeID string
	shards  []int64
	route   Route
	breaker *webhook.Breaker
	removed bool // the route is gone

	lanes    map[string]*lane
	ready    []*lane // lanes with something queued and nothing under way
	queued   int
	sending  int
	known    map[int64]bool // queued, under way, or not stored yet
	cursor   int64          // all deliveries up to this event were read once
	unread   bool           // there may be deliveries that were not read yet
	wait     time.Duration  // until a retry falls due, as of the last read; 0: none is known
	finished chan sent      // from the goroutines that send
	stored   chan int64     // event numbers whose outcome is stored

	stale atomic.Bool // the route was changed
	wake  chan struct{}
}

// lane is what a route has to send of one site, in order.
type lane struct {
	queue []item
	busy  bool
}

type sent struct {
	lane    *lane
	verdict verdict
}

func newWorker(e *Engine, routeID string, shards []int64) *worker {
	return &worker{
		engine: e, routeID: routeID, shards: shards, breaker: e.breakerLocked(routeID),
		lanes: map[string]*lane{}, known: map[int64]bool{}, cursor: e.cursors[routeID],
		finished: make(chan sent), stored: make(chan int64, maxUnstored), wake: make(chan struct{}, 1),
	}
}

func (w *worker) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run returns when nothing is due any more, when the route is off, or when ctx
// ends; always after the outcome of every request under way was stored.
func (w *worker) run(ctx context.Context) {
	var storing sync.WaitGroup
	defer storing.Wait()
	w.stale.Store(true) // so that the route is read
	for {
		more, wait := w.refill(ctx)
		wait = w.dispatch(ctx, wait)
		if !more && w.sending == 0 && len(w.known) == 0 && (wait <= 0 || wait > pollInterval) {
			return // the engine starts a new worker when something falls due
		}
		timer := time.NewTimer(max(wait, time.Millisecond))
		if wait <= 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			w.drain(&storing)
			timer.Stop()
			return
		case s := <-w.finished:
			w.finish(s, &storing)
		case seq := <-w.stored:
			delete(w.known, seq)
		case <-w.wake:
			w.unread = true
		case <-timer.C:
			w.unread, w.wait = true, 0
		}
		timer.Stop()
	}
}

// drain waits for the requests under way; what is queued stays in the database.
func (w *worker) drain(storing *sync.WaitGroup) {
	for w.sending > 0 {
		select {
		case s := <-w.finished:
			w.finish(s, storing)
		case <-w.stored:
		}
	}
	done := make(chan struct{})
	go func() { storing.Wait(); close(done) }()
	for {
		select {
		case <-w.stored:
		case <-done:
			return
		}
	}
}

// refill reads ahead. It reports whether there may be more to read, and how long
// until a retry falls due (0: none is known).
func (w *worker) refill(ctx context.Context) (more bool, wait time.Duration) {
	if w.stale.Swap(false) {
		route, err := w.engine.Route(ctx, w.routeID)
		if err != nil && !isGone(err) {
			w.stale.Store(true)
			return true, time.Second
		}
		first := w.route.ID == ""
		w.route, w.removed, w.unread = route, isGone(err), true
		if !first {
			w.forgetQueued()
		}
	}
	if w.removed || !w.route.Enabled {
		return false, 0
	}
	if !w.unread || w.queued >= readAhead/2 || len(w.known) >= readAhead+maxUnstored {
		return w.unread || w.queued > 0, w.wait
	}
	items, full, err := w.read(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.engine.Log.Error("delivery: read deliveries", "route", w.routeID, "error", err)
		}
		return true, time.Second
	}
	w.unread = full
	for _, it := range items {
		w.known[it.EventSeq] = true
		l := w.lanes[it.SiteID]
		if l == nil {
			l = &lane{}
			w.lanes[it.SiteID] = l
		}
		if len(l.queue) == 0 && !l.busy {
			w.ready = append(w.ready, l)
		}
		l.queue = append(l.queue, it)
		w.queued++
	}
	w.wait = w.untilRetry(ctx)
	return w.unread || w.queued > 0, w.wait
}

// forgetQueued drops what was read ahead for an older state of the route.
func (w *worker) forgetQueued() {
	for site, l := range w.lanes {
		for _, it := range l.queue {
			delete(w.known, it.EventSeq)
		}
		l.queue = nil
		if !l.busy {
			delete(w.lanes, site)
		}
	}
	w.ready, w.queued, w.cursor = nil, 0, 0
}

type deliveryRow struct {
	Pending
	OrgID      string                     `db:"org_id"`
	EventID    string                     `db:"event_id"`
	Topic      string                     `db:"topic"`
	Payload    string                     `db:"payload"`
	Headers    db.JSON[map[string]string] `db:"headers"`
	EventTime  db.Time                    `db:"event_time"`
	ReceivedAt db.Time                    `db:"received_at"`
}

// read fetches deliveries that are due and not yet known: first those never read,
// in order of acceptance, then those whose retry is due and replays. An event is
// found in events or, for a replay, in its dead letter. full tells that there may
// be more.
func (w *worker) read(ctx context.Context) (items []item, full bool, err error) {
	const columns = `SELECT d.route_id, d.event_seq, d.shard, d.site_id, d.attempts, d.created_at, d.next_at, d.dead_letter_id,
		COALESCE(l.event_org_id, e.org_id) AS org_id, COALESCE(l.event_id, e.event_id) AS event_id, COALESCE(l.topic, e.topic) AS topic,
		COALESCE(l.payload, e.payload) AS payload, COALESCE(l.headers, e.headers) AS headers,
		COALESCE(l.event_time, e.event_time) AS event_time, COALESCE(l.received_at, e.received_at) AS received_at
		FROM deliveries d LEFT JOIN events e ON e.seq = d.event_seq AND d.dead_letter_id = ''
		LEFT JOIN deadletters l ON l.id = d.dead_letter_id AND d.dead_letter_id <> ''
		WHERE d.route_id = ? `
	now := w.engine.now()
	ours, shards := w.ours("d.")
	// What was never tried is due, even if a clock that ran ahead accepted it.
	query, args, err := db.In(columns+"AND d.event_seq > ? AND (d.attempts = 0 AND d.dead_letter_id = '' OR d.next_at <= ?)"+ours+" ORDER BY d.event_seq LIMIT ?",
		append(append([]any{w.routeID, w.cursor, db.At(now)}, shards...), readAhead)...)
	if err != nil {
		return nil, false, err
	}
	var rows []deliveryRow
	if err := w.engine.DB.Select(ctx, &rows, query, args...); err != nil {
		return nil, false, err
	}
	if n := len(rows); n > 0 {
		w.cursor = rows[n-1].EventSeq
	}
	if full = len(rows) == readAhead; !full {
		query, args, err := db.In(columns+"AND d.next_at <= ? AND d.event_seq <= ?"+ours+" ORDER BY d.next_at LIMIT ?",
			append(append([]any{w.routeID, db.At(now), w.cursor}, shards...), readAhead+len(w.known))...)
		if err != nil {
			return nil, false, err
		}
		var again []deliveryRow
		if err := w.engine.DB.Select(ctx, &again, query, args...); err != nil {
			return nil, false, err
		}
		full = len(again) == readAhead+len(w.known)
		rows = append(rows, again...)
	}
	items = make([]item, 0, len(rows))
	seen := map[int64]bool{}
	for _, r := range rows {
		if seen[r.EventSeq] || w.known[r.EventSeq] {
			continue
		}
		seen[r.EventSeq] = true
		items = append(items, item{Pending: r.Pending, event: Event{EventID: r.EventID, OrgID: r.OrgID, SiteID: r.SiteID, Topic: r.Topic,
			Payload: []byte(r.Payload), Headers: r.Headers.V, EventTime: r.EventTime.Time, ReceivedAt: r.ReceivedAt.Time}})
	}
	return items, full, nil
}

// ours is the condition that keeps a query on deliveries within this replica's
// shards. A replica that has all of them needs none.
func (w *worker) ours(prefix string) (condition string, args []any) {
	if len(w.shards) == shardCount {
		return "", nil
	}
	return " AND " + prefix + "shard IN (?)", []any{w.shards}
}

// untilRetry is how long until the next retry falls due, 0 if none waits.
func (w *worker) untilRetry(ctx context.Context) time.Duration {
	var next db.Time
	now := w.engine.now()
	ours, shards := w.ours("")
	query, args, err := db.In("SELECT MIN(next_at) FROM deliveries WHERE route_id = ? AND next_at > ?"+ours, append([]any{w.routeID, db.At(now)}, shards...)...)
	if err != nil {
		return 0
	}
	if err := w.engine.DB.Get(ctx, &next, query, args...); err != nil || next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// dispatch starts as many requests as the route and its breaker allow, and
// returns how long to wait at most before trying again (0: until something
// happens).
func (w *worker) dispatch(ctx context.Context, wait time.Duration) time.Duration {
	for len(w.ready) > 0 && w.sending < w.engine.Concurrency && len(w.known)-w.queued-w.sending < maxUnstored && ctx.Err() == nil {
		if ok, hold := w.breaker.Allow(w.engine.now()); !ok {
			w.expire(ctx)
			if hold = min(max(hold, time.Millisecond), expireInterval); wait <= 0 || hold < wait {
				wait = hold
			}
			return wait
		}
		l := w.ready[0]
		w.ready = w.ready[1:]
		it := l.queue[0]
		l.queue, l.busy = l.queue[1:], true
		w.queued--
		w.sending++
		go func(route Route) {
			w.finished <- sent{l, w.engine.send(context.WithoutCancel(ctx), route, it)}
		}(w.route)
	}
	return wait
}

// finish frees the lane of a request that ended, and has its outcome stored.
func (w *worker) finish(s sent, storing *sync.WaitGroup) {
	w.sending--
	v := s.verdict
	if v.delivered || v.dead != "" && !v.gone && v.status != 0 && v.dead == Permanent {
		w.breaker.Success() // the target is there, whatever it thinks of this event
	} else {
		w.breaker.Failure(v.at)
	}
	if s.lane.busy = false; len(s.lane.queue) > 0 {
		w.ready = append(w.ready, s.lane)
	} else {
		delete(w.lanes, v.delivery.SiteID)
	}
	storing.Go(func() {
		w.engine.store(context.Background(), v)
		w.stored <- v.delivery.EventSeq
	})
}

// expireInterval is how often a worker looks for deliveries past their horizon
// while its breaker is open.
const expireInterval = time.Second

// horizon is the longest that a delivery can take when every attempt times out
// and every wait is as long as it may be.
func horizon(r Route, schedule webhook.Schedule) time.Duration {
	total := r.Timeout
	for retry := range r.RetryMax {
		total += schedule.Delay(retry, func() float64 { return 1 }) + r.Timeout
	}
	return total
}

// expire gives up deliveries that waited for an open breaker longer than their
// retries could have taken: a dead target's backlog becomes dead letters at the
// pace it would without a breaker.
func (w *worker) expire(ctx context.Context) {
	now := w.engine.now()
	var old []Pending
	if err := w.engine.DB.Select(ctx, &old, `SELECT * FROM (SELECT * FROM deliveries WHERE route_id = ? ORDER BY event_seq LIMIT 500) AS oldest WHERE created_at < ?`,
		w.routeID, db.At(now.Add(-horizon(w.route, w.engine.schedule)))); err != nil {
		return // the next look comes in a second
	}
	expired := false
	for _, p := range old {
		if !slices.Contains(w.shards, p.Shard) || w.underWay(p) {
			continue
		}
		expired = true
		w.engine.store(ctx, verdict{delivery: p, route: w.route, at: now, dead: Exhausted, err: "the target kept failing; its circuit breaker was open for as long as the retries may take"})
	}
	if expired {
		w.stale.Store(true) // forget what was read ahead of these
	}
}

// underWay reports whether a delivery is being sent or its outcome being stored.
func (w *worker) underWay(p Pending) bool {
	if !w.known[p.EventSeq] {
		return false
	}
	if l := w.lanes[p.SiteID]; l != nil {
		return !slices.ContainsFunc(l.queue, func(it item) bool { return it.EventSeq == p.EventSeq })
	}
	return true
}
