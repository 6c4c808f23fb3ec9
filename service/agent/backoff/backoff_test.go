package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/agent/backoff"
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
