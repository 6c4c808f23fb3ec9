package auth

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Window refuses attempts of a key that has failed too often within a sliding time window, for
// example five times in five minutes. Unlike a Throttle, it delays nobody below the limit, and a
// failure stops counting as soon as it is older than the window. It is safe for concurrent use.
type Window struct {
	limit   int
	span    time.Duration
	maxKeys int
	now     func() time.Time

	mu     sync.Mutex
	byKey  map[string]*list.Element // of *failures
	recent *list.List               // most recently used first
}

type failures struct {
	key     string
	at      []time.Time // oldest first, at most as many as the limit
	pending int         // attempts that have begun and not ended; they count as failures
}

// NewWindow returns a Window that allows limit failures of a key within span. It remembers at most
// maxKeys keys (at least 1); beyond that, it forgets the least recently used. now is the clock.
func NewWindow(limit int, span time.Duration, maxKeys int, now func() time.Time) *Window {
	return &Window{
		limit: max(limit, 1), span: span, maxKeys: max(maxKeys, 1), now: now,
		byKey: map[string]*list.Element{}, recent: list.New(),
	}
}

// Begin starts an attempt if the key is below its limit. It reserves the attempt, so that
// concurrent attempts cannot exceed the limit. The caller must call done with whether the attempt
// failed, preferably with defer; further calls of done do nothing. Otherwise the fault is TooMany
// with the wait until the oldest failure expires.
func (w *Window) Begin(key string) (done func(failed bool), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	f := w.touch(key, now)
	if len(f.at)+f.pending >= w.limit {
		wait := time.Second // until a pending attempt has ended
		if len(f.at) > 0 {
			wait = max(f.at[0].Add(w.span).Sub(now), wait)
		}
		return nil, fault.New(fault.TooMany, "too many failed logins; try again later").
			WithCode("login_throttled").WithRetryAfter(wait)
	}
	f.pending++
	var once sync.Once
	return func(failed bool) {
		once.Do(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			f := w.touch(key, w.now())
			f.pending = max(f.pending-1, 0) // 0: the key was forgotten since
			if failed {
				f.at = append(f.at, w.now())
			}
		})
	}, nil
}

// Clear forgets the failures of a key, for example after a successful login.
func (w *Window) Clear(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.byKey[key]; ok {
		e.Value.(*failures).at = nil
	}
}

// touch finds or creates the key's record and drops expired failures.
func (w *Window) touch(key string, now time.Time) *failures {
	e, ok := w.byKey[key]
	if !ok {
		if w.recent.Len() >= w.maxKeys {
			oldest := w.recent.Back()
			delete(w.byKey, w.recent.Remove(oldest).(*failures).key)
		}
		e = w.recent.PushFront(&failures{key: key})
		w.byKey[key] = e
	}
	w.recent.MoveToFront(e)
	f := e.Value.(*failures)
	f.at = slices.DeleteFunc(f.at, func(at time.Time) bool { return now.Sub(at) >= w.span })
	return f
}
