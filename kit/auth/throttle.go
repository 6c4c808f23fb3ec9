package auth

import (
	"container/list"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	freeFailures = 5 // consecutive ones, before the first wait
	maxWait      = 5 * time.Minute
	// forgetAfter starts a key anew that has been left alone this long. It is much
	// longer than maxWait, so waiting for it gains a guesser nothing.
	forgetAfter = 30 * time.Minute
)

// Throttle slows down guessing. Each key (say, a username with an address, and the
// address alone) may fail five times in a row; each further failure makes it wait,
// 1 s at first and twice as long every time, up to 5 minutes. A success starts the
// key anew. It is safe for concurrent use.
type Throttle struct {
	maxKeys int
	now     func() time.Time

	mu     sync.Mutex
	byKey  map[string]*list.Element // of *attempts
	recent *list.List               // the most recently used first
}

type attempts struct {
	key      string
	failures int       // consecutive
	pending  int       // begun and not yet done; they count as failures meanwhile
	until    time.Time // refused before
	used     time.Time
}

// NewThrottle remembers at most maxKeys keys (at least 1, about 200 bytes each);
// beyond that the one that was unused longest is forgotten. now is the clock.
func NewThrottle(maxKeys int, now func() time.Time) *Throttle {
	return &Throttle{maxKeys: max(maxKeys, 1), now: now, byKey: map[string]*list.Element{}, recent: list.New()}
}

// Begin asks whether an attempt may be made now. If so it reserves one for every
// key, so that concurrent attempts cannot outnumber the limit, and the caller must
// call done with the outcome, by defer best; later calls of done do nothing.
// Otherwise the fault is TooMany with the longest wait of the keys.
//
// An outcome that says nothing about the credentials (the store was down) is no
// success: pass false.
func (t *Throttle) Begin(keys ...string) (done func(success bool), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	var wait time.Duration
	for _, key := range keys {
		if e, ok := t.byKey[key]; ok {
			wait = max(wait, e.Value.(*attempts).wait(now))
		}
	}
	if wait > 0 {
		return nil, fault.New(fault.TooMany, "too many failed logins; try again later").
			WithCode("login_throttled").WithRetryAfter(wait)
	}
	for _, key := range keys {
		t.touch(key, now).pending++
	}
	var once sync.Once
	return func(success bool) { once.Do(func() { t.finish(keys, success) }) }, nil
}

// Allowed is Begin for attempts that are checked at once, such as the lookup of a
// random token: it refuses keys that must still wait, but lets any number of
// attempts run side by side. Those that fail are reported with Failed.
func (t *Throttle) Allowed(keys ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, key := range keys {
		if e, ok := t.byKey[key]; ok {
			a := e.Value.(*attempts)
			a.forgetIfIdle(now)
			if wait := a.until.Sub(now); wait > 0 {
				return fault.New(fault.TooMany, "too many failed attempts; try again later").WithCode(
					"throttled",
				).WithRetryAfter(wait)
			}
		}
	}
	return nil
}

// Failed counts a failed attempt that Allowed let through.
func (t *Throttle) Failed(keys ...string) { t.finish(keys, false) }

func (a *attempts) forgetIfIdle(now time.Time) {
	if now.Sub(a.used) >= forgetAfter {
		a.failures, a.pending, a.until = 0, 0, time.Time{}
	}
}

// wait is how long the key is refused from now on. It also forgets.
func (a *attempts) wait(now time.Time) time.Duration {
	a.forgetIfIdle(now)
	if d := a.until.Sub(now); d > 0 {
		return d
	}
	switch {
	case a.failures >= freeFailures && a.pending > 0, // one attempt for each wait
		a.failures < freeFailures && a.failures+a.pending >= freeFailures:
		return time.Second
	}
	return 0
}

func (t *Throttle) finish(keys []string, success bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, key := range keys {
		a := t.touch(key, now)
		a.pending = max(a.pending-1, 0) // it may have been forgotten meanwhile
		if success {
			a.failures, a.until = 0, time.Time{}
			if a.pending == 0 {
				t.forget(t.byKey[key])
			}
			continue
		}
		a.failures++
		if excess := a.failures - freeFailures; excess >= 0 {
			// Beyond 2^9 s the limit applies anyway; the shift must not overflow.
			a.until = now.Add(min(time.Second<<min(excess, 9), maxWait))
		}
	}
}

// touch finds or makes the key's record and marks it as used.
func (t *Throttle) touch(key string, now time.Time) *attempts {
	e, ok := t.byKey[key]
	if ok {
		t.recent.MoveToFront(e)
	} else {
		if len(t.byKey) >= t.maxKeys {
			t.forget(t.recent.Back())
		}
		e = t.recent.PushFront(&attempts{key: key})
		t.byKey[key] = e
	}
	a := e.Value.(*attempts)
	a.used = now
	return a
}

func (t *Throttle) forget(e *list.Element) {
	t.recent.Remove(e)
	delete(t.byKey, e.Value.(*attempts).key)
}
