// Package topic says what can be a topic.
package topic

import (
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
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
	return text.CheckID(field, s)
}
