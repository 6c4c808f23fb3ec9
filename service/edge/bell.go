package edge

import "sync"

// bell wakes whoever waits for something to happen. A ring is remembered for
// each subscriber until it listens, and rings in between are one.
type bell struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

// subscribe returns a channel that receives after each ring, and the function
// that ends the subscription.
func (b *bell) subscribe() (<-chan struct{}, func()) {
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

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.listeners {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
