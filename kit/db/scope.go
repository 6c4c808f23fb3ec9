package db

import "slices"

// Scope is the part of a table that a caller may see: a condition, with its arguments. The zero
// Scope selects nothing, so that a caller of whom nothing is known sees nothing. Functions that read
// for callers ask for a Scope, so that it cannot be forgotten.
type Scope struct {
	condition string
	args      []any
}

// All is the scope of those who see every row.
func All() Scope { return Scope{condition: "1 = 1"} }

// Where is the scope of the rows that meet a condition, whose text must be the program's own.
func Where(condition string, args ...any) Scope {
	return Scope{condition: "(" + condition + ")", args: slices.Clone(args)}
}

// And narrows the scope to the rows that meet another condition, too.
func (s Scope) And(condition string, args ...any) Scope {
	own, ownArgs := s.SQL()
	return Scope{condition: own + " AND (" + condition + ")", args: append(ownArgs, args...)}
}

// SQL is the condition for a WHERE clause, and its arguments, which are the caller's to append to.
// It can be followed by AND; before OR it needs parentheses.
func (s Scope) SQL() (condition string, args []any) {
	if s.condition == "" {
		return "1 = 0", nil
	}
	return s.condition, slices.Clone(s.args)
}
