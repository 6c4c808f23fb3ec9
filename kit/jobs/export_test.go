package jobs

import "time"

// The pure parts, for property tests.

type (
	Event  = event
	Status = status
)

const (
	Claimed       = claimed
	CancelAsked   = cancelAsked
	OnSucceeded   = succeeded
	OnFailed      = failed
	FailedForGood = failedForGood
	HandedBack    = handedBack
	LeaseExpired  = leaseExpired
	NumEvents     = numEvents
)

func (s status) On(e event) (status, bool) { return s.on(e) }

// Backoff returns the wait after the given failed attempt, from 1.
func Backoff(attempt int64, random float64) time.Duration {
	return retries.Delay(int(attempt)-1, func() float64 { return random })
}
