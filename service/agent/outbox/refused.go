package outbox

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// Refused is an event that the control plane refused.
type Refused struct {
	Seq       int64   `db:"seq"`
	EventID   string  `db:"event_id"`
	Topic     string  `db:"topic"`
	Reason    string  `db:"reason"`
	RefusedAt db.Time `db:"refused_at"`
	EventTime db.Time `db:"event_time"`
	Bytes     int64   `db:"bytes"`
	// Whole is false if an older version of the agent refused the event, since those kept only the
	// beginning of it.
	Whole bool `db:"whole"`
}

// Refuse sets an event aside that the control plane does not accept, with the reason. The whole
// event is kept until a person retries or discards it. If there are too many, the oldest ones are
// deleted.
func (o *Outbox) Refuse(ctx context.Context, e Stored, reason string) error {
	discarded := int64(0)
	err := o.cfg.DB.Settle(ctx, func(tx *db.Tx) error {
		there, err := o.remove(ctx, tx, []Stored{e})
		if err != nil || there == 0 { // it was dropped in the meantime
			return err
		}
		// The event replaces the beginning of it that an older version of the agent has kept.
		if _, err := tx.Exec(
			ctx, "DELETE FROM refused_events WHERE event_id = ? AND NOT whole", e.EventID,
		); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			`INSERT INTO refused_events (event_id, topic, payload, headers, event_time, bytes, whole, reason, refused_at)
			VALUES (?, ?, ?, ?, ?, ?, TRUE, ?, ?)`,
			e.EventID,
			e.Topic,
			e.Payload,
			e.Headers,
			e.EventTime,
			e.Bytes,
			reason,
			db.At(o.cfg.Now()),
		); err != nil {
			return err
		}
		if discarded, err = trimRefused(ctx, tx); err != nil {
			return err
		}
		if _, err := store.Count(ctx, tx, counterDiscarded, discarded); err != nil {
			return err
		}
		_, err = store.Count(ctx, tx, counterRefused, 1)
		return err
	})
	if err == nil {
		o.refused.Inc()
		o.cfg.Log.Warn(
			"the control plane refused an event; it is set aside", "event", e.EventID, "topic", e.Topic, "reason",
			reason,
		)
		if discarded > 0 {
			o.cfg.Log.Error("too many events are set aside; the oldest of them were discarded", "discarded", discarded)
		}
	}
	return err
}

// trimRefused deletes the oldest refused events beyond the limits.
func trimRefused(ctx context.Context, tx *db.Tx) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM refused_events WHERE seq IN (SELECT seq FROM (
			SELECT seq, ROW_NUMBER() OVER newest AS n, SUM(bytes) OVER newest AS sum
				FROM refused_events WINDOW newest AS (ORDER BY seq DESC)
		) WHERE n > ? OR sum > ?)`, maxRefused, int64(maxRefusedBytes))
}

// Refused lists the refused events that are kept, newest first: those before the number before, or
// from the newest one if before is 0.
func (o *Outbox) Refused(ctx context.Context, before int64, limit int) ([]Refused, error) {
	list := []Refused{}
	err := o.cfg.DB.Select(
		ctx,
		&list,
		`SELECT seq, event_id, topic, reason, refused_at, event_time, bytes, whole FROM refused_events
		WHERE seq < ? OR ? = 0 ORDER BY seq DESC LIMIT ?`,
		before,
		before,
		limit,
	)
	return list, err
}

// Retry moves refused events back to the end of the outbox, oldest first, all or none. No IDs mean
// all whole events. It returns how many it moved: an event whose ID waits in the outbox already,
// which only an older version of the agent has allowed, stays set aside.
func (o *Outbox) Retry(ctx context.Context, ids []string) (int64, error) {
	if err := o.cfg.DB.Room(ctx); err != nil {
		return 0, err
	}
	var retried int64
	err := o.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		seqs, err := o.chosen(ctx, tx, ids, true)
		if err != nil {
			return err
		}
		sum := totals{}
		for _, seq := range seqs {
			var bytes int64
			if err := tx.Get(ctx, &bytes, "SELECT bytes FROM refused_events WHERE seq = ?", seq); err != nil {
				return err
			}
			n, err := tx.Exec(
				ctx,
				`INSERT INTO outbox (event_id, topic, payload, headers, event_time, accepted_at, bytes)
				SELECT event_id, topic, payload, headers, event_time, ?, bytes FROM refused_events WHERE seq = ?
				ON CONFLICT (event_id) DO NOTHING`,
				o.cfg.Now().UnixMicro(),
				seq,
			)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			sum.events, sum.bytes = sum.events+n, sum.bytes+bytes
			if _, err := tx.Exec(ctx, "DELETE FROM refused_events WHERE seq = ?", seq); err != nil {
				return err
			}
		}
		stored, err := store.Counter(ctx, tx, counterBytes)
		if err != nil {
			return err
		}
		if sum.bytes > o.cfg.MaxBytes {
			return errTooSmall(sum.bytes, o.cfg.MaxBytes)
		}
		if stored+sum.bytes > o.cfg.MaxBytes {
			return errFull
		}
		retried = sum.events
		return o.count(ctx, tx, sum)
	})
	if err != nil {
		return 0, err
	}
	o.signalAdded()
	return retried, nil
}

// Discard deletes refused events permanently, all or none. No IDs mean all events.
func (o *Outbox) Discard(ctx context.Context, ids []string) (int64, error) {
	var discarded int64
	err := o.cfg.DB.Settle(ctx, func(tx *db.Tx) error {
		seqs, err := o.chosen(ctx, tx, ids, false)
		if err != nil {
			return err
		}
		for _, seq := range seqs {
			if _, err := tx.Exec(ctx, "DELETE FROM refused_events WHERE seq = ?", seq); err != nil {
				return err
			}
		}
		discarded = int64(len(seqs))
		return nil
	})
	return discarded, err
}

// chosen returns the numbers of the refused events with these IDs, oldest first. whole limits it to
// whole events.
func (o *Outbox) chosen(ctx context.Context, tx *db.Tx, ids []string, whole bool) ([]int64, error) {
	var seqs []int64
	if len(ids) == 0 {
		err := tx.Select(ctx, &seqs, "SELECT seq FROM refused_events WHERE whole OR ? ORDER BY seq", !whole)
		return seqs, err
	}
	query, args, err := db.In("SELECT seq FROM refused_events WHERE event_id IN (?) ORDER BY seq", ids)
	if err != nil {
		return nil, err
	}
	if err := tx.Select(ctx, &seqs, query, args...); err != nil {
		return nil, err
	}
	for _, id := range ids {
		var r struct {
			Whole bool `db:"whole"`
		}
		err := tx.Get(ctx, &r, "SELECT whole FROM refused_events WHERE event_id = ?", id)
		if errors.Is(err, db.ErrNoRows) {
			return nil, fault.New(
				fault.NotFound, "event_ids: no refused event has the id %.128s; nothing was changed", id,
			)
		}
		if err != nil {
			return nil, err
		}
		if whole && !r.Whole {
			return nil, fault.New(
				fault.Conflict,
				"event_ids: only the beginning of event %.128s was kept, so it cannot be sent again", id,
			)
		}
	}
	return seqs, nil
}
