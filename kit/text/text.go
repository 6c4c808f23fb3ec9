// Package text says what text can be kept and shown, and which word was probably meant.
package text

import (
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Check refuses text that is not UTF-8 or holds control characters, which neither
// a terminal nor PostgreSQL would take. field names it in the fault.
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

// CheckID is Check for what tells one thing from another. It refuses U+FFFD, too, which stands for what
// could not be read, such as half of a surrogate pair in JSON: two ids would become one.
func CheckID(field, s string) error {
	if err := Check(field, s); err != nil {
		return err
	}
	if strings.ContainsRune(s, utf8.RuneError) {
		return fault.InvalidField(field, "holds U+FFFD, which stands for text that could not be read")
	}
	return nil
}

// NotATime is what is wrong with text that should be a point in time and is not.
var NotATime = errors.New("is not a time as RFC 3339 has it, for example 2006-01-02T15:04:05Z")

var errTimeRange = errors.New("is outside of the years 1 to 9999 in UTC")

// CheckTime refuses a time outside of the years 1 to 9999 in UTC, which RFC 3339 and so JSON cannot
// express. "9999-12-31T23:59:59-01:00" is such a time: in UTC its year is 10000. field names it in
// the fault; with an empty one, the error is plain.
func CheckTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y >= 1 && y <= 9999 {
		return nil
	}
	if field == "" {
		return errTimeRange
	}
	return fault.InvalidField(field, "%v", errTimeRange)
}
