package auth

import (
	"container/list"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	freeFailures = 5 // consecutive failures before the first wait
	maxWait      = 5 * time.Minute
	// forgetAfter is how long a key must be unused before its failures are forgotten. It is much
	// longer than maxWait, so a guesser gains nothing by waiting for it.
	forgetAfter = 30 * time.Minute
)

// Throttle slows down guessing. Each key (say, a username with an address, and the address alone)
// may fail five times in a row. Each further failure makes it wait, 1 s at first and twice as long
// every time, up to 5 minutes. A success resets the key. It is safe for concurrent use.
type Throttle struct {
	maxKeys int
	now     func() time.Time

	mu     sync.Mutex
	byKey  map[string]*list.Element // of *attempts
	recent *list.List               // most recently used first
}

type attempts struct {
	key      string
	failures int       // consecutive
	pending  int       // attempts that have begun and not ended; they count as failures
	until    time.Time // attempts are refused before this time
	used     time.Time
}

// NewThrottle returns a Throttle that remembers at most maxKeys keys (at least 1, about 200 bytes
// each); beyond that, it forgets the least recently used. now is the clock.
func NewThrottle(maxKeys int, now func() time.Time) *Throttle {
	return &Throttle{maxKeys: max(maxKeys, 1), now: now, byKey: map[string]*list.Element{}, recent: list.New()}
}

// Begin starts an attempt if none of the keys must wait. It reserves an attempt for every key, so
// that concurrent attempts cannot exceed the limit. The caller must call done with the outcome,
// preferably with defer; further calls of done do nothing. Otherwise the fault is TooMany with the
// longest wait of the keys.
//
// If the outcome says nothing about the credentials (the store was down), pass false: it is not a
// success.
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

// Allowed is like Begin, for attempts that are checked immediately, such as the lookup of a random
// token. It refuses keys that must still wait, but allows any number of concurrent attempts. Report
// failed attempts with Failed.
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

// wait returns how long attempts with the key are refused from now on. It also forgets an idle
// key's failures.
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
		a.pending = max(a.pending-1, 0) // the key may have been forgotten since Begin
		if success {
			a.failures, a.until = 0, time.Time{}
			if a.pending == 0 {
				t.forget(t.byKey[key])
			}
			continue
		}
		a.failures++
		if excess := a.failures - freeFailures; excess >= 0 {
			// The limit applies beyond 2^9 s anyway; this keeps the shift from overflowing.
			a.until = now.Add(min(time.Second<<min(excess, 9), maxWait))
		}
	}
}

// touch finds or creates the key's record and marks it as used.
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
