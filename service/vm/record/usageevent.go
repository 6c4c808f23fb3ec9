package record

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// UsageCursor returns the last event of a host that was counted, or "".
func (s *Store) UsageCursor(ctx context.Context, node string) (event string, err error) {
	err = s.db.Get(ctx, &event, "SELECT event FROM usage_cursors WHERE node = ?", node)
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return event, err
}

// UsageEvent is an event of a VM at the daemon.
type UsageEvent struct {
	Event        string // the id
	Node         string
	DriverID     string // of the VM
	At           time.Time
	Cursor, Gone bool // Cursor: only the event's id counts; Gone: the daemon has removed the VM
	State        State
	// RanUntil is until when it is certain that a process ran that has ended. Zero: until the event.
	RanUntil time.Time
}

// Happened counts what an event tells, and that it was counted, in one transaction. It is idempotent.
func (s *Store) Happened(ctx context.Context, h UsageEvent) error {
	return s.count(caller.ByItself(ctx), func(tx *counting) error {
		if !h.Cursor {
			if err := tx.happened(ctx, &h); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO usage_cursors (node, event, updated_at) VALUES (?, ?, ?)
			ON CONFLICT (node) DO UPDATE SET event = excluded.event, updated_at = excluded.updated_at`,
			h.Node, h.Event, db.At(s.now()))
		return err
	})
}

func (tx *counting) happened(ctx context.Context, h *UsageEvent) error {
	h.At, h.RanUntil = stored(h.At), stored(h.RanUntil)
	var r VM
	err := tx.Get(ctx, &r, "SELECT * FROM vms WHERE node = ? AND driver_id = ?", h.Node, h.DriverID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	t, err := tx.newest(ctx, r.ID, trackRun, h.At)
	if err != nil {
		return err
	}
	if h.Gone || !h.State.HasProcess() {
		if t == nil || t.Final {
			return nil
		}
		return tx.end(ctx, &r, t, h)
	}
	if t != nil && !t.Final {
		to, err := tx.bounded(ctx, t, h.At)
		if err != nil {
			return err
		}
		return tx.extend(ctx, &r, t, to, nil)
	}
	if h.State == Stopping || !r.DeletedAt.IsZero() || t != nil && (t.To.After(h.At) || t.StartedAt.Equal(h.At)) {
		return nil // or it was counted already
	}
	// A process has come up that was not seen yet.
	_, err = tx.begin(ctx, &r, trackRun, h.At, true)
	return err
}

// end ends a run at the time of an event. What was counted beyond it is taken back, as far as it is in
// the last segment: clocks differ a little.
func (tx *counting) end(ctx context.Context, r *VM, t *track, h *UsageEvent) error {
	at := h.At
	if !h.RanUntil.IsZero() && h.RanUntil.Before(at) {
		at = h.RanUntil
	}
	to, err := tx.bounded(ctx, t, at)
	if err != nil {
		return err
	}
	if to.Before(t.To.Time) && h.RanUntil.IsZero() {
		last, err := tx.last(ctx, r, t)
		if err != nil {
			return err
		}
		if to.Before(last.From.Time) {
			to = last.From.Time
		}
		if _, err := tx.Exec(ctx, `UPDATE usage_segments SET to_at = ? WHERE vm_id = ? AND kind = ? AND started_at = ?
			AND from_at = ?`, db.At(to), t.VM, t.Kind, t.StartedAt, last.From); err != nil {
			return err
		}
		t.To = db.At(to)
	}
	if err := tx.extend(ctx, r, t, to, nil); err != nil {
		return err
	}
	t.Final, t.Lost = true, h.Gone
	return tx.save(ctx, t)
}

// bounded returns a time, or when the next run of the VM begins if that is earlier.
func (tx *counting) bounded(ctx context.Context, t *track, at time.Time) (time.Time, error) {
	var next db.Time
	err := tx.Get(ctx, &next, `SELECT MIN(s.from_at) FROM usage_segments s WHERE s.vm_id = ? AND s.kind = ?
		AND s.started_at > ?`, t.VM, t.Kind, t.StartedAt)
	if err == nil && !next.IsZero() && next.Before(at) {
		at = next.Time
	}
	return at, err
}

// Uncertain returns a VM that has an id at the daemon of a host, and until when its process was seen, if
// at a time it has a run that was not seen since another time. ok is false otherwise.
func (s *Store) Uncertain(
	ctx context.Context, node, driverID string, at, since time.Time,
) (r VM, seen time.Time, ok bool, err error) {
	err = s.db.Get(ctx, &r, "SELECT * FROM vms WHERE node = ? AND driver_id = ?", node, driverID)
	if err == nil {
		var t track
		err = s.db.Get(ctx, &t, `SELECT * FROM usage_tracks WHERE vm_id = ? AND kind = ? AND started_at <= ?
			ORDER BY started_at DESC LIMIT 1`, r.ID, trackRun, db.At(at))
		seen, ok = t.To.Time, !t.Final && t.To.Before(since) && t.To.Before(at)
	}
	if errors.Is(err, db.ErrNoRows) {
		return r, seen, false, nil
	}
	return r, seen, ok && err == nil, err
}

// SettleRuns ends the runs of a host's VMs that were not seen since a time: the events that said when they
// ended are lost.
func (s *Store) SettleRuns(ctx context.Context, node string, since time.Time) error {
	return s.count(ctx, func(tx *counting) error {
		_, err := tx.Exec(ctx, `UPDATE usage_tracks SET final = TRUE, lost = TRUE WHERE kind = ? AND NOT final AND to_at < ?
			AND vm_id IN (SELECT id FROM vms WHERE node = ?)`, trackRun, db.At(since), node)
		return err
	})
}
