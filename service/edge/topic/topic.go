// Package topic says what can be a topic, and what text can be kept and shown.
package topic

import (
	"unicode"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// MaxLength is the longest topic or topic pattern, in bytes.
const MaxLength = 256

// Check refuses what cannot be a topic or a pattern: empty or over-long text,
// text that is not UTF-8, and control characters. field names it in the fault.
func Check(field, s string) error {
	if s == "" {
		return fault.InvalidField(field, "is required")
	}
	if len(s) > MaxLength {
		return fault.InvalidField(field, "is longer than %d bytes", MaxLength)
	}
	return CheckText(field, s)
}

// CheckText refuses text that is not UTF-8 or holds control characters, which
// neither a terminal nor PostgreSQL would take.
func CheckText(field, s string) error {
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
