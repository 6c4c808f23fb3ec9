package delivery

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

const (
	// readAhead is how many deliveries a worker holds in memory.
	readAhead = 128
	// maxUnstored is how many outcomes may wait for the database before the worker stops sending.
	maxUnstored = 512
	// maxAgain is how many retries and replays a worker reads at once, in addition to new
	// deliveries.
	maxAgain = 32
	// againInterval is the shortest time between two reads of retries and replays, since every
	// accepted event wakes the worker.
	againInterval = 25 * time.Millisecond
	// fairInterval is how often a worker with a backlog looks for sites that wait behind it. It
	// looks every fairPause instead while it could send more. It looks for up to fairSites sites
	// and reads about fairAhead deliveries in all, but at least fairLeast per site.
	fairInterval = 100 * time.Millisecond
	fairPause    = 10 * time.Millisecond
	fairSites    = 64
	fairAhead    = 256
	fairLeast    = 8
)

// item is a delivery with the event to send.
type item struct {
	Pending
	event Event
}

// worker makes the deliveries of one route while any are due. Only the goroutine of run may use its
// fields, except for the atomic ones and wake.
type worker struct {
	engine  *Engine
	routeID string
	shards  []int64
	route   Route
	breaker *webhook.Breaker
	removed bool // the route was deleted

	lanes    map[string]*lane
	ready    []*lane // lanes with something queued and nothing in flight
	queued   int
	sending  int
	known    map[int64]bool // queued, in flight, or not stored yet
	cursor   int64          // all deliveries up to this event have been read once
	unread   bool           // there may be deliveries that have not been read yet
	again    bool           // there may be due retries and replays
	againAt  time.Time      // time of the last read of them
	retryAt  time.Time      // when the next retry is due, as of the last read; zero: none known
	deep     bool           // there are more deliveries than were read ahead
	fairAt   time.Time      // time of the last look for sites behind the backlog
	fairSite string         // the last site of that look
	behind   bool           // that look found deliveries
	finished chan sent      // from the goroutines that send
	stored   chan stored    // outcomes that are in the database

	stale   atomic.Bool // the route was changed
	recheck atomic.Bool // there may be new retries or replays
	wake    chan struct{}
}

// lane holds what a route has to send for one site, in order.
type lane struct {
	queue []item
	busy  bool
}

type sent struct {
	lane    *lane
	verdict verdict
}

type stored struct {
	seq     int64
	retry   bool // the delivery must be made again
	unknown bool // after a panic or a stop: the outcome may not be stored
}

func newWorker(e *Engine, routeID string, shards []int64) *worker {
	return &worker{
		engine: e, routeID: routeID, shards: shards, breaker: e.breakerLocked(routeID),
		lanes: map[string]*lane{}, known: map[int64]bool{}, cursor: e.cursors[routeID],
		finished: make(chan sent, e.Concurrency), stored: make(chan stored, maxUnstored), wake: make(chan struct{}, 1),
	}
}

