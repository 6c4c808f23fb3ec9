package transfer

import "testing"

func FuzzRangeStart(f *testing.F) {
	for _, seed := range []string{"bytes 0-1/2", "bytes 5-/9", "bytes */5", "bytes -1-2", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if start, ok := rangeStart(header); ok && start < 0 {
			t.Errorf("%d", start)
		}
	})
}
