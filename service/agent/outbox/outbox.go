// Package outbox keeps events on disk from their acceptance until the control plane has received
// them.
//
//	             ┌─► acknowledged by the control plane: deleted
//	accepted ────┼─► refused by it: set aside, until a person retries or discards it
//	             └─► dropped as the oldest one when the outbox is full (only if so configured)
//
// Invariants:
//
//   - When Accept returns, the events are on disk. They stay there until one of the above happens.
//   - Events are read in the order of their acceptance.
//   - An event ID is stored only once, whether it waits or is set aside. As long as it is stored,
//     accepting it again reports a duplicate and changes nothing; later, the control plane
//     recognizes duplicates.
//   - The total size of the events never exceeds the limit, even after a crash: it is updated in
//     the same transactions as the events.
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// The outbox's counters in package store.
const (
	counterBytes     = "outbox_bytes"
	counterEvents    = "outbox_events"
	counterAccepted  = "events_accepted"
	counterForwarded = "events_forwarded"
	counterDropped   = "events_dropped"
	counterRefused   = "events_refused"
	counterDiscarded = "events_discarded"    // refused events that were deleted for lack of room
	counterTold      = "events_dropped_told" // dropped events that the control plane was told about
)

// Limits of the refused events that are kept.
const (
	maxRefused      = 1000
	maxRefusedBytes = 32 << 20
	shownRefused    = 10
)

// Config holds the dependencies and settings of an Outbox.
type Config struct {
	DB         *store.DB
	MaxBytes   int64
	DropOldest bool // drop the oldest events when full; otherwise refuse new ones
	Log        *slog.Logger
	Now        func() time.Time
	Registry   prometheus.Registerer
}

// Outbox is the queue of events. It is safe for concurrent use.
type Outbox struct {
	cfg     Config
	batcher *db.Batcher[*acceptance, error]
	added   chan struct{}
	// The values for metrics; the authoritative ones are in the database.
	events, bytes                         atomic.Int64
	accepted, forwarded, dropped, refused prometheus.Counter
}

// acceptance holds the events of one call of accept.
type acceptance struct {
	rows     []row
	bytes    int64
	receipts []Receipt
}

type row struct {
	id, topic, payload, headers string
	at                          time.Time
	bytes                       int64
}

// Receipt confirms that an event is on disk.
type Receipt struct {
	EventID   string
	Duplicate bool
}

// New creates an Outbox on a database that package store opened.
func New(ctx context.Context, cfg Config) (*Outbox, error) {
	o := &Outbox{cfg: cfg, added: make(chan struct{}, 1)}
	o.batcher = db.NewBatcher(cfg.DB.DB, 256, o.write)
	for name, value := range map[string]*atomic.Int64{counterEvents: &o.events, counterBytes: &o.bytes} {
		n, err := store.Counter(ctx, cfg.DB, name)
		if err != nil {
			return nil, err
		}
		value.Store(n)
	}
	counter := func(what, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "agent_events_" + what + "_total", Help: help})
		cfg.Registry.MustRegister(c)
		return c
	}
	o.accepted = counter("accepted", "Events taken from programs at the site.")
	o.forwarded = counter("forwarded", "Events that the control plane has acknowledged.")
	o.dropped = counter("dropped", "Events dropped because the outbox was full.")
	o.refused = counter("refused", "Events that the control plane refused for good.")
	gauge := func(name, help string, v *atomic.Int64) {
		cfg.Registry.MustRegister(
			prometheus.NewGaugeFunc(
				prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) },
			),
		)
	}
	gauge("agent_outbox_events", "Events that wait to be sent.", &o.events)
	gauge("agent_outbox_bytes", "Bytes of the events that wait to be sent.", &o.bytes)
	return o, nil
}

// Run writes the events of Accept calls until ctx ends.
func (o *Outbox) Run(ctx context.Context) { o.batcher.Run(ctx) }

// Added receives a value after events were accepted.
func (o *Outbox) Added() <-chan struct{} { return o.added }

