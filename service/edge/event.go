package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/topic"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

const (
	maxEventBytes = 1 << 20 // maximum size of an event's payload, and of a request with one event
	maxBatch      = 1000
	maxEventID    = 128
)

// Event is something that happened at a site. Events are numbered in the order in
// which they were accepted.
type Event struct {
	Seq        int64                      `db:"seq"`
	OrgID      string                     `db:"org_id"`
	EventID    string                     `db:"event_id"`
	SiteID     string                     `db:"site_id"`
	Topic      string                     `db:"topic"`
	Payload    string                     `db:"payload"`
	Headers    db.JSON[map[string]string] `db:"headers"`
	EventTime  db.Time                    `db:"event_time"`
	ReceivedAt db.Time                    `db:"received_at"`
}

// EventInput is an event as received from a caller.
type EventInput struct {
	EventID   string // generated if empty
	SiteID    string
	Topic     string
	Payload   json.RawMessage
	Headers   map[string]string
	EventTime *time.Time // nil: the time of acceptance
}

// Receipt confirms that an event is on disk.
type Receipt struct {
	EventID   string
	Duplicate bool
}

// check returns an error for a malformed event. at is the prefix of field names in errors.
func (e *EventInput) check(at string) error {
	if e.SiteID == "" {
		return fault.InvalidField(at+"site_id", "is required")
	}
	if err := text.CheckID(at+"site_id", e.SiteID); err != nil {
		return err
	}
	if err := topic.Check(at+"topic", e.Topic); err != nil {
		return err
	}
	if len(e.Payload) == 0 {
		return fault.InvalidField(at+"payload", "is required")
	}
	if len(e.Payload) > maxEventBytes {
		return fault.New(fault.TooLarge, "%spayload: larger than %d bytes", at, maxEventBytes)
	}
	if !utf8.Valid(e.Payload) {
		return fault.InvalidField(at+"payload", "is not valid UTF-8")
	}
	if len(e.EventID) > maxEventID {
		return fault.InvalidField(at+"event_id", "is longer than %d bytes", maxEventID)
	}
	if err := text.CheckID(at+"event_id", e.EventID); err != nil {
		return err
	}
	if e.EventTime != nil {
		if err := text.CheckTime(at+"event_time", *e.EventTime); err != nil {
			return err
		}
	}
	if len(e.Headers) > 0 {
		if err := webhook.CheckHeaders(e.Headers); err != nil {
			f := fault.From(err)
			return fault.InvalidField(at+f.Field, "%s", strings.TrimPrefix(f.Message, f.Field+": "))
		}
	}
	return nil
}

// Ingest accepts one event. When it returns, the event and its deliveries are on
// disk. Concurrent calls share commits.
func (s *Service) Ingest(ctx context.Context, in EventInput) (Receipt, error) {
	row, err := s.eventRow(ctx, "", in)
	if err != nil {
		return Receipt{}, err
	}
	duplicate, err := s.ingest.Do(ctx, row)
	return Receipt{EventID: row.EventID, Duplicate: duplicate}, ingestFault(err)
}

// IngestBatch accepts 1 to maxBatch events, all or none.
func (s *Service) IngestBatch(ctx context.Context, in []EventInput) ([]Receipt, error) {
	if len(in) == 0 || len(in) > maxBatch {
		return nil, fault.InvalidField("events", "must hold 1 to %d events", maxBatch)
	}
	rows := make([]*Event, len(in))
	for i, e := range in {
		row, err := s.eventRow(ctx, fmt.Sprintf("events.%d.", i), e)
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	var duplicates []bool
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		duplicates, err = s.writeEvents(ctx, tx, rows)
		return err
	})
	if err != nil {
		return nil, ingestFault(err)
	}
	receipts := make([]Receipt, len(rows))
	for i, row := range rows {
		receipts[i] = Receipt{EventID: row.EventID, Duplicate: duplicates[i]}
	}
	return receipts, nil
}

// ingestFault turns internal errors, and those of a database that is away, into StorageFailed: the contract has 503 for
// a queue that is full, and 507 for what could not be stored and must be sent again.
func ingestFault(err error) error {
	if err == nil || fault.KindOf(err) != fault.Internal && fault.From(err).Code != db.CodeUnavailable {
		return err
	}
	return fault.Wrap(fault.StorageFailed, err, "the event could not be stored; send it again")
}

func (s *Service) eventRow(ctx context.Context, at string, in EventInput) (*Event, error) {
	if err := in.check(at); err != nil {
		return nil, err
	}
	org, err := s.siteOrg(ctx, in.SiteID)
	if err != nil {
		return nil, err
	}
	row := &Event{OrgID: org, EventID: in.EventID, SiteID: in.SiteID, Topic: in.Topic, Payload: string(in.Payload)}
	if row.EventID == "" {
		row.EventID = newID()
	}
	row.Headers.V = in.Headers
	if in.EventTime != nil {
		row.EventTime = db.At(*in.EventTime)
	}
	return row, nil
}

var errBacklog = fault.New(
	fault.Unavailable,
	"too many deliveries are waiting for their targets; try again later",
).WithCode("backlog_full").WithRetryAfter(5 * time.Second)

