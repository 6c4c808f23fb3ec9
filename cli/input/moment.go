// Package input parses values of flags: times and sizes.
package input

import (
	"errors"
	"time"
)

// Moment is a flag value that accepts a time, or a duration before now.
type Moment struct {
	At *time.Time // nil: the flag was not given
}

// String returns the time in RFC 3339, or "" if the flag was not given.
func (m *Moment) String() string {
	if m.At == nil {
		return ""
	}
	return m.At.Format(time.RFC3339)
}

// Set accepts RFC 3339, or a duration such as 2h, meaning that long ago.
func (m *Moment) Set(s string) error {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		d, durationErr := time.ParseDuration(s)
		if durationErr != nil {
			return errors.New(
				"must be a time such as 2026-01-31T08:00:00Z, or a span such as 2h, which means two hours ago",
			)
		}
		at = time.Now().Add(-d).UTC()
	}
	m.At = &at
	return nil
}

// Type returns the placeholder in the help.
func (m *Moment) Type() string { return "TIME" }