// Accept stores 1 to MaxBatch events, all or none, and returns when they are on disk. Concurrent
// calls share commits. If the outbox or the disk is full, the error is a fault of kind
// StorageFailed. The fault of an invalid event names a field such as "events.0.topic".
func (o *Outbox) Accept(ctx context.Context, events []Event) ([]Receipt, error) {
	if len(events) == 0 || len(events) > MaxBatch {
		return nil, fault.InvalidField("events", "must hold 1 to %d events", MaxBatch)
	}
	return o.accept(ctx, events, func(i int) string { return fmt.Sprintf("events.%d.", i) })
}

// AcceptOne is Accept for one event. The fault of an invalid event names a field such as "topic".
func (o *Outbox) AcceptOne(ctx context.Context, e Event) (Receipt, error) {
	receipts, err := o.accept(ctx, []Event{e}, func(int) string { return "" })
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// accept stores events. at returns the prefix of field names in an error about the event with this
// index.
func (o *Outbox) accept(ctx context.Context, events []Event, at func(i int) string) ([]Receipt, error) {
	now := o.cfg.Now()
	a := &acceptance{rows: make([]row, len(events))}
	for i := range events {
		e := &events[i]
		if err := e.check(at(i)); err != nil {
			return nil, err
		}
		r := row{id: e.ID, topic: e.Topic, payload: string(e.Payload), headers: "{}", at: e.Time}
		if r.id == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("make an event id: %w", err)
			}
			r.id = id.String()
		}
		if r.at.IsZero() {
			r.at = now
		}
		if len(e.Headers) > 0 {
			headers, err := json.Marshal(e.Headers)
			if err != nil {
				return nil, err
			}
			r.headers = string(headers)
		}
		r.bytes = int64(len(r.id)+len(r.topic)+len(r.payload)+len(r.headers)) + rowOverhead
		a.bytes += r.bytes
		a.rows[i] = r
	}
	if err := o.cfg.DB.Room(ctx); err != nil {
		return nil, err
	}
	full, err := o.batcher.Do(ctx, a)
	if err = errors.Join(err, full); err != nil {
		return nil, o.cfg.DB.Notice(err)
	}
	o.signalAdded()
	return a.receipts, nil
}

func (o *Outbox) signalAdded() {
	select {
	case o.added <- struct{}{}:
	default:
	}
}

// totals holds changes of the counters within a transaction.
type totals struct{ events, bytes, accepted, dropped int64 }

// write stores a batch. An item's error means that the outbox was too full for it.
func (o *Outbox) write(ctx context.Context, tx *db.Tx, items []*acceptance) ([]error, error) {
	bytes, err := store.Counter(ctx, tx, counterBytes)
	if err != nil {
		return nil, err
	}
	now := o.cfg.Now().UnixMicro()
	before, sum := bytes, totals{}
	results := make([]error, len(items))
	for i, a := range items {
		dropped, freed, err := o.makeRoom(ctx, tx, a, bytes)
		if noRoom(err) {
			results[i] = err
			continue
		}
		if err != nil {
			return nil, err
		}
		bytes -= freed
		sum.dropped += dropped
		a.receipts = make([]Receipt, len(a.rows))
		for j, r := range a.rows {
			n, err := tx.Exec(
				ctx,
				`INSERT INTO outbox (event_id, topic, payload, headers, event_time, accepted_at, bytes)
				SELECT ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM refused_events WHERE event_id = ? AND whole)
				ON CONFLICT (event_id) DO NOTHING`,
				r.id,
				r.topic,
				r.payload,
				r.headers,
				r.at.UnixMicro(),
				now,
				r.bytes,
				r.id,
			)
			if err != nil {
				return nil, err
			}
			a.receipts[j] = Receipt{EventID: r.id, Duplicate: n == 0}
			if n > 0 {
				bytes += r.bytes
				sum.accepted++
			}
		}
	}
	sum.bytes, sum.events = bytes-before, sum.accepted-sum.dropped
	if err := o.count(ctx, tx, sum); err != nil {
		return nil, err
	}
	tx.OnCommit(func() {
		o.accepted.Add(float64(sum.accepted))
		o.dropped.Add(float64(sum.dropped))
	})
	return results, nil
}

var errFull = fault.New(
	fault.StorageFailed,
	"the outbox is full; nothing was stored. Events go out when there is a link; --outbox-max-size makes more room",
).WithCode("outbox_full")

