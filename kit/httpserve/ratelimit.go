package httpserve

import (
	"container/list"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// RateLimits configures RateLimit and NewBuckets. Rate, Burst and MaxKeys are required, and Key for
// RateLimit.
type RateLimits struct {
	// Rate is how many requests per second a key may make in the long run, Burst how many at once.
	Rate  float64
	Burst int
	// MaxKeys limits the memory, about 300 bytes per key. Beyond it, the least recently used key is
	// forgotten, and then starts with a full bucket again.
	MaxKeys int
	// Key returns the key that a request is counted under, for example RemoteNetwork. A request
	// with an empty key is not limited.
	Key func(*http.Request) string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// RateLimit keeps a token bucket per key. It refuses a request whose bucket is empty with a TooMany
// fault that says when to retry.
func RateLimit(cfg RateLimits, render ErrorRenderer) func(http.Handler) http.Handler {
	b := NewBuckets(cfg)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if key := cfg.Key(r); key != "" {
				if wait := b.Take(key); wait > 0 {
					render(w, r, fault.New(fault.TooMany, "too many requests; slow down").WithRetryAfter(wait))
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Buckets are a token bucket per key. Create them with NewBuckets. They are safe for concurrent use.
type Buckets struct {
	cfg RateLimits

	mu     sync.Mutex
	byKey  map[string]*list.Element // of *bucket
	recent *list.List               // most recently used first
}

type bucket struct {
	key     string
	limiter *rate.Limiter
}

// NewBuckets returns Buckets that are all full.
func NewBuckets(cfg RateLimits) *Buckets {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Buckets{cfg: cfg, byKey: map[string]*list.Element{}, recent: list.New()}
}

// Take takes a token from a key's bucket. It returns 0 if there was one, otherwise the time until
// there is.
func (b *Buckets) Take(key string) time.Duration {
	now := b.cfg.Now()
	r := b.limiter(key).ReserveN(now, 1)
	if !r.OK() { // a burst below 1 lets nothing through
		return time.Second
	}
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now) // a refused request consumes nothing
	}
	return wait
}

func (b *Buckets) limiter(key string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.byKey[key]; ok {
		b.recent.MoveToFront(e)
		return e.Value.(*bucket).limiter
	}
	if oldest := b.recent.Back(); oldest != nil && len(b.byKey) >= b.cfg.MaxKeys {
		b.recent.Remove(oldest)
		delete(b.byKey, oldest.Value.(*bucket).key)
	}
	l := rate.NewLimiter(rate.Limit(b.cfg.Rate), b.cfg.Burst)
	b.byKey[key] = b.recent.PushFront(&bucket{key, l})
	return l
}
