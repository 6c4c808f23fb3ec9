package netpolicy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// reader reads a JSON document whose every part must be known. It keeps the first error, after which it
// returns zero values.
type reader struct{ err error }

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = fault.InvalidField(path, format, args...)
	}
}

// object returns an object, which may have the given fields only.
func (r *reader) object(path string, value any, fields ...string) map[string]any {
	o, ok := value.(map[string]any)
	if !ok {
		r.fail(path, "must be an object")
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(fields, name) {
			r.fail(strings.TrimPrefix(path+"."+printable(name), "."), "not supported")
		}
	}
	return o
}

// list returns a list of at most limit elements. An absent one is nil, one without elements is not.
func (r *reader) list(path string, value any, limit int) []any {
	if value == nil {
		return nil
	}
	l, ok := value.([]any)
	if !ok {
		r.fail(path, "must be a list")
		return nil
	}
	if len(l) > limit {
		r.fail(path, "has %d elements; at most %d are taken", len(l), limit)
		return nil
	}
	return l
}

const maxText = 1024

// text returns a text, or "" if it is absent.
func (r *reader) text(path string, value any) string {
	if value == nil {
		return ""
	}
	s, ok := value.(string)
	switch {
	case !ok:
		r.fail(path, "must be a text")
		return ""
	case len(s) > maxText || strings.ContainsFunc(s, unicode.IsControl):
		r.fail(path, "must have at most %d bytes and no control characters", maxText)
		return ""
	}
	return s
}

// integer returns a whole number from lowest to highest.
func (r *reader) integer(path string, value any, lowest, highest int) int {
	n, ok := value.(float64)
	if !ok || n != math.Trunc(n) || n < float64(lowest) || n > float64(highest) {
		r.fail(path, "must be a whole number from %d to %d", lowest, highest)
		return 0
	}
	return int(n)
}

// boolean returns a boolean, or nil if it is absent.
func (r *reader) boolean(path string, value any) *bool {
	if value == nil {
		return nil
	}
	b, ok := value.(bool)
	if !ok {
		r.fail(path, "must be true or false")
	}
	return &b
}

// texts returns a list of texts.
func (r *reader) texts(path string, value any, limit int) (out []string) {
	for i, v := range r.list(path, value, limit) {
		out = append(out, r.text(at(path, i), v))
	}
	return out
}

// pairs returns an object of texts.
func (r *reader) pairs(path string, value any, limit int) map[string]string {
	if value == nil {
		return nil
	}
	o, ok := value.(map[string]any)
	if !ok || len(o) > limit {
		r.fail(path, "must be an object with at most %d fields", limit)
		return nil
	}
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		s, ok := o[key].(string)
		if !ok {
			r.fail(path+"."+printable(key), "must be a text")
		}
		out[key] = r.text(path+"."+printable(key), s)
	}
	return out
}

// printable returns a name from a document so that it can be part of a message.
func printable(name string) string {
	const longest = 64
	if name == "" || len(name) > longest || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Sprintf("%.64q", name)
	}
	return name
}
