package record

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// Maintenance is whether jobs are started.
type Maintenance struct {
	Paused  bool    `db:"paused"`
	Since   db.Time `db:"since"` // when that was changed; zero: never
	Actor   string  `db:"actor"` // who changed it
	Queued  int64   `db:"-"`     // jobs that wait, in the caller's scope
	Running int64   `db:"-"`
}

// Maintenance returns whether jobs are started.
func (s *Store) Maintenance(ctx context.Context) (m Maintenance, err error) {
	if err := s.db.Get(ctx, &m, "SELECT paused, since, actor FROM maintenance"); err != nil && !errors.Is(err, db.ErrNoRows) {
		return m, err
	}
	condition, args := caller.From(ctx).Scope().SQL()
	for state, into := range map[jobs.State]*int64{jobs.Available: &m.Queued, jobs.Running: &m.Running} {
		if err := s.db.Get(ctx, into, "SELECT COUNT(*) FROM jobs j JOIN operations o ON o.id = j.id WHERE j.state = ? AND "+
			condition, append([]any{state}, args...)...); err != nil {
			return m, err
		}
	}
	return m, nil
}

// SetMaintenance stores whether jobs are started, and calls pause, which has it be so, in the same transaction.
func (s *Store) SetMaintenance(ctx context.Context, paused bool, pause func(tx *db.Tx) error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO maintenance (id, paused, since, actor) VALUES (1, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET since = CASE WHEN maintenance.paused = excluded.paused THEN maintenance.since
			ELSE excluded.since END, actor = CASE WHEN maintenance.paused = excluded.paused THEN maintenance.actor
			ELSE excluded.actor END, paused = excluded.paused`,
			paused, db.At(s.now()), caller.From(ctx).Name); err != nil {
			return err
		}
		if err := pause(tx); err != nil {
			return err
		}
		message := "jobs are started again"
		if paused {
			message = "no more jobs are started"
		}
		return s.note(ctx, tx, audit.Entry{Action: "maintenance.set", Message: message})
	})
}
