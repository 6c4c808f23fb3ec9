package auth

import (
	"maps"
	"slices"
)

// Access is the authorization table of a service. It defines which callers each access class of the
// contract (x-access) admits. C is the service's caller type.
//
// Most classes form a ladder, for example viewer, operator, admin: a caller on one rung is admitted
// to its own class and to the classes below. The others, such as those of agents, of other nodes or
// of signed requests, are predicates beside the ladder.
type Access[C any] struct {
	ladder []string // the lowest first
	rung   func(C) string
	beside map[string]func(C) bool
}

// NewAccess returns a table. ladder lists the rungs, the lowest first. rung returns the rung of a
// caller, or "" if it has none. beside holds the other classes. NewAccess panics if a class is
// given twice, which is a defect of the service.
func NewAccess[C any](ladder []string, rung func(C) string, beside map[string]func(C) bool) *Access[C] {
	a := &Access[C]{ladder: ladder, rung: rung, beside: beside}
	classes := a.Classes()
	if len(slices.Compact(classes)) != len(ladder)+len(beside) {
		panic("auth: an access class is given twice")
	}
	return a
}

// Classes returns all classes of the table in alphabetical order.
func (a *Access[C]) Classes() []string {
	return slices.Sorted(slices.Values(slices.Concat(a.ladder, slices.Collect(maps.Keys(a.beside)))))
}

// Admits reports whether a class admits a caller. An unknown class admits no caller, and a class of
// the ladder admits no caller without a rung on it.
func (a *Access[C]) Admits(class string, caller C) bool {
	if admits, ok := a.beside[class]; ok {
		return admits(caller)
	}
	least := slices.Index(a.ladder, class)
	return least >= 0 && slices.Index(a.ladder, a.rung(caller)) >= least
}
