package exit

import (
	"errors"
	"fmt"
)

// The exit codes, as the root command's help documents them.
const (
	OK       = 0
	Failure  = 1 // any error without a specific code
	Usage    = 2 // the command line is wrong
	NotFound = 3 // the object does not exist, or is outside the caller's scope
	Denied   = 4 // no valid credentials, or they do not permit this
	// Unavailable means that the server cannot be reached, or cannot answer now. The same command may
	// succeed later.
	Unavailable = 5
)

// Error is an error with an exit code and a hint.
type Error struct {
	Code int
	Hint string // what to do next; may be empty
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Hinted adds a hint to err and keeps its code.
func Hinted(err error, hint string) error {
	return &Error{Code: Code(err), Hint: hint, Err: err}
}

// Code returns the exit code for err.
func Code(err error) int {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Failure
}

// Hint returns the hint of err, or "" if it has none.
func Hint(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
