package auth_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// clock is set manually.
type clock struct{ now time.Time }

func newClock() *clock                   { return &clock{time.Unix(1_700_000_000, 0)} }
func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

// attempt makes one complete attempt and returns how long it must wait if it was refused.
func attempt(t *testing.T, th *auth.Throttle, success bool, keys ...string) time.Duration {
	t.Helper()
	done, err := th.Begin(keys...)
	if err == nil {
		done(success)
		return 0
	}
	f := fault.From(err)
	if f.Kind != fault.TooMany || f.RetryAfter <= 0 {
		t.Fatalf("refused with %+v", f)
	}
	return f.RetryAfter
}

func TestAfterFiveFailuresEachWaitIsTwiceTheLastUpToFiveMinutes(t *testing.T) {
	t.Parallel()
	c := newClock()
	th := auth.NewThrottle(10, c.Now)
	for i := range 5 {
		if wait := attempt(t, th, false, "a"); wait != 0 {
			t.Fatalf("attempt %d must wait %s", i+1, wait)
		}
	}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300} {
		d := time.Duration(want) * time.Second
		if wait := attempt(t, th, false, "a"); wait != d {
			t.Fatalf("wait %s, want %s", wait, d)
		}
		c.advance(d - 1)
		if wait := attempt(t, th, false, "a"); wait != 1 {
			t.Fatalf("just before the end: wait %s", wait)
		}
		c.advance(1)
		if wait := attempt(t, th, false, "a"); wait != 0 {
			t.Fatalf("after %s: wait %s", d, wait)
		}
	}
}

func TestSuccessStartsAnew(t *testing.T) {
	t.Parallel()
	th := auth.NewThrottle(10, newClock().Now)
	for range 4 {
		attempt(t, th, false, "a")
	}
	attempt(t, th, true, "a")
	for i := range 5 {
		if wait := attempt(t, th, false, "a"); wait != 0 {
			t.Errorf("attempt %d after a success must wait %s", i+1, wait)
		}
	}
	if attempt(t, th, false, "a") == 0 {
		t.Error("the sixth was allowed")
	}
}

func TestTheStrictestKeyDecidesAndARefusalCountsForNone(t *testing.T) {
	t.Parallel()
	c := newClock()
	th := auth.NewThrottle(10, c.Now)
	for i := range 5 {
		attempt(t, th, false, fmt.Sprintf("user%d ip", i), "ip")
	}
	for range 10 {
		if attempt(t, th, false, "fresh ip", "ip") != time.Second {
			t.Fatal("the address's wait was ignored")
		}
	}
	c.advance(time.Second)
	if wait := attempt(t, th, true, "fresh ip", "ip"); wait != 0 {
		t.Errorf("refused attempts were counted: wait %s", wait)
	}
}

func TestConcurrentAttemptsCannotOutnumberTheLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	th := auth.NewThrottle(10, c.Now)
	begin := func(n int) (allowed []func(bool)) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if done, err := th.Begin("a"); err == nil {
					mu.Lock()
					defer mu.Unlock()
					allowed = append(allowed, done)
				}
			})
		}
		wg.Wait()
		return allowed
	}
	first := begin(100)
	if len(first) != 5 {
		t.Fatalf("%d attempts at once", len(first))
	}
	for _, done := range first {
		done(false)
		done(true) // the second call must not undo the first
	}
	c.advance(time.Second)
	if n := len(begin(100)); n != 1 {
		t.Errorf("%d attempts after the first wait", n)
	}
}

func TestAKeyLeftAloneIsForgotten(t *testing.T) {
	t.Parallel()
	c := newClock()
	th := auth.NewThrottle(10, c.Now)
	for range 4 {
		if _, err := th.Begin("a"); err != nil { // never done, as after a crash
			t.Fatal(err)
		}
	}
	attempt(t, th, false, "a")
	c.advance(30 * time.Minute)
	for i := range 5 {
		if wait := attempt(t, th, false, "a"); wait != 0 {
			t.Errorf("attempt %d must wait %s", i+1, wait)
		}
	}
}

func TestTheNumberOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	th := auth.NewThrottle(2, newClock().Now)
	for range 5 {
		attempt(t, th, false, "old")
	}
	for range 5 {
		attempt(t, th, false, "recent")
	}
	attempt(t, th, false, "new") // displaces old
	if attempt(t, th, false, "recent") == 0 {
		t.Error("the recently used key was forgotten")
	}
	if attempt(t, th, false, "old") != 0 {
		t.Error("the oldest key was kept")
	}
}

func TestThrottleIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	th := auth.NewThrottle(3, newClock().Now)
	var wg sync.WaitGroup
	var allowed atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			if done, err := th.Begin(fmt.Sprint(i%7), "ip"); err == nil {
				allowed.Add(1)
				done(i%3 == 0)
			}
		})
	}
	wg.Wait()
	if allowed.Load() == 0 {
		t.Error("nothing was allowed")
	}
}
