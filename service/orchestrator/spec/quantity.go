package spec

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// CPU is an amount of processors, in thousandths.
type CPU int64

// Bytes is an amount of memory or disk.
type Bytes int64

// Duration is a time.Duration that is written as one.
type Duration time.Duration

// maxCPU is more than a machine has: a million processors.
const maxCPU CPU = 1e9

var (
	wholeCPU  = regexp.MustCompile(`^([0-9]{1,7})(\.[0-9]{1,3})?$`)
	milliCPU  = regexp.MustCompile(`^([0-9]{1,9})m$`)
	bytesForm = regexp.MustCompile(`^([0-9]{1,15})(\.[0-9]{1,3})?(k|K|M|G|T|Ki|Mi|Gi|Ti)?$`)
	units     = map[string]float64{
		"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	}
)

// ParseCPU reads an amount of processors, such as 500m, 2 or 0.5.
func ParseCPU(text string) (CPU, error) {
	var c CPU
	if m := milliCPU.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return 0, err
		}
		c = CPU(n)
	} else if wholeCPU.MatchString(text) {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		c = CPU(math.Round(f * 1000))
	} else {
		return 0, fmt.Errorf("must be an amount of processors, as 500m or 2, not %s", document.Quoted(text))
	}
	switch {
	case c == 0:
		return 0, errors.New("must be more than 0; omit it to set nothing")
	case c > maxCPU:
		return 0, errors.New("must be at most 1000000")
	}
	return c, nil
}

// ParseBytes reads an amount of memory or disk, such as 512Mi, 1.5G or 1048576.
func ParseBytes(text string) (Bytes, error) {
	m := bytesForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("must be an amount of bytes, as 512Mi or 2G, not %s", document.Quoted(text))
	}
	f, err := strconv.ParseFloat(m[1]+m[2], 64)
	if err != nil {
		return 0, err
	}
	switch f *= units[m[3]]; {
	case f < 1:
		return 0, errors.New("must be more than 0; omit it to set nothing")
	case f > 1<<60:
		return 0, errors.New("must be at most 1048576Ti")
	}
	return Bytes(math.Ceil(f)), nil
}

// String returns the amount as Kubernetes writes it, which ParseCPU reads.
func (c CPU) String() string {
	if c%1000 == 0 {
		return strconv.FormatInt(int64(c/1000), 10)
	}
	return strconv.FormatInt(int64(c), 10) + "m"
}

// String returns the amount in the largest unit in which it is whole, which ParseBytes reads.
func (b Bytes) String() string {
	for _, unit := range []string{"Ti", "Gi", "Mi", "Ki"} {
		if size := Bytes(units[unit]); b >= size && b%size == 0 {
			return strconv.FormatInt(int64(b/size), 10) + unit
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalText returns String.
func (c CPU) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// MarshalText returns String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// MarshalText returns the duration as time.ParseDuration reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalText reads what MarshalText returns.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = parseDuration(string(text))
	return err
}

func parseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("must be a duration, as in 500ms or 2s, not %s", document.Quoted(text))
	}
	return Duration(d), nil
}

// UnmarshalText reads what MarshalText returns.
func (c *CPU) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCPU(string(text))
	return err
}

// UnmarshalText reads what MarshalText returns.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}
