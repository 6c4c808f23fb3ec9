// Package backoff computes the delays between retries: exponentially longer, with full jitter, so
// that many clients that failed at the same moment do not all retry at the same moment.
package backoff

import (
	"cmp"
	"context"
	"time"
)

// Defaults of a Schedule.
const (
	DefaultBase = time.Second
	DefaultMax  = 5 * time.Minute
)

// Schedule spaces retries: each wait is drawn uniformly below a ceiling that doubles.
type Schedule struct {
	Min  time.Duration // shortest wait, so that an unlucky draw near zero does not cause an immediate retry
	Base time.Duration // ceiling after the first failure; 0: DefaultBase
	Max  time.Duration // largest ceiling; 0: DefaultMax
}

// Delay returns the wait before the next attempt. attempt is the number of retries so far: 0 after
// the first failure. random returns a uniform number in [0, 1), as math/rand/v2.Float64 does. The
// result lies between Min and min(Max, Base*2^attempt), or is Min if that is smaller.
func (s Schedule) Delay(attempt int, random func() float64) time.Duration {
	return max(s.Min, time.Duration(random()*float64(s.ceiling(attempt))))
}

func (s Schedule) ceiling(attempt int) time.Duration {
	base, limit := cmp.Or(s.Base, DefaultBase), cmp.Or(s.Max, DefaultMax)
	attempt = max(attempt, 0)
	// Shifting the limit instead of the base cannot overflow.
	if attempt >= 63 || base > limit>>attempt {
		return limit
	}
	return base << attempt
}

// Backoff is one series of attempts. Min, Max and Rand must be set. It is not safe for concurrent
// use.
type Backoff struct {
	Min, Max time.Duration  // as in Schedule; the first ceiling is twice Min
	MaxAsked time.Duration  // limits the wait that a server may request; 0: DefaultMaxAsked
	Rand     func() float64 // in [0, 1)

	failures int
}

// Next returns the wait after one more failure. A wait that the server requested (Retry-After; 0:
// none) is a lower bound, to which the same jitter is added.
func (b *Backoff) Next(asked time.Duration) time.Duration {
	wait := Schedule{Min: b.Min, Base: 2 * b.Min, Max: b.Max}.Delay(b.failures, b.Rand)
	b.failures++
	if asked > 0 {
		// Do not wait for days if a server asks for that: it may be repaired at any time.
		return min(asked, cmp.Or(b.MaxAsked, DefaultMaxAsked)) + wait - b.Min
	}
	return wait
}

// DefaultMaxAsked limits the wait that a server may request.
const DefaultMaxAsked = 15 * time.Minute

// Reset starts a new series, after a success.
func (b *Backoff) Reset() { b.failures = 0 }

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
