package httpserve

import "sync"

// Slots hands out a bounded number of slots, in all and to each key, so that no one caller can use
// up what all share. It is safe for concurrent use. Keys take memory only while they hold slots.
type Slots struct {
	total, perKey int

	mu    sync.Mutex
	taken int
	byKey map[string]int
}

// NewSlots returns slots of which one key may hold perKey; 0 means no limit.
func NewSlots(total, perKey int) *Slots {
	return &Slots{total: total, perKey: perKey, byKey: map[string]int{}}
}

// Take takes a slot for key. It is false if there is none; otherwise release, which may be called
// several times, gives it back.
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
