package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes, never negative. Its text is a whole number with an
// optional unit: B, KiB, MiB, GiB, TiB, PiB, EiB (powers of 1024) or kB, MB, GB,
// TB, PB, EB (powers of 1000), in any case, for example "512MiB".
type Bytes int64

type unit struct {
	name string
	size int64
}

// units returns the binary units first, in ascending order, which String relies on.
func units() []unit {
	return []unit{
		{"B", 1},
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50}, {"EiB", 1 << 60},
		{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}, {"EB", 1e18},
	}
}

// ParseBytes parses all forms of Bytes, including the output of String. Its error does not repeat
// s.
func ParseBytes(s string) (Bytes, error) {
	digits := strings.TrimRightFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	suffix := strings.TrimSpace(s[len(digits):])
	size := int64(0)
	if suffix == "" {
		size = 1
	}
	for _, u := range units() {
		if strings.EqualFold(suffix, u.name) {
			size = u.size
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63) // no sign, no space, no fraction
	if size == 0 || err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("is not a size in whole bytes (for example 4096, 512MiB or 10GiB)")
	}
	if err != nil || n > uint64(math.MaxInt64/size) { //nolint:gosec // size is positive
		return 0, errors.New("is a size beyond 8 EiB")
	}
	return Bytes(int64(n) * size), nil //nolint:gosec // n has 63 bits
}

// String returns the exact size in the largest binary unit that divides it.
func (b Bytes) String() string {
	best := unit{"", 1}
	for _, u := range units()[1:7] {
		if b != 0 && int64(b)%u.size == 0 {
			best = u
		}
	}
	return strconv.FormatInt(int64(b)/best.size, 10) + best.name
}
