package config_test

import (
	"math"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/config"
)

func TestBytesAreReadInEveryUnitAndRefusedOtherwise(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Bytes{
		"0": 0, "4096": 4096, "1B": 1, "10GiB": 10 << 30, "512MiB": 512 << 20, "512 mib": 512 << 20, "1kB": 1000, "2EB": 2e18,
		"7EiB": 7 << 60, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := config.ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "+1", "1.5GiB", "1 0", "10G", "10XiB", "8EiB", "9223372036854775808", "99999999999999999999", "1e3", " 1"} {
		if got, err := config.ParseBytes(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

func FuzzBytesThatAreReadAreWrittenAndReadAsTheSame(f *testing.F) {
	for _, seed := range []string{"0", "10GiB", "1025KiB", "7EiB", "9223372036854775807", "-1", "1.5 GB", "٣KiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := config.ParseBytes(s)
		if err != nil {
			return
		}
		if b < 0 {
			t.Fatalf("%q: %d is negative", s, b)
		}
		if again, err := config.ParseBytes(b.String()); err != nil || again != b {
			t.Fatalf("%q: %d is written as %s and read as %d, %v", s, b, b, again, err)
		}
	})
}
