package jobs

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

var Backoff = backoff
