package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// Stored is an event of the outbox.
type Stored struct {
	Seq       int64                      `db:"seq"`
	EventID   string                     `db:"event_id"`
	Topic     string                     `db:"topic"`
	Payload   string                     `db:"payload"`
	Headers   db.JSON[map[string]string] `db:"headers"`
	EventTime db.Time                    `db:"event_time"`
	Bytes     int64                      `db:"bytes"`
}

// Next returns the oldest events, at most maxEvents and not more than maxBytes,
// but one in any case. Nothing is taken out.
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
	err := o.cfg.DB.Select(ctx, &batch, "SELECT seq, event_id, topic, payload, headers, event_time, bytes FROM outbox ORDER BY seq LIMIT ?", n)
	return batch, err
}

// Acknowledge deletes a batch that Next returned, which the control plane has now.
func (o *Outbox) Acknowledge(ctx context.Context, batch []Stored) error {
	if len(batch) == 0 {
		return nil
	}
	err := store.Update(ctx, o.cfg.DB, func(tx *db.Tx) error {
		if err := o.remove(ctx, tx, batch); err != nil {
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

// remove deletes the batch's events, as far as they were not dropped meanwhile.
// Nothing else lies between its first and its last number.
func (o *Outbox) remove(ctx context.Context, tx *db.Tx, batch []Stored) error {
	first, last := batch[0].Seq, batch[len(batch)-1].Seq
	var there struct {
		Events int64 `db:"events"`
		Bytes  int64 `db:"bytes"`
	}
	if err := tx.Get(ctx, &there, "SELECT COUNT(*) AS events, COALESCE(SUM(bytes), 0) AS bytes FROM outbox WHERE seq BETWEEN ? AND ?", first, last); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM outbox WHERE seq BETWEEN ? AND ?", first, last); err != nil {
		return err
	}
	return o.count(ctx, tx, totals{events: -there.Events, bytes: -there.Bytes})
}

// Refuse takes an event out that the control plane will never accept, and keeps
// its beginning with the reason among the newest refused ones.
func (o *Outbox) Refuse(ctx context.Context, e Stored, reason string) error {
	err := store.Update(ctx, o.cfg.DB, func(tx *db.Tx) error {
		if err := o.remove(ctx, tx, []Stored{e}); err != nil {
			return err
		}
		payload := e.Payload
		if len(payload) > maxRefusedPayload {
			payload = payload[:maxRefusedPayload]
		}
		if _, err := tx.Exec(ctx, "INSERT INTO refused_events (event_id, topic, payload, reason, refused_at) VALUES (?, ?, ?, ?, ?)",
			e.EventID, e.Topic, payload, reason, db.At(o.cfg.Now())); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM refused_events WHERE seq <= (SELECT MAX(seq) FROM refused_events) - ?", maxRefused); err != nil {
			return err
		}
		_, err := store.Count(ctx, tx, counterRefused, 1)
		return err
	})
	if err == nil {
		o.refused.Inc()
		o.cfg.Log.Warn("the control plane refused an event for good", "event", e.EventID, "topic", e.Topic, "reason", reason)
	}
	return err
}

// Refused is an event that the control plane refused.
type Refused struct {
	EventID   string  `db:"event_id"`
	Topic     string  `db:"topic"`
	Reason    string  `db:"reason"`
	RefusedAt db.Time `db:"refused_at"`
}

// Stats is how full the outbox is and what became of events since the data folder
// was made.
type Stats struct {
	Events, Bytes, MaxBytes               int64
	DropOldest                            bool
	Oldest                                time.Time // when the oldest was accepted; zero when empty
	Accepted, Forwarded, Dropped, Refused int64
	LastRefused                           []Refused // newest first
}

// Stats reads them.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	s := Stats{MaxBytes: o.cfg.MaxBytes, DropOldest: o.cfg.DropOldest, LastRefused: []Refused{}}
	for name, value := range map[string]*int64{counterEvents: &s.Events, counterBytes: &s.Bytes, counterAccepted: &s.Accepted,
		counterForwarded: &s.Forwarded, counterDropped: &s.Dropped, counterRefused: &s.Refused} {
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
	err = o.cfg.DB.Select(ctx, &s.LastRefused, "SELECT event_id, topic, reason, refused_at FROM refused_events ORDER BY seq DESC LIMIT ?", shownRefused)
	return s, err
}

// Untold is how many events were dropped that the control plane was not told of.
func (o *Outbox) Untold(ctx context.Context) (int64, error) {
	dropped, err := store.Counter(ctx, o.cfg.DB, counterDropped)
	if err != nil {
		return 0, err
	}
	told, err := store.Counter(ctx, o.cfg.DB, counterTold)
	return dropped - told, err
}

// Told notes that the control plane was told of n dropped events.
func (o *Outbox) Told(ctx context.Context, n int64) error {
	return store.Update(ctx, o.cfg.DB, func(tx *db.Tx) error {
		_, err := store.Count(ctx, tx, counterTold, n)
		return err
	})
}
