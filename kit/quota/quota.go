// Package quota checks limits on totals: how much an owner has, how much more is requested, and how
// much it may have in total.
//
// # Invariants
//
//   - Everything is a function of plain values. The caller must hold the lock under which the
//     current amount is counted until the requested amount counts too. Otherwise, two concurrent
//     requests could exceed the limit together.
//   - An owner above the limit, for example after it was lowered, gets nothing more and keeps what
//     it has.
//   - Numbers never overflow, whatever is requested.
//
// It imports fault.
package quota

import "github.com/mainstay-infra/mainstay/kit/fault"

// Limit is a limit on one resource, and the current amount of it.
type Limit struct {
	// Name is the limit's name in the settings, for example "policy.max_vcpus".
	Name string
	// Unit is the counted unit in words, for example "MiB of memory".
	Unit string
	// Has is the current amount, at least 0.
	Has int64
	// Most is the maximum amount; 0 or less means no limit.
	Most int64
}

// Left returns how much more is allowed. limited is false if there is no limit.
func (l Limit) Left() (n int64, limited bool) {
	if l.Most <= 0 {
		return 0, false
	}
	return max(l.Most-max(l.Has, 0), 0), true
}

// Allows reports whether asked more is allowed.
func (l Limit) Allows(asked int64) bool {
	return l.Most <= 0 || max(asked, 0) <= l.Most-max(l.Has, 0)
}

// Demand is the amount of a resource that a request asks for.
type Demand struct {
	Limit
	Asked int64
}

// Exceeded returns the first demand that exceeds its limit, or nil if none does.
func Exceeded(demands ...Demand) *Demand {
	for i := range demands {
		if d := &demands[i]; !d.Allows(d.Asked) {
			return d
		}
	}
	return nil
}

// Refusal returns the fault for a demand of who that exceeds its limit: of kind Invalid, with the
// limit's name.
func (d *Demand) Refusal(who string) *fault.Error {
	return fault.New(
		fault.Invalid, "%s has %d %s and asks for %d more; it may have %d in all; the limit is %s",
		who, d.Has, d.Unit, d.Asked, d.Most, d.Name,
	).WithLimit(d.Name)
}
