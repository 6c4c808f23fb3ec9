package db

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"
)

// Time is a point in time as both engines store it: BIGINT, microseconds since 1970 in UTC. The
// zero time is stored as NULL.
type Time struct{ time.Time }

// At wraps t, in UTC and truncated to microseconds.
func At(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.UTC().Truncate(time.Microsecond)}
}

// RFC 3339 cannot represent times outside the years 1 to 9999 in UTC, so neither can JSON.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
)

// Value implements driver.Valuer. It refuses times outside the years 1 to 9999 in UTC; callers
// check their input first (text.CheckTime).
func (t Time) Value() (driver.Value, error) {
	if t.IsZero() {
		return nil, nil
	}
	if t.Before(earliest) || t.After(latest) {
		return nil, fmt.Errorf("db.Time: %d s since 1970 is outside of the years 1 to 9999", t.Unix())
	}
	return t.UnixMicro(), nil
}

// Scan implements sql.Scanner. A stored time outside the years 1 to 9999, which older versions
// accepted, becomes the nearest one inside, so that it can be shown.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		t.Time = time.Time{}
	case int64:
		t.Time = time.UnixMicro(min(max(v, earliest.UnixMicro()), latest.UnixMicro())).UTC()
	default:
		return fmt.Errorf("db.Time: cannot scan %T", src)
	}
	return nil
}

// Ptr returns nil for the zero time, for nullable JSON fields.
func (t Time) Ptr() *time.Time {
	if t.IsZero() {
		return nil
	}
	c := t.Time
	return &c
}

// JSON stores V as JSON in a TEXT column. NULL and the empty text leave V zero.
type JSON[T any] struct{ V T }

// Value implements driver.Valuer.
func (j JSON[T]) Value() (driver.Value, error) {
	b, err := json.Marshal(j.V)
	return string(b), err
}

// Scan implements sql.Scanner.
func (j *JSON[T]) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		return nil
	case string:
		if v == "" {
			return nil
		}
		return json.Unmarshal([]byte(v), &j.V)
	case []byte:
		return json.Unmarshal(v, &j.V)
	}
	return fmt.Errorf("db.JSON: cannot scan %T", src)
}
