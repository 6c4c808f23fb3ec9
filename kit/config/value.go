package config

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// kind defines how values of one Go type are parsed and compared.
type kind struct {
	name  string // as shown to users
	parse func(string) (any, error)
	// less is nil for types without an order.
	less func(a, b any) bool
}

func less[T ~int | ~int64 | ~float64](a, b any) bool { return a.(T) < b.(T) }

// kindOf returns false for types that cannot be settings. The errors of parse complete a sentence
// that begins with the value, and do not repeat it, since it may be a secret.
func kindOf(t reflect.Type) (kind, bool) {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return kind{"duration", parseDuration, less[time.Duration]}, true
	case reflect.TypeFor[Bytes]():
		return kind{"bytes", func(s string) (any, error) { return ParseBytes(s) }, less[Bytes]}, true
	case reflect.TypeFor[string]():
		return kind{"string", func(s string) (any, error) { return s, nil }, nil}, true
	case reflect.TypeFor[[]string]():
		return kind{"list", func(s string) (any, error) { return splitList(s), nil }, nil}, true
	case reflect.TypeFor[bool]():
		return kind{"bool", parseBool, nil}, true
	case reflect.TypeFor[int]():
		return kind{"int", func(s string) (any, error) {
			n, err := parseInt(s, strconv.IntSize)
			return int(n), err
		}, less[int]}, true
	case reflect.TypeFor[int64]():
		return kind{"int", func(s string) (any, error) { return parseInt(s, 64) }, less[int64]}, true
	case reflect.TypeFor[float64]():
		return kind{"float", parseFloat, less[float64]}, true
	}
	return kind{}, false
}

func parseDuration(s string) (any, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return d, errors.New("is not a duration (for example 500ms, 30s or 1h30m)")
	}
	return d, nil
}

func parseBool(s string) (any, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return b, errors.New("is neither true nor false")
	}
	return b, nil
}

func parseInt(s string, bits int) (int64, error) {
	n, err := strconv.ParseInt(s, 10, bits)
	if errors.Is(err, strconv.ErrRange) {
		return n, errors.New("is too large a number")
	}
	if err != nil {
		return n, errors.New("is not a whole number")
	}
	return n, nil
}

func parseFloat(s string) (any, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return f, errors.New("is not a number")
	}
	return f, nil
}

// splitList splits s at commas, trims the items and drops empty ones.
func splitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
