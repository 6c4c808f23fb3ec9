package image

import (
	"context"
	"slices"
	"sync"
)

// turns lets so many jobs work at once. Of those that wait, the next is of the tenant with the fewest at work, and
// of these the one that has waited longest: what one tenant asks for does not keep others waiting.
type turns struct {
	mu      sync.Mutex
	free    int
	working map[string]int // by tenant
	waiting []*waiter      // in the order in which they came
}

// waiter is a job that waits.
type waiter struct {
	tenant string
	begin  chan struct{} // closed when it may begin
}

func newTurns(n int) *turns { return &turns{free: n, working: map[string]int{}} }

// take waits for a turn, which leave ends. It fails if ctx ends first.
func (t *turns) take(ctx context.Context, tenant string) (leave func(), err error) {
	w := &waiter{tenant, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.next()
	t.mu.Unlock()
	leave = sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.free++
		if t.working[tenant]--; t.working[tenant] == 0 {
			delete(t.working, tenant)
		}
		t.next()
	})
	select {
	case <-w.begin:
		return leave, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, w)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it has just got its turn
		leave()
	}
	return nil, context.Cause(ctx)
}

// next lets jobs begin while there is room. The lock must be held.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		first := 0
		for i, w := range t.waiting {
			if t.working[w.tenant] < t.working[t.waiting[first].tenant] {
				first = i
			}
		}
		w := t.waiting[first]
		t.waiting = slices.Delete(t.waiting, first, first+1)
		t.free--
		t.working[w.tenant]++
		close(w.begin)
	}
}
