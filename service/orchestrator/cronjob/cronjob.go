// Package cronjob decides when a CronJob runs.
//
// # Invariants
//
//   - A run is made at most once for each time at which the schedule is due.
//   - After a time without the orchestrator, at most one run is made up for, however many were due.
//   - A decision takes the same time, however long ago the last run was.
package cronjob

import (
	"time"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// Grace is how late a run may begin and still count as in time.
const Grace = time.Minute

// Decision is what becomes of a CronJob at a moment.
type Decision struct {
	// Due is the time that the schedule was due at last, after the last one that was decided about; zero: it was not.
	Due time.Time
	// Run is whether a run is made for Due.
	Run bool
	// Replace is whether the run that is there is ended first.
	Replace bool
	// Why is why no run is made for Due; empty: one is.
	Why string
	// Next is when to decide again; zero: never.
	Next time.Time
}

// Decide returns what becomes of a CronJob now. decided is the last time that was decided about, or when the CronJob
// was made. running is whether a run of it is there.
func Decide(s *spec.Schedule, decided, now time.Time, running bool) (d Decision, err error) {
	if d.Next, err = s.Next(now); err != nil {
		return Decision{}, err
	}
	if d.Due, err = last(s, decided, now); err != nil || d.Due.IsZero() {
		return d, err
	}
	switch late := now.Sub(d.Due) > Grace; {
	case late && s.Missed == "skip":
		d.Why = "it was due while the orchestrator did not run"
	case running && s.Overlap == "forbid":
		d.Why = "the run before has not ended"
	default:
		d.Run, d.Replace = true, running && s.Overlap == "replace"
	}
	return d, nil
}

const day = 24 * time.Hour

// lookBack are spans in which a schedule is looked for, from now: the first that has one has not many more.
var lookBack = []time.Duration{
	2 * time.Minute, 2 * time.Hour, 2 * day, 40 * day, 400 * day, 5 * 366 * day,
}

// last returns the last time that a schedule was due, after one time and up to another; zero: it was not.
func last(s *spec.Schedule, after, to time.Time) (found time.Time, err error) {
	for _, span := range lookBack {
		from := to.Add(-span)
		whole := !from.After(after)
		if whole {
			from = after
		}
		for at := from; ; {
			if at, err = s.Next(at); err != nil {
				return time.Time{}, err
			}
			if at.IsZero() || at.After(to) {
				break
			}
			found = at
		}
		if whole || !found.IsZero() {
			return found, nil
		}
	}
	return time.Time{}, nil
}
