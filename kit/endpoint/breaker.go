package endpoint

import (
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// maxHeld is how long a delivery is held back for a target that does not answer others. Then it fails.
const maxHeld = 24 * time.Hour

// breakers holds a circuit breaker per endpoint, for this process. They hold requests back; nothing is
// lost with them.
type breakers struct {
	mu  sync.Mutex
	all map[string]*webhook.Breaker
}

func (b *breakers) of(endpoint string) *webhook.Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]*webhook.Breaker{}
	}
	if b.all[endpoint] == nil {
		b.all[endpoint] = webhook.NewBreaker(webhook.BreakerConfig{})
	}
	return b.all[endpoint]
}

func (b *breakers) forget(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, endpoint)
}

// note tells a breaker the result of a request. A target that refuses a message is well.
func note(b *webhook.Breaker, result webhook.Result, now time.Time) {
	if webhook.Classify(result.Status, result.Err) == webhook.Retry {
		b.Failure(now)
	} else {
		b.Success()
	}
}
