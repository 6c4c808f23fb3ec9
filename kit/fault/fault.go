package fault

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Error is a failure with a kind, a public message and a private cause.
// Create one with New or Wrap. The With methods return a changed copy, so a package-level Error can
// serve as a template.
type Error struct {
	// Kind decides the status that a caller sees.
	Kind Kind
	// Code is a stable word for programs, for example "site_revoked". Empty
	// means the kind's own code (Kind.Code).
	Code string
	// Message is shown to callers. It names the field or object concerned and,
	// where there is one, the remedy. It never holds secrets.
	Message string
	// Field names the offending part of the input, for example "labels.zone".
	Field string
	// Limit names the setting or quota that the input exceeds, for example "policy.max_vcpus". It
	// is empty if the fault is not about a limit.
	Limit string
	// RetryAfter, when positive, tells the caller how long to wait.
	RetryAfter time.Duration

	cause error
}

// New returns a fault whose public message is formatted from format and args.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns a fault that keeps cause for the log and shows only the formatted
// message to the caller.
func Wrap(kind Kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), cause: cause}
}

// InvalidField returns a fault of kind Invalid for a wrong value in the input. The message begins
// with the field's name.
func InvalidField(field, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// WithCode returns a copy that carries a more specific code than its kind.
func (e *Error) WithCode(code string) *Error {
	c := *e
	c.Code = code
	return &c
}

// WithField returns a copy that names the field of the input that is in the way.
func (e *Error) WithField(field string) *Error {
	c := *e
	c.Field = field
	return &c
}

// WithLimit returns a copy that names the setting or quota that was exceeded.
func (e *Error) WithLimit(limit string) *Error {
	c := *e
	c.Limit = limit
	return &c
}

// WithRetryAfter returns a copy that tells the caller when to try again.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// Error returns the message and the cause, for logs and Go callers.
func (e *Error) Error() string {
	if e.cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.cause.Error()
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// PublicCode returns the code that a caller sees: Code if set, otherwise the kind's code.
func (e *Error) PublicCode() string {
	if e.Code != "" {
		return e.Code
	}
	return e.Kind.Code()
}

// From returns the fault in err's chain. An error without one becomes an Internal fault with err as
// its private cause, or a StorageFailed fault if a disk or quota is full. From returns nil for nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return Wrap(StorageFailed, err, "the storage is full")
	}
	return Wrap(Internal, err, "internal error")
}

// KindOf returns the kind of the fault in err's chain, or Internal if there is none. err must not
// be nil.
func KindOf(err error) Kind { return From(err).Kind }

// Is reports whether err is non-nil and its fault is of the given kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }
