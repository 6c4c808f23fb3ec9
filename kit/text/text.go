// Package text says what text can be kept and shown, and which word was probably meant.
package text

import (
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
