package input_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/cli/input"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"1": 1, "512": 512, "3K": 3 << 10, "2MiB": 2 << 20, "1GiB": 1 << 30, "10gb": 10 << 30, "1T": 1 << 40,
		"0": 0, "-1": 0, "1.5G": 0, "1P": 0, "1 GiB": 0, "GiB": 0, "9000000T": 0,
	} {
		size := input.Bytes()
		if err := size.Set(text); size.Count != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v", text, size.Count, err)
		}
	}
	memory := input.MiB()
	if err := memory.Set("512K"); err == nil || memory.Count != 0 {
		t.Errorf("half a MiB is %d MiB", memory.Count)
	}
}
