package plan

import (
	"context"
	"sync"
)

// turns is a set of locks by name. Waiting for one ends with a context.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // by name; closed when the name is unlocked
}

// take locks name. done unlocks it.
func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	for {
		t.mu.Lock()
		busy, ok := t.taken[name]
		if !ok {
			mine := make(chan struct{})
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			t.taken[name] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.taken, name)
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
