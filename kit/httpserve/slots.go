package httpserve

import "sync"

// Slots hands out a limited number of slots, in total and per key, so that no single caller can
// exhaust them. It is safe for concurrent use. Keys take memory only while they hold slots.
type Slots struct {
	total, perKey int

	mu    sync.Mutex
	taken int
	byKey map[string]int
}

// NewSlots returns Slots with a total limit and a limit per key; 0 means no limit.
func NewSlots(total, perKey int) *Slots {
	return &Slots{total: total, perKey: perKey, byKey: map[string]int{}}
}

// Take takes a slot for key. ok is false if none is free; otherwise release gives it back. release
// may be called several times.
func (s *Slots) Take(key string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total > 0 && s.taken >= s.total || s.perKey > 0 && s.byKey[key] >= s.perKey {
		return nil, false
	}
	s.taken++
	s.byKey[key]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
		if s.byKey[key]--; s.byKey[key] == 0 {
			delete(s.byKey, key)
		}
	}), true
}
