package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Event is something that happened to a VM.
type Event struct {
	VM      string  `db:"vm_id"`
	Seq     int64   `db:"seq"`
	At      db.Time `db:"at"`
	Kind    string  `db:"kind"`
	Message string  `db:"message"`
	Actor   string  `db:"actor"` // who caused it; empty: nobody
}

// maxEvents is the number of events that are kept per VM.
const maxEvents = 1000

// Kinds of events.
const (
	EventState    = "state"
	EventConfig   = "config"
	EventSnapshot = "snapshot"
	EventBackup   = "backup"
)

// tell inserts an event of a VM. The caller must save the VM's row afterwards.
func (s *Store) tell(ctx context.Context, tx *db.Tx, r *VM, kind, message string) error {
	r.Events++
	const longest = 2000
	if len(message) > longest {
		message = message[:longest] + "…"
	}
	event := Event{
		VM: r.ID, Seq: r.Events, At: db.At(s.now()), Kind: kind, Message: message, Actor: caller.From(ctx).Person(),
	}
	if err := tx.Insert(ctx, "events", event); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM events WHERE vm_id = ? AND seq <= ?", r.ID, r.Events-maxEvents)
	return err
}

// Events lists the events of a VM, newest first, starting before an event's number; 0: from the
// newest. The caller has read the VM.
func (s *Store) Events(ctx context.Context, id string, before int64, limit int) ([]Event, error) {
	if before == 0 {
		before = 1 << 62
	}
	var events []Event
	err := s.db.Select(ctx, &events, "SELECT * FROM events WHERE vm_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
		id, before, limit)
	return events, err
}

// EventsAfter lists the events of a VM above an event's number, oldest first. The caller has read the
// VM.
func (s *Store) EventsAfter(ctx context.Context, id string, after int64, limit int) ([]Event, error) {
	var events []Event
	err := s.db.Select(ctx, &events, "SELECT * FROM events WHERE vm_id = ? AND seq > ? ORDER BY seq LIMIT ?", id, after, limit)
	return events, err
}