// nudge tells a worker that there are new deliveries and, if again is set, also retries or replays.
func (w *worker) nudge(again bool) {
	if again {
		w.recheck.Store(true)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run returns when nothing is due any more, when the route is disabled or deleted, or when ctx
// ends. It always stores the outcome of every request in flight before it returns.
func (w *worker) run(ctx context.Context) {
	var storing sync.WaitGroup
	defer storing.Wait()
	w.stale.Store(true) // so that the route is read
	for {
		more, wait := w.refill(ctx)
		wait = w.dispatch(ctx, wait)
		if !more && w.sending == 0 && len(w.known) == 0 && (wait <= 0 || wait > pollInterval) {
			return // the engine starts a new worker when something becomes due
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
		case s := <-w.stored:
			delete(w.known, s.seq)
			w.again = w.again || s.retry
			if s.unknown {
				w.stale.Store(true) // so that the delivery is read again
			}
		case <-w.wake:
			w.unread, w.again = true, w.recheck.Swap(false) || w.again
		case <-timer.C:
			w.unread, w.again = true, true
		}
		timer.Stop()
	}
}

// drain waits for the requests in flight. Queued deliveries stay in the database.
func (w *worker) drain(storing *sync.WaitGroup) {
	for w.sending > 0 {
		select {
		case s := <-w.finished:
			w.finish(s, storing)
		case <-w.stored:
		}
	}
	done := make(chan struct{})
	routine.Go(w.engine.Log, "delivery drain", func() { defer close(done); storing.Wait() })
	for {
		select {
		case <-w.stored:
		case <-done:
			return
		}
	}
}

// refill reads ahead. It reports whether there may be more to read, and returns the time until a
// retry is due (0: none known).
func (w *worker) refill(ctx context.Context) (more bool, wait time.Duration) {
	if w.stale.Swap(false) {
		route, err := w.engine.Route(ctx, w.routeID)
		if !isGone(err) {
			w.engine.usable(ctx, w.routeID, route, err)
		}
		if err != nil && !isGone(err) {
			w.stale.Store(true)
			return true, time.Second
		}
		first := w.route.ID == ""
		w.route, w.removed, w.unread, w.again = route, isGone(err), true, true
		if !first {
			w.forgetQueued()
		}
	}
	if w.removed || !w.route.Enabled {
		return false, 0
	}
	if err := w.readMore(ctx); err != nil {
		return true, time.Second
	}
	if !w.retryAt.IsZero() {
		wait = max(time.Until(w.retryAt), time.Millisecond)
	}
	if w.again && (wait == 0 || wait > againInterval) {
		return true, againInterval
	}
	if pause := w.untilFair(); w.deep && (wait == 0 || wait > pause) {
		return true, pause
	}
	return w.unread || w.again || w.queued > 0, wait
}

// readMore reads due retries and replays, then new deliveries unless enough are queued, and from
// time to time deliveries of sites behind a backlog.
func (w *worker) readMore(ctx context.Context) (err error) {
	defer func() {
		if ctx.Err() == nil {
			w.engine.reading.Report(err)
		}
	}()
	if len(w.known) >= readAhead+maxUnstored {
		return nil
	}
	now := time.Now()
	look := w.deep && now.Sub(w.fairAt) >= w.untilFair()
	w.again = w.again || !w.retryAt.IsZero() && !now.Before(w.retryAt)
	if w.again && now.Sub(w.againAt) >= againInterval || w.deep && now.Sub(w.againAt) >= fairInterval {
		w.againAt = now
		items, err := w.readAgain(ctx)
		if err != nil {
			return err
		}
		w.again = len(items) == maxAgain
		for _, it := range items { // ahead of deliveries that were never tried
			l := w.lane(it)
			fresh := slices.IndexFunc(l.queue, func(it item) bool { return it.Attempts == 0 && it.DeadLetterID == "" })
			if fresh < 0 {
				fresh = len(l.queue)
			}
			l.queue = slices.Insert(l.queue, fresh, it)
		}
		w.retryAt = time.Time{}
		if wait := w.untilRetry(ctx); wait > 0 {
			w.retryAt = now.Add(wait)
		}
	}
	if w.unread && w.queued < readAhead/2 {
		items, full, err := w.readNext(ctx)
		if err != nil {
			return err
		}
		w.unread, w.deep = full, full
		w.queue(items)
	}
	if look {
		w.fairAt = now
	}
	if look && len(w.ready) < readAhead {
		items, err := w.readBehind(ctx)
		if err != nil {
			return err
		}
		w.behind = len(items) > 0
		w.queue(items)
	}
	return nil
}

// untilFair returns how long a worker with a backlog waits between two looks for sites behind it.
// The interval is short while there are such sites and the route could send more although enough is
// queued, because then the queue belongs to only a few sites.
func (w *worker) untilFair() time.Duration {
	if w.behind && w.queued >= readAhead/2 && w.sending+len(w.ready) < w.engine.Concurrency {
		return fairPause
	}
	return fairInterval
}

// queue adds items to the ends of their lanes.
func (w *worker) queue(items []item) {
	for _, it := range items {
		l := w.lane(it)
		l.queue = append(l.queue, it)
	}
}

// lane returns the lane for an item that the caller is about to add to it.
func (w *worker) lane(it item) *lane {
	w.known[it.EventSeq] = true
	w.queued++
	l := w.lanes[it.SiteID]
	if l == nil {
		l = &lane{}
		w.lanes[it.SiteID] = l
	}
	if len(l.queue) == 0 && !l.busy {
		w.ready = append(w.ready, l)
	}
	return l
}

// forgetQueued drops deliveries that were read ahead before the route changed.
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
	w.ready, w.queued, w.cursor, w.deep, w.behind = nil, 0, 0, false, false
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
	Lost       bool                       `db:"lost"`
}

// selectDeliveries reads deliveries with their events. The event is in events or, for a replay, in
// its dead letter.
const selectDeliveries = `SELECT d.route_id, d.event_seq, d.shard, d.site_id, d.attempts, d.created_at, d.next_at, d.dead_letter_id,
	COALESCE(l.event_org_id, e.org_id, '') AS org_id, COALESCE(l.event_id, e.event_id, '') AS event_id,
	COALESCE(l.topic, e.topic, '') AS topic,
	COALESCE(l.payload, e.payload, '') AS payload, COALESCE(l.headers, e.headers, '') AS headers,
	COALESCE(l.id, e.event_id) IS NULL AS lost,
	COALESCE(l.event_time, e.event_time) AS event_time, COALESCE(l.received_at, e.received_at) AS received_at
	FROM deliveries d LEFT JOIN events e ON e.seq = d.event_seq AND d.dead_letter_id = ''
	LEFT JOIN deadletters l ON l.id = d.dead_letter_id AND d.dead_letter_id <> ''
	WHERE d.route_id = ? `

// Conditions on deliveries d: never tried, and retries or replays. Each has a partial index, which
// the databases use only if the query contains exactly this condition.
const (
	isNew   = "d.attempts = 0 AND d.dead_letter_id = ''"
	isAgain = "(d.attempts > 0 OR d.dead_letter_id <> '')"
)

// readNext reads deliveries that were never tried, in the order of acceptance. It ignores next_at:
// they are always due, even if a replica whose clock ran ahead accepted them. full reports whether
// there may be more.
func (w *worker) readNext(ctx context.Context) (items []item, full bool, err error) {
	ours, shards := within(w.shards)
	rows, err := w.read(ctx, selectDeliveries+"AND d.event_seq > ? AND "+isNew+ours+" ORDER BY d.event_seq LIMIT ?",
		append(append([]any{w.routeID, w.cursor}, shards...), readAhead)...)
	if err != nil {
		return nil, false, err
	}
	if n := len(rows); n > 0 {
		w.cursor = rows[n-1].EventSeq
	}
	return w.unknown(ctx, rows), len(rows) == readAhead, nil
}

// readAgain reads due retries and replays, longest due first.
func (w *worker) readAgain(ctx context.Context) ([]item, error) {
	ours, shards := within(w.shards)
	rows, err := w.read(ctx, selectDeliveries+"AND d.next_at <= ? AND "+isAgain+ours+" ORDER BY d.next_at LIMIT ?",
		append(append([]any{w.routeID, db.At(w.engine.now())}, shards...), maxAgain+len(w.known))...)
	if err != nil {
		return nil, err
	}
	items := w.unknown(ctx, rows)
	return items[:min(len(items), maxAgain)], nil
}

// readBehind reads the oldest new deliveries of sites that have nothing queued because their first
// delivery is behind the backlog of other sites. Each call continues with the next sites, round
// robin.
func (w *worker) readBehind(ctx context.Context) ([]item, error) {
	var sites []string
	// Each step of the recursion is one index lookup, however many deliveries a site has.
	if err := w.engine.DB.Select(ctx, &sites, `WITH RECURSIVE s(site_id) AS (
			SELECT MIN(d.site_id) FROM deliveries d WHERE d.route_id = ? AND `+isNew+` AND d.site_id > ?
			UNION ALL SELECT (SELECT MIN(d.site_id) FROM deliveries d WHERE d.route_id = ? AND `+isNew+` AND d.site_id > s.site_id) FROM s WHERE s.site_id IS NOT NULL)
		SELECT site_id FROM s WHERE site_id IS NOT NULL LIMIT ?`, w.routeID, w.fairSite, w.routeID, fairSites); err != nil {
		return nil, err
	}
	w.fairSite = ""
	if len(sites) == fairSites {
		w.fairSite = sites[fairSites-1]
	}
	sites = slices.DeleteFunc(sites, func(site string) bool { return w.lanes[site] != nil })
	if len(sites) == 0 {
		return nil, nil
	}
	ours, shards := within(w.shards)
	var oldest []string
	var args []any
	ahead := max(fairAhead/len(sites), fairLeast)
	for _, site := range sites {
		oldest = append(
			oldest,
			"SELECT event_seq FROM (SELECT d.event_seq FROM deliveries d WHERE d.route_id = ? AND d.site_id = ? AND "+isNew+ours+" ORDER BY d.event_seq LIMIT ?) AS oldest",
		)
		args = append(append(append(args, w.routeID, site), shards...), ahead)
	}
	rows, err := w.read(
		ctx, selectDeliveries+"AND d.event_seq IN ("+strings.Join(oldest, " UNION ALL ")+") ORDER BY d.event_seq",
		append([]any{w.routeID}, args...)...)
	return w.unknown(ctx, rows), err
}

func (w *worker) read(ctx context.Context, query string, args ...any) ([]deliveryRow, error) {
	query, args, err := db.In(query, args...)
	if err != nil {
		return nil, err
	}
	var rows []deliveryRow
	err = w.engine.DB.Select(ctx, &rows, query, args...)
	return rows, err
}

// unknown returns items for the rows that are not queued, in flight or being stored.
func (w *worker) unknown(ctx context.Context, rows []deliveryRow) []item {
	items := make([]item, 0, len(rows))
	for _, r := range rows {
		if w.known[r.EventSeq] {
			continue
		}
		if r.Lost {
			// The event, or the dead letter being replayed, was deleted from the database. There is
			// nothing to send, and a row that cannot be read must not block the others.
			w.engine.Log.Error(
				"delivery: the event of a delivery is gone from the database", "route", w.routeID, "event_seq",
				r.EventSeq,
			)
			w.engine.store(ctx, verdict{
				delivery: r.Pending,
				route:    w.route,
				at:       w.engine.now(),
				dead:     Permanent,
				untried:  true,
				err:      "the event is gone from the database",
			})
			continue
		}
		items = append(
			items,
			item{Pending: r.Pending, event: Event{
				EventID:    r.EventID,
				OrgID:      r.OrgID,
				SiteID:     r.SiteID,
				Topic:      r.Topic,
				Payload:    []byte(r.Payload),
				Headers:    r.Headers.V,
				EventTime:  r.EventTime.Time,
				ReceivedAt: r.ReceivedAt.Time,
			}},
		)
	}
	return items
}

// within returns the condition that limits a query on deliveries d to a replica's shards. It is
// empty if the replica owns all of them.
func within(shards []int64) (condition string, args []any) {
	if len(shards) == shardCount {
		return "", nil
	}
	return " AND d.shard IN (?)", []any{shards}
}

// untilRetry returns the time until the next retry is due, or 0 if there is none.
func (w *worker) untilRetry(ctx context.Context) time.Duration {
	var next db.Time
	now := w.engine.now()
	ours, shards := within(w.shards)
	query, args, err := db.In(
		"SELECT MIN(d.next_at) FROM deliveries d WHERE d.route_id = ? AND "+isAgain+" AND d.next_at > ?"+ours,
		append([]any{w.routeID, db.At(now)}, shards...)...)
	if err != nil {
		return 0
	}
	if err := w.engine.DB.Get(ctx, &next, query, args...); err != nil || next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// dispatch starts as many requests as the route and its breaker allow. It returns the longest time
// to wait before the next try (0: until something happens).
func (w *worker) dispatch(ctx context.Context, wait time.Duration) time.Duration {
	for len(w.ready) > 0 && w.sending < w.engine.Concurrency &&
		len(w.known)-w.queued-w.sending < maxUnstored && ctx.Err() == nil {
		if pause := w.engine.paused(w.routeID); pause > 0 {
			if pause = min(pause, expireInterval); wait <= 0 || pause < wait {
				wait = pause
			}
			return wait
		}
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
		route := w.route
		routine.Go(w.engine.Log, "delivery request", func() {
			w.finished <- sent{l, w.engine.send(context.WithoutCancel(ctx), route, it)}
		})
	}
	return wait
}

// finish frees the lane of a finished request and stores its outcome in the background.
func (w *worker) finish(s sent, storing *sync.WaitGroup) {
	w.sending--
	v := s.verdict
	w.engine.pause(w.routeID, v.pause, v.status == http.StatusTooManyRequests)
	if v.delivered || v.dead != "" && !v.gone && v.status != 0 && v.dead == Permanent {
		w.breaker.Success() // the target works, even if it rejected this event
	} else {
		w.breaker.Failure(v.at)
	}
	if s.lane.busy = false; len(s.lane.queue) > 0 {
		w.ready = append(w.ready, s.lane)
	} else {
		delete(w.lanes, v.delivery.SiteID)
	}
	out := stored{seq: v.delivery.EventSeq, retry: !v.retryAt.IsZero(), unknown: true}
	storing.Go(func() {
		defer func() { w.stored <- out }()
		_ = routine.Run(w.engine.Log, "delivery outcome", func() { // logged
			if out.unknown = w.engine.store(w.engine.storingUntil, v); out.unknown {
				w.engine.unstored.Add(1)
			}
		})
	})
}

// expireInterval is how often a worker looks for deliveries past their horizon while its breaker is
// open.
const expireInterval = time.Second

const (
	// maxHorizon is the upper limit of horizon. No route retries for longer, however it is
	// configured.
	maxHorizon = 365 * 24 * time.Hour
	// constantFrom is the retry from which on the delays of any schedule no longer grow.
	constantFrom = 63
)

// horizon returns the longest time that a delivery can take: every attempt times out and every
// delay is the longest possible.
func horizon(r Route, schedule backoff.Schedule) time.Duration {
	total := r.Timeout
	for retry := range r.RetryMax {
		wait := schedule.Delay(retry, func() float64 { return 1 }) + r.Timeout
		if total += wait; total >= maxHorizon {
			return maxHorizon
		}
		if retry == constantFrom {
			rest := time.Duration(r.RetryMax - retry - 1)
			return total + min(rest, (maxHorizon-total)/wait)*wait
		}
	}
	return total
}

// expire turns deliveries into dead letters that have waited for an open breaker longer than their
// retries could have taken. So the backlog of a dead target becomes dead letters at the
// same pace as without a breaker.
func (w *worker) expire(ctx context.Context) {
	now := w.engine.now()
	var old []Pending
	limit := horizon(w.route, w.engine.schedule)
	if now.Sub(w.engine.pauseOf(w.routeID).until) < limit {
		return // the target asked for a pause, during which nothing could be tried
	}
	// A delivery that waits for a retry of its own does not expire before that.
	if err := w.engine.DB.Select(
		ctx,
		&old,
		`SELECT * FROM (SELECT * FROM deliveries WHERE route_id = ? ORDER BY event_seq LIMIT 500) AS oldest WHERE created_at < ? AND next_at <= ?`,
		w.routeID,
		db.At(now.Add(-limit)),
		db.At(now),
	); err != nil {
		return // tried again in a second
	}
	expired := false
	for _, p := range old {
		if !slices.Contains(w.shards, p.Shard) || w.underWay(p) {
			continue
		}
		expired = true
		w.engine.store(ctx, verdict{delivery: p, route: w.route, at: now, dead: Exhausted, untried: true})
	}
	if expired {
		w.stale.Store(true) // discard what was read ahead of these
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
