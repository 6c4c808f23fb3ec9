// Package quota is the rule of limits on what somebody has in all: who has so much and asks for so
// much more may have at most so much.
//
// # Invariants
//
//   - Everything is a function of plain values. Whoever checks a limit holds the lock under which
//     what there is is counted until what was asked for counts too, or two requests would pass the
//     limit together.
//   - Who has more than the limit, as after it was lowered, gets nothing more, and keeps what there
//     is.
//   - No number overflows, whatever is asked for.
//
// It imports fault.
package quota

import "github.com/mainstay-infra/mainstay/kit/fault"

// Limit is a limit on one thing, and what there is of that.
type Limit struct {
	// Name of the limit, as settings call it, for example "policy.max_vcpus".
	Name string
	// Unit is what is counted, in words, for example "MiB of memory".
	Unit string
	// Has is what there is, at least 0.
	Has int64
	// Most is how much there may be; 0 or less: there is no limit.
	Most int64
}

// Left is how much more there may be. It is not limited if there is no limit.
func (l Limit) Left() (n int64, limited bool) {
	if l.Most <= 0 {
		return 0, false
	}
	return max(l.Most-max(l.Has, 0), 0), true
}

// Allows says whether asked more may be had.
func (l Limit) Allows(asked int64) bool {
	return l.Most <= 0 || max(asked, 0) <= l.Most-max(l.Has, 0)
}

// Demand is what a request would take of a limit.
type Demand struct {
	Limit
	Asked int64
}

// Exceeded is the first demand that its limit does not allow, nil if all do.
func Exceeded(demands ...Demand) *Demand {
	for i := range demands {
		if d := &demands[i]; !d.Allows(d.Asked) {
			return d
		}
	}
	return nil
}

// Refusal is the fault for a demand of who that exceeds its limit: of kind Invalid, with the limit's
// name.
func (d *Demand) Refusal(who string) *fault.Error {
	return fault.New(
		fault.Invalid, "%s has %d %s and asks for %d more; it may have %d in all; the limit is %s",
		who, d.Has, d.Unit, d.Asked, d.Most, d.Name,
	).WithLimit(d.Name)
}
