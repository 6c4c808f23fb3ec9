// Package text validates text for storage and display, and finds the word that was probably meant.
package text

import (
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Check returns a fault if s is not UTF-8 or contains control characters, which terminals and
// PostgreSQL do not accept. The fault names field.
func Check(field, s string) error {
	if !utf8.ValidString(s) {
		return fault.InvalidField(field, "is not valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fault.InvalidField(field, "holds the control character %U", r)
		}
	}
	return nil
}

// CheckID is Check for identifiers. It also refuses U+FFFD, which replaces unreadable text, such as
// half of a surrogate pair in JSON, so that two ids could become one.
func CheckID(field, s string) error {
	if err := Check(field, s); err != nil {
		return err
	}
	if strings.ContainsRune(s, utf8.RuneError) {
		return fault.InvalidField(field, "holds U+FFFD, which stands for text that could not be read")
	}
	return nil
}

// NotATime is the error for text that is not a valid time.
var NotATime = errors.New("is not a time as RFC 3339 has it, for example 2006-01-02T15:04:05Z")

var errTimeRange = errors.New("is outside of the years 1 to 9999 in UTC")

// CheckTime returns a fault if t is outside the years 1 to 9999 in UTC, which RFC 3339 and
// therefore JSON cannot express. An example is "9999-12-31T23:59:59-01:00": in UTC its year is
// 10000. The fault names field; if field is empty, it returns a plain error.
func CheckTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y >= 1 && y <= 9999 {
		return nil
	}
	if field == "" {
		return errTimeRange
	}
	return fault.InvalidField(field, "%v", errTimeRange)
}
