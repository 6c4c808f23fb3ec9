package db

import "slices"

// Scope is the part of a table that a caller may see: a condition with its arguments. The zero
// Scope selects nothing, so an unidentified caller sees nothing. Functions that read on behalf of
// callers take a Scope, so that it cannot be forgotten.
type Scope struct {
	condition string
	args      []any
}

// All returns the scope of every row.
func All() Scope { return Scope{condition: "1 = 1"} }

// Where returns the scope of the rows that meet a condition. The condition must be a constant of
// the program, never input.
func Where(condition string, args ...any) Scope {
	return Scope{condition: "(" + condition + ")", args: slices.Clone(args)}
}

// And narrows the scope to rows that also meet another condition.
func (s Scope) And(condition string, args ...any) Scope {
	own, ownArgs := s.SQL()
	return Scope{condition: own + " AND (" + condition + ")", args: append(ownArgs, args...)}
}

// SQL returns the condition for a WHERE clause and its arguments, which the caller may append to.
// The condition may be followed by AND; before OR it needs parentheses.
func (s Scope) SQL() (condition string, args []any) {
	if s.condition == "" {
		return "1 = 0", nil
	}
	return s.condition, slices.Clone(s.args)
}
