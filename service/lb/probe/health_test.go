package probe

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestStateChangesOnlyAfterEnoughResultsInARow compares the state machine with the
// definition, looked up in the whole history, over random results.
func TestStateChangesOnlyAfterEnoughResultsInARow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		rise, fall := 1+random.IntN(5), 1+random.IntN(5)
		initial := []*bool{nil, new(true), new(false)}[random.IntN(3)]
		bias := random.Float64() // a backend is mostly up, mostly down or flaps
		h := healthFrom(initial)
		var history []bool
		for step := range 200 {
			ok := random.Float64() < bias
			history = append(history, ok)
			before := h
			var changed bool
			h, changed = h.after(ok, rise, fall)

			if !h.known {
				t.Fatalf("seed %d step %d: unknown after a result", seed, step)
			}
			if changed != (!before.known || before.healthy != h.healthy) {
				t.Fatalf("seed %d step %d: changed is %t from %+v to %+v", seed, step, changed, before, h)
			}
			if !before.known {
				if h.healthy != ok {
					t.Fatalf("seed %d: the first result %t made it %t", seed, ok, h.healthy)
				}
				history = nil
				continue
			}
			needed := fall
			if ok {
				needed = rise
			}
			// The results since the last change decide: a change starts a new count.
			should := ok != before.healthy && inARow(history) >= needed
			if changed != should {
				t.Fatalf("seed %d step %d: rise %d fall %d, %d times %t in a row while healthy is %t: changed is %t",
					seed, step, rise, fall, inARow(history), ok, before.healthy, changed)
			}
			if changed {
				history = nil
			}
		}
	}
}

// inARow is how often the last result came in a row.
func inARow(history []bool) int {
	n := 0
	for i := len(history) - 1; i >= 0 && history[i] == history[len(history)-1]; i-- {
		n++
	}
	return n
}

func TestHealthWalksThroughItsStates(t *testing.T) {
	t.Parallel()
	// + and - are results; the state is written after each: u(p) or d(own).
	for _, c := range []struct {
		initial    *bool
		rise, fall int
		results    string
		states     string
	}{
		{nil, 2, 3, "+", "u"},
		{nil, 2, 3, "-", "d"},
		{nil, 2, 3, "---++", "ddddu"},
		{nil, 2, 3, "+--+--+---", "uuuuuuuuud"},
		{new(true), 2, 3, "---", "uud"},
		{new(true), 1, 1, "-+-+", "dudu"},
		{new(false), 2, 3, "+-++", "dddu"},
	} {
		t.Run(fmt.Sprintf("%s rise %d fall %d", c.results, c.rise, c.fall), func(t *testing.T) {
			t.Parallel()
			h, got := healthFrom(c.initial), ""
			for _, r := range c.results {
				h, _ = h.after(r == '+', c.rise, c.fall)
				got += map[bool]string{true: "u", false: "d"}[h.healthy]
			}
			if got != c.states {
				t.Errorf("states %s, want %s", got, c.states)
			}
		})
	}
}
