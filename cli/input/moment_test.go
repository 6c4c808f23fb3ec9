package input_test

import (
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/cli/input"
)

func TestAMomentIsATimeOrASpanBeforeNow(t *testing.T) {
	t.Parallel()
	var m input.Moment
	if m.String() != "" {
		t.Errorf("a flag that was not given reads %q", m.String())
	}
	if err := m.Set("2026-01-31T08:00:00Z"); err != nil || m.String() != "2026-01-31T08:00:00Z" {
		t.Errorf("got %s, %v", m.String(), err)
	}
	before := time.Now().Add(-2 * time.Hour)
	if err := m.Set("2h"); err != nil || m.At.Before(before) || m.At.After(time.Now().Add(-2*time.Hour)) {
		t.Errorf("2h before now is %v, %v", m.At, err)
	}
	for _, bad := range []string{"", "yesterday", "2026-01-31", "2"} {
		if m.Set(bad) == nil {
			t.Errorf("%q was taken as %s", bad, m.String())
		}
	}
}
