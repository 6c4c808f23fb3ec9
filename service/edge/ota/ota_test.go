package ota_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/edge/ota"
)

func TestMovesOfTheDiagram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to ota.State
		legal    bool
	}{
		{ota.Pending, ota.Downloading, true},
		{ota.Pending, ota.Succeeded, true}, // leaving states out
		{ota.Downloading, ota.Pending, false},
		{ota.Pending, ota.Rejected, true},
		{ota.Downloading, ota.Rejected, false},
		{ota.Pending, ota.AlreadyInstalled, true},
		{ota.Downloaded, ota.RollingBack, false},
		{ota.Installing, ota.RollingBack, true},
		{ota.Verifying, ota.RollingBack, true},
		{ota.RollingBack, ota.RolledBack, true},
		{ota.RollingBack, ota.Succeeded, false},
		{ota.RollingBack, ota.Failed, true},
		{ota.Succeeded, ota.Succeeded, true},
		{ota.Succeeded, ota.Failed, false},
		{ota.Pending, "asleep", false},
		{"", ota.Pending, false},
	} {
		if got := ota.CanMove(tt.from, tt.to); got != tt.legal {
			t.Errorf("CanMove(%s, %s) = %t", tt.from, tt.to, got)
		}
	}
}

// A random walk that takes every legal move offered must end, never go back
// along the line, and never leave a terminal state.
func TestRandomWalksEndAndNeverGoBack(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	states := ota.States()
	for range 1000 {
		at, steps := ota.Pending, 0
		seen := map[ota.State]bool{at: true}
		for tries := 0; tries < 200; tries++ {
			to := states[rnd.IntN(len(states))]
			changed, err := ota.Check("r", to, "r", at)
			if legal := ota.CanMove(at, to); legal != (err == nil) {
				t.Fatalf("Check and CanMove disagree on %s -> %s: %v", at, to, err)
			}
			if err != nil {
				if fault.KindOf(err) != fault.Conflict {
					t.Fatalf("%s -> %s: %v", at, to, err)
				}
				continue
			}
			if !changed {
				continue
			}
			if at.Terminal() {
				t.Fatalf("left terminal state %s for %s", at, to)
			}
			if seen[to] {
				t.Fatalf("came back to %s", to)
			}
			seen[to], at, steps = true, to, steps+1
		}
		if !at.Terminal() {
			t.Fatalf("walk still in %s after 200 tries", at)
		}
		if at.Good() && at != ota.Succeeded && at != ota.AlreadyInstalled {
			t.Fatalf("%s counts as good", at)
		}
		if steps > 8 {
			t.Fatalf("%d moves to the end", steps)
		}
	}
}

func TestAReportAboutAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := ota.Check("old", ota.Downloading, "new", ota.Pending); !fault.Is(err, fault.Conflict) {
		t.Errorf("err = %v", err)
	}
	if changed, err := ota.Check("", ota.Downloading, "new", ota.Pending); err != nil || !changed {
		t.Errorf("a report without id speaks of the current request: %t, %v", changed, err)
	}
	if _, err := ota.Check("new", "asleep", "new", ota.Pending); !fault.Is(err, fault.Invalid) {
		t.Errorf("err = %v", err)
	}
}
