package edge

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
)

// HistoryStep holds the counts of one step of a history.
type HistoryStep struct {
	At             db.Time `db:"minute"` // when the step begins
	Events         int64   `db:"events"` // zero in the history of a route
	Delivered      int64   `db:"delivered"`
	FailedAttempts int64   `db:"failed_attempts"`
	DeadLettered   int64   `db:"dead_lettered"`
}

// History returns the counts of the caller's fleet in the steps of a window, those in which nothing
// happened too. Steps are missing that ended before what is kept (keepMinutes), or before the control
// plane counted. A step that began before that has what is known of it.
func (s *Service) History(ctx context.Context, w series.Window) ([]HistoryStep, error) {
	began, err := s.historyBegan(ctx)
	if err != nil {
		return nil, err
	}
	steps, err := s.happened(ctx, w)
	return s.fill(w, steps, began), err
}

// RouteHistory is like History for the deliveries of one route, since it was made. It fails with
// NotFound if the caller does not see the route.
func (s *Service) RouteHistory(ctx context.Context, id string, w series.Window) ([]HistoryStep, error) {
	r, err := s.Route(ctx, id)
	if err != nil {
		return nil, err
	}
	began, err := s.historyBegan(ctx)
	if err != nil {
		return nil, err
	}
	if r.CreatedAt.After(began) {
		began = r.CreatedAt.Time
	}
	var steps []HistoryStep
	err = delivery.Minutes.Read(ctx, s.db, &steps, w, "route_id = ? AND minute >= ?", id, s.historyKept())
	return s.fill(w, steps, began), err
}

// happened returns the steps of a window in which anything happened in the caller's scope, in order
// of time.
func (s *Service) happened(ctx context.Context, w series.Window) ([]HistoryStep, error) {
	where, args := callerFrom(ctx).scope().And("minute >= ?", s.historyKept()).SQL()
	steps := []HistoryStep{}
	if err := delivery.OrgMinutes.Read(ctx, s.db, &steps, w, where, args...); err != nil {
		return nil, err
	}
	var accepted []struct {
		Minute db.Time `db:"minute"`
		Events int64   `db:"events"`
		Bytes  int64   `db:"bytes"`
	}
	if err := eventMinutes.Read(ctx, s.db, &accepted, w, where, args...); err != nil {
		return nil, err
	}
	for _, m := range accepted {
		at, found := slices.BinarySearchFunc(steps, m.Minute, func(step HistoryStep, at db.Time) int {
			return step.At.Compare(at.Time)
		})
		if !found {
			steps = slices.Insert(steps, at, HistoryStep{At: m.Minute})
		}
		steps[at].Events = m.Events
	}
	return steps, nil
}

// fill adds the steps of a window in which nothing happened. It leaves out those of which nothing is
// known.
func (s *Service) fill(w series.Window, steps []HistoryStep, began time.Time) []HistoryStep {
	kept := s.historyKept()
	filled := make([]HistoryStep, 0, w.Points())
	for at := w.From; at.Before(w.To); at = at.Add(w.Step) {
		step := HistoryStep{At: db.At(at)}
		if len(steps) > 0 && steps[0].At.Equal(at) {
			step, steps = steps[0], steps[1:]
		}
		end := at.Add(w.Step)
		if !end.Add(-time.Minute).Before(kept.Time) && end.After(began) { // its last minute is kept
			filled = append(filled, step)
		}
	}
	return filled
}

// historyKept returns the time before which nothing is shown, whether or not it is deleted yet.
func (s *Service) historyKept() db.Time { return db.At(s.now().Add(-keepMinutes)) }

const counterHistory = "history"

// beginHistory stores that minutes are counted from now on, unless they have been counted before.
func (s *Service) beginHistory(ctx context.Context) error {
	// A control plane with a full disk starts, so only the first start writes.
	if began, err := s.historyBegan(ctx); err != nil || began.UnixMicro() != 0 {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx, "UPDATE counters SET value = ? WHERE name = ? AND value = 0", db.At(s.now()), counterHistory,
		)
		return err
	})
}

// historyBegan returns since when all minutes are counted.
func (s *Service) historyBegan(ctx context.Context) (time.Time, error) {
	var began db.Time
	err := s.db.Get(ctx, &began, "SELECT value FROM counters WHERE name = ?", counterHistory)
	return began.Time, err
}
