package auth

import (
	"maps"
	"slices"
)

// Access is the authorization table of a service: which access class of the contract
// (x-access) admits which callers. C is the service's caller.
//
// Most classes are rungs of a ladder, for example viewer, operator, admin: a caller on one
// of them is admitted to its own class and to those below. The others, such as those of
// agents, of other nodes or of signed requests, are predicates beside the ladder.
type Access[C any] struct {
	ladder []string // from the least
	rung   func(C) string
	beside map[string]func(C) bool
}

// NewAccess makes a table. ladder names the rungs from the least. rung says on which one a
// caller stands, and "" for one who stands on none. beside are the other classes. A class
// that is given twice is a defect of the service, and panics.
func NewAccess[C any](ladder []string, rung func(C) string, beside map[string]func(C) bool) *Access[C] {
	a := &Access[C]{ladder: ladder, rung: rung, beside: beside}
	classes := a.Classes()
	if len(slices.Compact(classes)) != len(ladder)+len(beside) {
		panic("auth: an access class is given twice")
	}
	return a
}

// Classes are all classes of the table, in alphabetical order.
func (a *Access[C]) Classes() []string {
	return slices.Sorted(slices.Values(slices.Concat(a.ladder, slices.Collect(maps.Keys(a.beside)))))
}

// Admits reports whether a class admits a caller. A class that is not in the table admits
// nobody, and so does the ladder for a caller whose rung is not on it.
func (a *Access[C]) Admits(class string, caller C) bool {
	if admits, ok := a.beside[class]; ok {
		return admits(caller)
	}
	least := slices.Index(a.ladder, class)
	return least >= 0 && slices.Index(a.ladder, a.rung(caller)) >= least
}
