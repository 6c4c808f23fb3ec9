// Package topic matches topics, image names and the like against patterns in
// which * stands for any run of characters, the empty run included. Everything
// else stands for itself; there is no way to escape a star.
package topic

import (
	"unicode"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// MaxLength is the longest topic or topic pattern, in bytes.
const MaxLength = 256

// Match reports whether s fits pattern. It takes at most len(pattern)*len(s)
// steps and no memory, whatever the pattern.
func Match(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // the last star, and where in s its run ends so far
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0: // let the last star take one more
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

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
