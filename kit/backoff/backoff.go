// Package backoff says how long to wait before something that failed is tried again:
// exponentially longer, with full jitter, so that many that failed at one moment do not
// all come back at one moment.
package backoff

import (
	"cmp"
	"context"
	"time"
)

// The ceilings of a Schedule that names none.
const (
	DefaultBase = time.Second
	DefaultMax  = 5 * time.Minute
)

// Schedule spaces attempts: each wait is drawn uniformly below a ceiling that doubles.
type Schedule struct {
	Min  time.Duration // shortest wait: an unlucky draw near zero would be a second attempt at once
	Base time.Duration // ceiling after the first failure; 0: DefaultBase
	Max  time.Duration // largest ceiling; 0: DefaultMax
}

// Delay is the wait before the next attempt. attempt counts the retries that were made: 0
// after the first failure. random returns a uniform number in [0, 1), as
// math/rand/v2.Float64 does. The result lies between Min and min(Max, Base*2^attempt), or
// is Min where that is smaller.
func (s Schedule) Delay(attempt int, random func() float64) time.Duration {
	return max(s.Min, time.Duration(random()*float64(s.ceiling(attempt))))
}

func (s Schedule) ceiling(attempt int) time.Duration {
	base, limit := cmp.Or(s.Base, DefaultBase), cmp.Or(s.Max, DefaultMax)
	attempt = max(attempt, 0)
	// Comparing from the limit's side cannot overflow.
	if attempt >= 63 || base > limit>>attempt {
		return limit
	}
	return base << attempt
}

// Backoff is one series of attempts. The zero value is not ready; fill in Min, Max and
// Rand. It must not be used by two goroutines at once.
type Backoff struct {
	Min, Max time.Duration  // as in Schedule; the first ceiling is twice Min
	MaxAsked time.Duration  // bounds what a server may ask for; 0: DefaultMaxAsked
	Rand     func() float64 // in [0, 1)

	failures int
}

// Next is the time to wait after one more failure. What the server asked for
// (Retry-After; 0: nothing) is a lower bound, to which the same spread is added.
func (b *Backoff) Next(asked time.Duration) time.Duration {
	wait := Schedule{Min: b.Min, Base: 2 * b.Min, Max: b.Max}.Delay(b.failures, b.Rand)
	b.failures++
	if asked > 0 {
		// A server that asks for days is not believed: a person may mend it any time.
		return min(asked, cmp.Or(b.MaxAsked, DefaultMaxAsked)) + wait - b.Min
	}
	return wait
}

// DefaultMaxAsked bounds what a server may ask for.
const DefaultMaxAsked = 15 * time.Minute

// Reset begins a new series, after a success.
func (b *Backoff) Reset() { b.failures = 0 }

// Sleep waits, and reports false if ctx ended first.
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
