package feed

import "sync"

// Bell wakes goroutines that wait for something to happen in this process. A ring stays pending for
// each subscriber until it receives it; several pending rings count as one. The zero value is ready
// to use. It is safe for concurrent use.
type Bell struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

// Subscribe returns a channel that receives after each ring, and a function that ends the
// subscription.
func (b *Bell) Subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = make(map[chan struct{}]struct{})
	}
	b.listeners[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, ch)
	}
}

// Ring wakes all subscribers.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.listeners {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
