package input

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// Size is a flag value for a size: a number of units, or a number with its own unit, which must be
// a whole multiple of the flag's unit.
type Size struct {
	Count int   // how many units
	Unit  int64 // in bytes
	name  string
}

// MiB returns a Size in MiB.
func MiB() Size { return Size{Unit: mib, name: "MiB"} }

// GiB returns a Size in GiB.
func GiB() Size { return Size{Unit: gib, name: "GiB"} }

// Bytes returns a Size in bytes.
func Bytes() Size { return Size{Unit: 1, name: "bytes"} }

// String, Set and Type make a Size a flag's value.
func (s *Size) String() string {
	if s.Count == 0 {
		return ""
	}
	return strconv.Itoa(s.Count)
}

// Set parses, for example, 512, 512M, 512MiB or 2G.
func (s *Size) Set(text string) error {
	digits := strings.TrimRight(text, "KMGTiBkmgtb")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("must be a size such as 512M or 20G; a number alone counts %s", s.name)
	}
	unit := s.Unit
	if suffix := text[len(digits):]; suffix != "" {
		var known bool
		unit, known = map[string]int64{"K": kib, "M": mib, "G": gib, "T": tib}[strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(suffix), "B"), "I")]
		if !known {
			return fmt.Errorf("has the unknown unit %q; there are K, M, G and T", suffix)
		}
	}
	if n > math.MaxInt64/unit || n*unit%s.Unit != 0 || n*unit/s.Unit > math.MaxInt {
		return fmt.Errorf("must be a whole number of %s", s.name)
	}
	s.Count = int(n * unit / s.Unit)
	return nil
}

// Type returns the placeholder in the help.
func (s *Size) Type() string { return "SIZE" }
