package identity

import (
	"sync"
	"time"
)

// maxCached is how many values a cache holds. Only holders of signed tokens make it read.
const maxCached = 10_000

// cache holds values that were read a short time ago. It is safe for concurrent use.
type cache[V any] struct {
	now func() time.Time

	mu      sync.Mutex
	values  map[string]cached[V]
	dropped uint64 // calls of drop
}

type cached[V any] struct {
	value V
	read  time.Time
}

func newCache[V any](now func() time.Time) *cache[V] {
	return &cache[V]{now: now, values: map[string]cached[V]{}}
}

// get returns a value that is younger than age. The mark is for put.
func (c *cache[V]) get(key string, age time.Duration) (value V, found bool, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, found := c.values[key]
	if since := c.now().Sub(e.read); !found || since < 0 || since >= age {
		var none V
		return none, false, c.dropped
	}
	return e.value, true, c.dropped
}

// put adds a value that was read after get returned the mark. A value is not added if any was dropped
// since, as it may be the one from before the change.
func (c *cache[V]) put(key string, value V, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mark != c.dropped {
		return
	}
	if _, known := c.values[key]; !known && len(c.values) >= maxCached {
		for other := range c.values { // any one will do: it is read again
			delete(c.values, other)
			break
		}
	}
	c.values[key] = cached[V]{value, c.now()}
}

// drop forgets a value that has changed.
func (c *cache[V]) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.values, key)
	c.dropped++
}
