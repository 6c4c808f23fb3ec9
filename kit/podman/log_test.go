package podman

import (
	"bytes"
	"strings"
	"testing"
)

func TestALogIsTakenApartAndBounded(t *testing.T) {
	t.Parallel()
	frame := func(text string) string {
		return string([]byte{1, 0, 0, 0, 0, 0, byte(len(text) >> 8), byte(len(text))}) + text
	}
	if got, err := readLog(strings.NewReader(frame("one\n") + frame("two\n"))); err != nil || got != "one\ntwo\n" {
		t.Errorf("%q, %v", got, err)
	}
	long := strings.Repeat(frame(strings.Repeat("x", 60000)), 5)
	if got, err := readLog(strings.NewReader(long)); err != nil || len(got) != maxLog {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := readLog(strings.NewReader(frame("cut off")[:11])); err == nil {
		t.Error("a cut frame is not an error")
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 1, 'a'})
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'a'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, _ := readLog(bytes.NewReader(raw)); len(got) > len(raw) || len(got) > maxLog {
			t.Errorf("%d bytes from %d", len(got), len(raw))
		}
	})
}