// writeEvents stores events with their deliveries and reports which ones are duplicates. Sequence
// numbers are in commit order.
func (s *Service) writeEvents(ctx context.Context, tx *db.Tx, events []*Event) ([]bool, error) {
	last, err := take(ctx, tx, "event", len(events))
	if err != nil {
		return nil, err
	}
	routes, err := s.routing.current(ctx, tx)
	if err != nil {
		return nil, err
	}
	if len(routes.all) > 0 {
		var pending int64
		if err := tx.Get(
			ctx, &pending, "SELECT COALESCE(CAST(SUM(n) AS BIGINT), 0) FROM tallies WHERE kind = 'delivery'",
		); err != nil {
			return nil, err
		}
		if pending >= s.cfg.MaxBacklog {
			return nil, errBacklog
		}
	}
	now := db.At(s.now())
	first := last - int64(len(events)) + 1
	for i, e := range events {
		e.Seq, e.ReceivedAt = first+int64(i), now
		if e.EventTime.IsZero() {
			e.EventTime = now
		}
	}
	stored, err := insertEvents(ctx, tx, events)
	if err != nil {
		return nil, err
	}
	duplicates := make([]bool, len(events))
	minutes := map[string]*eventMinute{}
	occurred := make([]topicmap.Occurrence, 0, len(events))
	for i, e := range events {
		if duplicates[i] = stored != nil && !stored[e.Seq]; duplicates[i] {
			continue
		}
		occurred = append(occurred, topicmap.Occurrence{Seq: e.Seq, OrgID: e.OrgID, Topic: e.Topic})
		m := minutes[e.OrgID]
		if m == nil {
			m = &eventMinute{firstSeq: e.Seq}
			minutes[e.OrgID] = m
		}
		m.events++
		m.bytes += int64(len(e.Payload)) + eventOverhead
	}
	for org, m := range minutes {
		if err := eventMinutes.Add(ctx, tx, now.Time, org, m.firstSeq, m.events, m.bytes); err != nil {
			return nil, err
		}
	}
	if err := s.topics.Add(ctx, tx, occurred); err != nil {
		return nil, err
	}
	if len(routes.all) == 0 {
		return duplicates, nil
	}
	return duplicates, s.routeEvents(ctx, tx, routes, events, duplicates, now)
}

// eventMinutes counts accepted events per minute. Retention deletes its rows together with the
// events.
var eventMinutes = series.NewTable(series.Table{
	Name: "event_minutes", Key: []string{"org_id"}, First: []string{"first_seq"}, Sums: []string{"events", "bytes"},
})

type eventMinute struct{ events, firstSeq, bytes int64 }

// eventOverhead is the approximate size of an event without its payload, in bytes.
const eventOverhead = 400

// insertEvents stores events, which have consecutive sequence numbers, and returns the numbers of
// those that were new. nil means all of them.
func insertEvents(ctx context.Context, tx *db.Tx, events []*Event) (map[int64]bool, error) {
	var inserted int64
	for rest := events; len(rest) > 0; {
		// Powers of two keep the number of distinct statements small, so they stay prepared.
		n := min(maxInsert, 1<<(bits.Len(uint(len(rest)))-1))
		args := make([]any, 0, n*insertColumns)
		for _, e := range rest[:n] {
			headers := "{}"
			if len(e.Headers.V) > 0 {
				headers = string(mustJSON(e.Headers.V))
			}
			args = append(
				args, e.Seq, e.OrgID, e.EventID, e.SiteID, e.Topic, e.Payload, headers, e.EventTime.UnixMicro(),
				e.ReceivedAt.UnixMicro(),
			)
		}
		changed, err := tx.Exec(ctx, insertEventsSQL[n], args...)
		if err != nil {
			return nil, err
		}
		inserted += changed
		rest = rest[n:]
	}
	if inserted == int64(len(events)) {
		return nil, nil
	}
	var seqs []int64
	if err := tx.Select(
		ctx, &seqs, "SELECT seq FROM events WHERE seq BETWEEN ? AND ?", events[0].Seq, events[len(events)-1].Seq,
	); err != nil {
		return nil, err
	}
	stored := make(map[int64]bool, len(seqs))
	for _, seq := range seqs {
		stored[seq] = true
	}
	return stored, nil
}

const (
	maxInsert     = 128 // events in a statement
	insertColumns = 9
)

// insertEventsSQL holds the INSERT statements by number of events.
var insertEventsSQL = func() map[int]string {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	texts := map[int]string{}
	for n := 1; n <= maxInsert; n *= 2 {
		texts[n] = "INSERT INTO events (seq, org_id, event_id, site_id, topic, payload, headers, event_time, received_at) VALUES " +
			row + strings.Repeat(
			", "+row,
			n-1,
		) + " ON CONFLICT (org_id, event_id) DO NOTHING"
	}
	return texts
}()

// routeEvents adds a delivery for every new event and enabled route that match,
// and a dead letter for every disabled route that would have matched.
func (s *Service) routeEvents(
	ctx context.Context, tx *db.Tx, routes *routeTable, events []*Event, duplicates []bool, now db.Time,
) error {
	var pending []delivery.Pending
	buried := map[string][]int64{}
	var woken []string
	for i, e := range events {
		if duplicates[i] {
			continue
		}
		for _, r := range routes.all {
			if !r.matches(e) {
				continue
			}
			if !r.Enabled {
				buried[r.ID] = append(buried[r.ID], e.Seq)
				continue
			}
			pending = append(pending, delivery.Pending{
				RouteID:   r.ID,
				EventSeq:  e.Seq,
				Shard:     delivery.ShardOf(r.ID, e.SiteID),
				SiteID:    e.SiteID,
				CreatedAt: now,
				NextAt:    now,
			})
			woken = append(woken, r.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(buried)) { // in the order of delivery.LockRoute
		if err := delivery.BuryEvents(
			ctx, tx, id, routes.org[id], buried[id], delivery.RouteDisabled, now.Time,
		); err != nil {
			return err
		}
	}
	if len(pending) == 0 {
		return nil
	}
	tx.OnCommit(func() { s.delivery.Wake(woken...) })
	return delivery.Add(ctx, tx, pending, func(id string) string { return routes.org[id] })
}