// errTooSmall is the error for events that would not fit into an empty outbox either.
func errTooSmall(bytes, limit int64) error {
	return fault.New(
		fault.StorageFailed,
		"events of %d bytes never fit into an outbox of %d bytes; nothing was stored. "+
			"Send fewer or smaller events at once, or raise --outbox-max-size", bytes, limit,
	).WithCode(codeTooSmall)
}

const codeTooSmall = "outbox_too_small"

// noRoom reports whether err is errFull or an errTooSmall.
func noRoom(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && (f.Code == errFull.Code || f.Code == codeTooSmall)
}

// makeRoom drops the oldest events until a's new ones fit beside bytes. It returns errFull or
// errTooSmall if they do not fit and dropping is not configured or would not be enough; then
// nothing was dropped.
func (o *Outbox) makeRoom(
	ctx context.Context, tx *db.Tx, a *acceptance, bytes int64,
) (dropped, freed int64, err error) {
	if bytes+a.bytes <= o.cfg.MaxBytes {
		return 0, 0, nil
	}
	for {
		// Duplicates need no room. A dropped event is not a duplicate any more.
		added, err := newBytes(ctx, tx, a)
		need := bytes - freed + added - o.cfg.MaxBytes
		if err != nil || added == 0 || need <= 0 {
			return dropped, freed, err
		}
		if a.bytes > o.cfg.MaxBytes {
			return 0, 0, errTooSmall(a.bytes, o.cfg.MaxBytes)
		}
		if !o.cfg.DropOldest {
			return 0, 0, errFull
		}
		n, more, err := dropOldest(ctx, tx, need)
		if err != nil {
			return 0, 0, err
		}
		dropped, freed = dropped+n, freed+more
	}
}

// newBytes returns the size of the events of a that neither wait nor are set aside yet.
func newBytes(ctx context.Context, q db.Querier, a *acceptance) (int64, error) {
	sizes := make(map[string]int64, len(a.rows))
	ids := make([]string, len(a.rows))
	for i, r := range a.rows {
		if ids[i] = r.id; sizes[r.id] == 0 { // of equal ids, the first one counts
			sizes[r.id] = r.bytes
		}
	}
	query, args, err := db.In(
		`SELECT event_id FROM outbox WHERE event_id IN (?)
		UNION SELECT event_id FROM refused_events WHERE event_id IN (?) AND whole`, ids, ids,
	)
	if err != nil {
		return 0, err
	}
	var stored []string
	if err := q.Select(ctx, &stored, query, args...); err != nil {
		return 0, err
	}
	for _, id := range stored {
		delete(sizes, id)
	}
	var sum int64
	for _, n := range sizes {
		sum += n
	}
	return sum, nil
}

// count updates the counters. It updates the values for metrics once the change is durable.
func (o *Outbox) count(ctx context.Context, tx *db.Tx, t totals) error {
	for name, n := range map[string]int64{
		counterEvents: t.events, counterBytes: t.bytes, counterAccepted: t.accepted, counterDropped: t.dropped,
	} {
		if n == 0 {
			continue
		}
		if _, err := store.Count(ctx, tx, name, n); err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		o.events.Add(t.events)
		o.bytes.Add(t.bytes)
	})
	return nil
}

// dropOldest deletes the oldest events until at least need bytes are freed.
func dropOldest(ctx context.Context, tx *db.Tx, need int64) (events, freed int64, err error) {
	for freed < need {
		var oldest []struct {
			Seq   int64 `db:"seq"`
			Bytes int64 `db:"bytes"`
		}
		if err := tx.Select(ctx, &oldest, "SELECT seq, bytes FROM outbox ORDER BY seq LIMIT 64"); err != nil {
			return 0, 0, err
		}
		if len(oldest) == 0 {
			return events, freed, nil
		}
		last := int64(0)
		for _, r := range oldest {
			if freed >= need {
				break
			}
			last, events, freed = r.Seq, events+1, freed+r.Bytes
		}
		if _, err := tx.Exec(ctx, "DELETE FROM outbox WHERE seq <= ?", last); err != nil {
			return 0, 0, err
		}
	}
	return events, freed, nil
}
