package backoff_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
)

func TestWaitsGrowToTheMaximumAndAreSpreadOverTheWholeSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rand float64
		want []time.Duration
	}{
		{0, []time.Duration{1, 1, 1, 1, 1, 1}},
		{0.999999999, []time.Duration{2, 4, 8, 16, 30, 30}},
	} {
		b := backoff.Backoff{Min: time.Second, Max: 30 * time.Second, Rand: func() float64 { return c.rand }}
		for i, want := range c.want {
			if got := b.Next(0).Round(time.Second); got != want*time.Second {
				t.Errorf("rand %v: wait %d is %s, want %d s", c.rand, i, got, want)
			}
		}
		b.Reset()
		if got := b.Next(0).Round(time.Second); got != c.want[0]*time.Second {
			t.Errorf("after a reset: %s", got)
		}
	}
}

func TestAServerIsNotAskedAgainBeforeItsRetryAfter(t *testing.T) {
	t.Parallel()
	for _, r := range []float64{0, 0.5, 0.99} {
		b := backoff.Backoff{Min: time.Second, Max: time.Minute, Rand: func() float64 { return r }}
		if got := b.Next(20 * time.Second); got < 20*time.Second || got > 22*time.Second {
			t.Errorf("asked for 20 s: %s", got)
		}
		if got := b.Next(1000 * time.Hour); got > 2*time.Hour {
			t.Errorf("asked for 1000 h: %s", got)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if !backoff.Sleep(t.Context(), time.Hour) {
			t.Error("an hour did not pass")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if backoff.Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("slept %s", time.Since(began))
		}
	})
}

const least = 50 * time.Millisecond

func TestDelayIsUniformBelowADoublingCeiling(t *testing.T) {
	t.Parallel()
	s := backoff.Schedule{Base: time.Second, Max: 5 * time.Minute}
	half := func() float64 { return 0.5 }
	for attempt, want := range map[int]time.Duration{
		-1: 500 * time.Millisecond, 0: 500 * time.Millisecond, 1: time.Second, 3: 4 * time.Second,
		8: 128 * time.Second, 9: 150 * time.Second, 62: 150 * time.Second, 1 << 40: 150 * time.Second,
	} {
		if got := s.Delay(attempt, half); got != want {
			t.Errorf("attempt %d: %s, want %s", attempt, got, want)
		}
	}
}

func TestTheZeroScheduleHasTheDefaults(t *testing.T) {
	t.Parallel()
	full := backoff.Schedule{Min: least, Base: backoff.DefaultBase, Max: backoff.DefaultMax}
	half := func() float64 { return 0.5 }
	for attempt := range 20 {
		if a, b := (backoff.Schedule{Min: least}).Delay(attempt, half), full.Delay(attempt, half); a != b {
			t.Errorf("attempt %d: %s, want %s", attempt, a, b)
		}
	}
}

func TestDelayStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		s := backoff.Schedule{
			Min:  least,
			Base: time.Duration(rnd.Int64N(int64(time.Hour)) + 1),
			Max:  time.Duration(rnd.Int64() + 1),
		}
		d := s.Delay(rnd.IntN(100), rnd.Float64)
		if d < least || d > max(s.Max, least) {
			t.Fatalf("%+v: %s", s, d)
		}
	}
	if d := (backoff.Schedule{Min: least}).Delay(0, func() float64 { return 0 }); d != least {
		t.Errorf("lowest draw: %s", d)
	}
}
