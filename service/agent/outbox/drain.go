package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// Stored is an event in the outbox.
type Stored struct {
	Seq       int64                      `db:"seq"`
	EventID   string                     `db:"event_id"`
	Topic     string                     `db:"topic"`
	Payload   string                     `db:"payload"`
	Headers   db.JSON[map[string]string] `db:"headers"`
	EventTime db.Time                    `db:"event_time"`
	Bytes     int64                      `db:"bytes"`
}

const storedColumns = "seq, event_id, topic, payload, headers, event_time, bytes"

// Next returns the oldest events, at most maxEvents and maxBytes, but at least one if there is any.
// It removes nothing.
func (o *Outbox) Next(ctx context.Context, maxEvents int, maxBytes int64) ([]Stored, error) {
	var sizes []int64
	if err := o.cfg.DB.Select(ctx, &sizes, "SELECT bytes FROM outbox ORDER BY seq LIMIT ?", maxEvents); err != nil {
		return nil, err
	}
	n, sum := 0, int64(0)
	for _, size := range sizes {
		if sum += size; n > 0 && sum > maxBytes {
			break
		}
		n++
	}
	if n == 0 {
		return nil, nil
	}
	batch := make([]Stored, 0, n)
	err := o.cfg.DB.Select(ctx, &batch, "SELECT "+storedColumns+" FROM outbox ORDER BY seq LIMIT ?", n)
	return batch, err
}

// After returns the first event after the one with the number seq, skipping skip others. It returns
// nil if there is none.
func (o *Outbox) After(ctx context.Context, seq int64, skip int) (*Stored, error) {
	var e Stored
	err := o.cfg.DB.Get(
		ctx, &e, "SELECT "+storedColumns+" FROM outbox WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?", seq, skip,
	)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return &e, err
}

// Acknowledge deletes a batch that Next returned and that the control plane has received.
func (o *Outbox) Acknowledge(ctx context.Context, batch []Stored) error {
	if len(batch) == 0 {
		return nil
	}
	err := o.cfg.DB.Settle(ctx, func(tx *db.Tx) error {
		if _, err := o.remove(ctx, tx, batch); err != nil {
			return err
		}
		_, err := store.Count(ctx, tx, counterForwarded, int64(len(batch)))
		return err
	})
	if err == nil {
		o.forwarded.Add(float64(len(batch)))
	}
	return err
}

// remove deletes the events of a batch and returns how many it deleted. Some may have been dropped
// since Next. No other events have numbers between the first and the last one of a batch.
func (o *Outbox) remove(ctx context.Context, tx *db.Tx, batch []Stored) (int64, error) {
	first, last := batch[0].Seq, batch[len(batch)-1].Seq
	var there struct {
		Events int64 `db:"events"`
		Bytes  int64 `db:"bytes"`
	}
	if err := tx.Get(
		ctx, &there,
		"SELECT COUNT(*) AS events, COALESCE(SUM(bytes), 0) AS bytes FROM outbox WHERE seq BETWEEN ? AND ?", first,
		last,
	); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM outbox WHERE seq BETWEEN ? AND ?", first, last); err != nil {
		return 0, err
	}
	return there.Events, o.count(ctx, tx, totals{events: -there.Events, bytes: -there.Bytes})
}

// Stats describes how full the outbox is, and what happened to events since the data folder was
// created.
type Stats struct {
	Events, Bytes, MaxBytes               int64
	DropOldest                            bool
	Oldest                                time.Time // when the oldest event was accepted; zero if there is none
	Accepted, Forwarded, Dropped, Refused int64
	SetAside                              int64     // refused events that are kept
	Discarded                             int64     // refused events that were deleted for lack of room
	LastRefused                           []Refused // of those that are kept, newest first
}

// Stats returns the statistics.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	s := Stats{MaxBytes: o.cfg.MaxBytes, DropOldest: o.cfg.DropOldest, LastRefused: []Refused{}}
	for name, value := range map[string]*int64{
		counterEvents: &s.Events, counterBytes: &s.Bytes, counterAccepted: &s.Accepted,
		counterForwarded: &s.Forwarded, counterDropped: &s.Dropped,
		counterRefused: &s.Refused, counterDiscarded: &s.Discarded,
	} {
		var err error
		if *value, err = store.Counter(ctx, o.cfg.DB, name); err != nil {
			return s, err
		}
	}
	var oldest db.Time
	err := o.cfg.DB.Get(ctx, &oldest, "SELECT accepted_at FROM outbox ORDER BY seq LIMIT 1")
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return s, err
	}
	s.Oldest = oldest.Time
	if err := o.cfg.DB.Get(ctx, &s.SetAside, "SELECT COUNT(*) FROM refused_events"); err != nil {
		return s, err
	}
	s.LastRefused, err = o.Refused(ctx, 0, shownRefused)
	return s, err
}

// Untold returns how many events were dropped that the control plane has not been told about.
func (o *Outbox) Untold(ctx context.Context) (int64, error) {
	dropped, err := store.Counter(ctx, o.cfg.DB, counterDropped)
	if err != nil {
		return 0, err
	}
	told, err := store.Counter(ctx, o.cfg.DB, counterTold)
	return dropped - told, err
}

// Told records that the control plane has been told about n dropped events.
func (o *Outbox) Told(ctx context.Context, n int64) error {
	return o.cfg.DB.Settle(ctx, func(tx *db.Tx) error {
		_, err := store.Count(ctx, tx, counterTold, n)
		return err
	})
}
