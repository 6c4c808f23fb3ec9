// Package topic checks the topics of events and routes.
package topic

import (
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// MaxLength is the longest topic or topic pattern, in bytes.
const MaxLength = 256

// Check returns an error if s cannot be a topic or a pattern: if it is empty, longer than
// MaxLength, not UTF-8 or contains control characters. field is the name of the field in the error.
func Check(field, s string) error {
	if s == "" {
		return fault.InvalidField(field, "is required")
	}
	if len(s) > MaxLength {
		return fault.InvalidField(field, "is longer than %d bytes", MaxLength)
	}
	return text.CheckID(field, s)
}
