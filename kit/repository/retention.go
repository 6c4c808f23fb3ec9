package repository

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Policy says which backups of one thing to keep. A policy of zeros keeps all.
type Policy struct {
	Last    int // the newest ones
	Daily   int // the newest of each of that many days that have one
	Weekly  int // of weeks, which begin on Monday (ISO 8601)
	Monthly int
	Days    int // all that are at most so many days old
}

// Dated is a backup as retention sees it.
type Dated struct {
	ID             ID
	Taken          time.Time
	ProtectedUntil time.Time
}

// Keepers returns the backups that stay, with the reasons. Days, weeks and months are those of a
// location. What is protected at the time now stays, and so does what was taken later than now: a
// wrong clock must not delete. The result depends on nothing else, and not on the order of all.
func Keepers(all []Dated, policy Policy, now time.Time, location *time.Location) map[ID][]string {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Dated) int { // newest first
		return cmp.Or(b.Taken.Compare(a.Taken), slices.Compare(a.ID[:], b.ID[:]))
	})
	keep := map[ID][]string{}
	because := func(id ID, format string, args ...any) { keep[id] = append(keep[id], fmt.Sprintf(format, args...)) }
	oldest := now.In(location).AddDate(0, 0, -policy.Days)
	for i, b := range sorted {
		switch {
		case policy == Policy{}:
			because(b.ID, "no policy")
		case b.Taken.After(now):
			because(b.ID, "taken in the future")
		}
		if b.ProtectedUntil.After(now) {
			because(b.ID, "protected until %s", b.ProtectedUntil.In(location).Format(time.DateTime))
		}
		if i < policy.Last {
			because(b.ID, "last %d", policy.Last)
		}
		if policy.Days > 0 && !b.Taken.Before(oldest) {
			because(b.ID, "within %d days", policy.Days)
		}
	}
	for _, rule := range []struct {
		name   string
		count  int
		period func(time.Time) string
	}{
		{"daily", policy.Daily, func(t time.Time) string { return t.Format(time.DateOnly) }},
		{"weekly", policy.Weekly, func(t time.Time) string {
			year, week := t.ISOWeek()
			return fmt.Sprintf("%d-W%02d", year, week)
		}},
		{"monthly", policy.Monthly, func(t time.Time) string { return t.Format("2006-01") }},
	} {
		previous, left := "", rule.count
		for _, b := range sorted {
			if left == 0 {
				break
			}
			if period := rule.period(b.Taken.In(location)); period != previous {
				because(b.ID, "%s of %s", rule.name, period)
				previous = period
				left--
			}
		}
	}
	return keep
}
