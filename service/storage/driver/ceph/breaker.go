package ceph

import (
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// How long a cluster that does not answer is left alone.
const (
	firstPause = 5 * time.Second
	maxPause   = time.Minute
)

// breaker decides whether a call is worth its while.
//
//	closed --a call is not answered--> open --pause--> one call is let through
//	  ^                                 ^                 |            |
//	  +------ answered -----------------+-- not answered -+            |
//	  +----------------------------------------------------------------+
type breaker struct {
	now func() time.Time

	mu     sync.Mutex
	pause  time.Duration // zero: closed
	until  time.Time
	trying bool // a call was let through
	cause  *fault.Error
}

// allow returns why a call must not be made now. A call that is made ends with answered, silent or
// undecided.
func (b *breaker) allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.until.Sub(b.now())
	switch {
	case b.pause == 0:
		return nil
	case wait > 0:
		return b.cause.WithRetryAfter(wait)
	case b.trying:
		return b.cause.WithRetryAfter(time.Second)
	}
	b.trying = true
	return nil
}

func (b *breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pause, b.trying = 0, false
}

// undecided ends a call of which nobody waits for the answer.
func (b *breaker) undecided() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
}

// silent ends a call that was not answered.
func (b *breaker) silent(cause *fault.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	if b.pause > 0 && b.now().Before(b.until) {
		return // another call has told already
	}
	b.pause = min(max(firstPause, 2*b.pause), maxPause)
	b.until, b.cause = b.now().Add(b.pause), cause
}
