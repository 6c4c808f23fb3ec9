// Package backoff says how long to wait before something that failed is tried
// again: exponentially longer, with full jitter, so that many agents that lost
// the same server do not come back at once.
package backoff

import (
	"cmp"
	"context"
	"time"
)

// Backoff is one series of attempts. The zero value is not ready; fill in Min,
// Max and Rand. It must not be used by two goroutines at once.
type Backoff struct {
	Min, Max time.Duration
	MaxAsked time.Duration  // bounds what a server may ask for; 0: DefaultMaxAsked
	Rand     func() float64 // in [0, 1)

	ceiling time.Duration
}

// Next is the time to wait after one more failure: somewhere from Min to a ceiling
// that doubles with each failure up to Max. What the server asked for (Retry-After)
// is a lower bound, to which the same spread is added.
func (b *Backoff) Next(asked time.Duration) time.Duration {
	b.ceiling = min(max(b.ceiling*2, 2*b.Min), b.Max)
	wait := b.Min + time.Duration(b.Rand()*float64(b.ceiling-b.Min))
	if asked > 0 {
		// A server that asks for days is not believed: a person may mend it any time.
		return min(asked, cmp.Or(b.MaxAsked, DefaultMaxAsked)) + wait - b.Min
	}
	return wait
}

// DefaultMaxAsked bounds what a server may ask for.
const DefaultMaxAsked = 15 * time.Minute

// Reset begins a new series, after a success.
func (b *Backoff) Reset() { b.ceiling = 0 }

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
