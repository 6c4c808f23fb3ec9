package webhook_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/webhook"
)

func TestBreakerOpensProbesAndBacksOff(t *testing.T) {
	t.Parallel()
	b := webhook.NewBreaker(webhook.BreakerConfig{})
	now := time.Unix(1000, 0)
	for range 4 {
		b.Failure(now)
	}
	b.Success()
	for range 4 {
		b.Failure(now)
	}
	if b.State() != webhook.Closed {
		t.Fatal("failures that are not in a row opened it")
	}
	b.Failure(now)
	for _, cool := range []time.Duration{5, 10, 20, 40, 60, 60} {
		cool *= time.Second
		if ok, wait := b.Allow(now); ok || wait != cool {
			t.Fatalf("allow = %t, wait = %s, want %s", ok, wait, cool)
		}
		now = now.Add(cool)
		if ok, _ := b.Allow(now); !ok {
			t.Fatal("no probe after the cool-down")
		}
		if ok, wait := b.Allow(now); ok || wait != 5*time.Second {
			t.Fatalf("second probe: %t, wait %s", ok, wait)
		}
		b.Failure(now)
	}
	now = now.Add(time.Minute)
	b.Allow(now)
	b.Success()
	for range 5 {
		if ok, _ := b.Allow(now); !ok {
			t.Fatal("not closed after a good probe")
		}
		b.Failure(now)
	}
	if _, wait := b.Allow(now); wait != 5*time.Second {
		t.Errorf("the cool-down did not start anew: %s", wait)
	}
}

func TestLateResultsDoNotMoveAnOpenBreaker(t *testing.T) {
	t.Parallel()
	b := webhook.NewBreaker(webhook.BreakerConfig{Threshold: 1})
	now := time.Unix(1000, 0)
	b.Failure(now)
	b.Failure(now.Add(time.Second))
	b.Success()
	if ok, wait := b.Allow(now); ok || wait != 5*time.Second {
		t.Errorf("%t, %s", ok, wait)
	}
}

func TestALostProbeIsReplaced(t *testing.T) {
	t.Parallel()
	b := webhook.NewBreaker(webhook.BreakerConfig{Threshold: 1, ProbeTimeout: 30 * time.Second})
	now := time.Unix(1000, 0)
	b.Failure(now)
	now = now.Add(5 * time.Second)
	b.Allow(now)
	if ok, _ := b.Allow(now.Add(30*time.Second - 1)); ok {
		t.Error("a second probe while the first is under way")
	}
	if ok, _ := b.Allow(now.Add(30 * time.Second)); !ok {
		t.Error("the lost probe keeps the breaker shut")
	}
}

func TestAClockSetBackDelaysByNoMoreThanTheCoolDown(t *testing.T) {
	t.Parallel()
	b := webhook.NewBreaker(webhook.BreakerConfig{Threshold: 1})
	b.Failure(time.Unix(1_000_000, 0))
	early := time.Unix(1000, 0)
	if ok, wait := b.Allow(early); ok || wait != 5*time.Second {
		t.Fatalf("%t, %s", ok, wait)
	}
	if ok, _ := b.Allow(early.Add(5 * time.Second)); !ok {
		t.Error("still shut")
	}
}

// The invariants hold on every path: no request passes while open, a wait is positive and limited
// and ends with a request being allowed, a half-open breaker has one probe.
func TestRandomWalksKeepTheInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		cfg := webhook.BreakerConfig{
			Threshold:    1 + rnd.IntN(5),
			MinCooldown:  time.Second,
			MaxCooldown:  8 * time.Second,
			ProbeTimeout: 4 * time.Second,
		}
		b := webhook.NewBreaker(cfg)
		now, row, probeAt := time.Unix(0, 0), 0, time.Time{}
		for step := range 500 {
			before := b.State()
			at := fmt.Sprintf("seed %d step %d from %s", seed, step, before)
			switch rnd.IntN(4) {
			case 0:
				now = now.Add(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			case 1:
				b.Success()
				row = 0
				if (b.State() == webhook.Open) != (before == webhook.Open) {
					t.Fatalf("%s: success led to %s", at, b.State())
				}
			case 2:
				b.Failure(now)
				if before == webhook.Closed {
					row++
					if (b.State() == webhook.Open) != (row >= cfg.Threshold) {
						t.Fatalf("%s: %d failures in a row led to %s", at, row, b.State())
					}
				} else if b.State() != webhook.Open {
					t.Fatalf("%s: failure led to %s", at, b.State())
				}
			case 3:
				ok, wait := b.Allow(now)
				after := b.State()
				switch {
				case ok && (wait != 0 || after == webhook.Open):
					t.Fatalf("%s: admitted with wait %s into %s", at, wait, after)
				case !ok && (wait <= 0 || wait > cfg.MaxCooldown || after == webhook.Closed):
					t.Fatalf("%s: refused with wait %s in %s", at, wait, after)
				case ok && before == webhook.HalfOpen && now.Sub(probeAt) < cfg.ProbeTimeout:
					t.Fatalf("%s: two probes at once", at)
				}
				if ok && after == webhook.HalfOpen {
					probeAt = now
				}
			}
			if b.State() != webhook.Closed {
				row = 0
			}
		}
	}
}

func TestOfManyConcurrentCallersOneGetsTheProbe(t *testing.T) {
	t.Parallel()
	b := webhook.NewBreaker(webhook.BreakerConfig{Threshold: 1})
	now := time.Unix(1000, 0)
	b.Failure(now)
	now = now.Add(time.Minute)
	var admitted atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if ok, _ := b.Allow(now); ok {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 1 {
		t.Errorf("%d probes", n)
	}
}

func ExampleBreaker() {
	b := webhook.NewBreaker(webhook.BreakerConfig{Threshold: 2})
	now := time.Unix(0, 0)
	b.Failure(now)
	b.Failure(now)
	ok, wait := b.Allow(now)
	fmt.Println(b.State(), ok, wait)
	ok, _ = b.Allow(now.Add(wait))
	fmt.Println(b.State(), ok)
	b.Success()
	fmt.Println(b.State())
	// Output:
	// open false 5s
	// half_open true
	// closed
}
