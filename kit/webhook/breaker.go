package webhook

import (
	"sync"
	"time"
)

// State is the state of a Breaker.
type State uint8

// The states of a Breaker.
const (
	Closed   State = iota // requests pass
	Open                  // requests are held back until the cool-down ends
	HalfOpen              // one probe is in flight
)

// String returns the state's stable word.
func (s State) String() string {
	switch s {
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	default:
		return "closed"
	}
}

// BreakerConfig sets the limits of a Breaker. Fields that are zero or negative get their defaults.
type BreakerConfig struct {
	Threshold    int           // consecutive failures that open the breaker; 5
	MinCooldown  time.Duration // first cool-down; 5 s
	MaxCooldown  time.Duration // longest cool-down; 1 min
	ProbeTimeout time.Duration // a probe without a result is considered lost after this; 1 min
}

// Breaker is a circuit breaker for one target. Once the target has failed several times in a row,
// it holds requests back, then lets one probe at a time find out whether the target has recovered.
//
//	           Threshold failures in a row
//	+--------+ ---------------------------> +------+
//	| Closed |                              | Open | <---+
//	+--------+                              +------+     |
//	    ^                                      |         | Failure:
//	    |              Allow after the cooldown |         | cool-down doubles,
//	    |                (admits one probe)    v         | up to MaxCooldown
//	    |             Success             +----------+   |
//	    +-------------------------------- | HalfOpen | --+
//	                                      +----------+
//	                                         |    ^
//	                                         +----+
//	                   Allow after ProbeTimeout (the probe is lost: admits another)
//
// While Open, results are ignored: they belong to requests that were sent before it opened. In
// HalfOpen, a late result of such a request counts as the probe's, since results do not identify
// their request; the cost is one cool-down too many or one request too many.
//
// A Breaker starts no timer and reads no clock. It is safe for concurrent use.
type Breaker struct {
	cfg BreakerConfig

	mu       sync.Mutex
	state    State
	failures int           // in a row; counts in Closed only
	cooldown time.Duration // the current or last cool-down; 0 when Closed
	until    time.Time     // end of the cool-down, or of the probe's lease
}

// NewBreaker returns a closed breaker.
func NewBreaker(cfg BreakerConfig) *Breaker {
	if cfg.Threshold <= 0 {
		cfg.Threshold = 5
	}
	if cfg.MinCooldown <= 0 {
		cfg.MinCooldown = 5 * time.Second
	}
	if cfg.MaxCooldown <= 0 {
		cfg.MaxCooldown = time.Minute
	}
	cfg.MaxCooldown = max(cfg.MaxCooldown, cfg.MinCooldown)
	if cfg.ProbeTimeout <= 0 {
		cfg.ProbeTimeout = time.Minute
	}
	return &Breaker{cfg: cfg}
}

// Allow reports whether a request may be sent at now. If ok, the caller must report Success or
// Failure. Otherwise wait is positive and says how long to wait before asking again; while a probe
// is in flight it is at most MinCooldown.
func (b *Breaker) Allow(now time.Time) (ok bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Closed {
		return true, 0
	}
	span := b.cooldown
	if b.state == HalfOpen {
		span = b.cfg.ProbeTimeout
	}
	wait = b.until.Sub(now)
	if wait > span {
		// The clock was set back; without this the breaker would stay open for as long as the clock
		// jumped.
		wait = span
		b.until = now.Add(span)
	}
	if wait <= 0 {
		b.state = HalfOpen
		b.until = now.Add(b.cfg.ProbeTimeout)
		return true, 0
	}
	if b.state == HalfOpen {
		wait = min(wait, b.cfg.MinCooldown)
	}
	return false, wait
}

// Success reports that a request that Allow permitted got a response.
func (b *Breaker) Success() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Open {
		return
	}
	b.state, b.failures, b.cooldown, b.until = Closed, 0, 0, time.Time{}
}

// Failure reports that a request that Allow permitted failed at now.
func (b *Breaker) Failure(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case Closed:
		b.failures++
		if b.failures < b.cfg.Threshold {
			return
		}
		b.cooldown = b.cfg.MinCooldown
	case HalfOpen:
		b.cooldown = min(2*b.cooldown, b.cfg.MaxCooldown)
	case Open:
		return
	}
	b.state, b.failures, b.until = Open, 0, now.Add(b.cooldown)
}

// State returns the current state. An open breaker whose cool-down has ended stays Open until the
// next Allow.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
