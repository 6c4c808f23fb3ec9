package shell

import (
	"fmt"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Rate limits how often a caller may make requests.
type Rate struct {
	PerSecond float64 // long-term average
	Burst     int     // requests at once
}

// maxRated limits the number of callers that each class of operations tracks. The least recently
// used is forgotten first, and then has its full allowance again.
const maxRated = 10_000

// makeRates creates the limiter of each class. It fails if a class of the contract has no rate.
func (s *Shell[C]) makeRates() error {
	s.rates = map[string]func(http.Handler) http.Handler{}
	for _, op := range s.cfg.Contract.Operations() {
		if _, ok := s.cfg.Rates[op.Rate]; !ok && op.Rate != "" {
			return fmt.Errorf("operation %s has x-rate %q, and no rate is configured for it", op.ID, op.Rate)
		}
	}
	for class, rate := range s.cfg.Rates {
		if rate == (Rate{}) {
			continue
		}
		s.rates[class] = httpserve.RateLimit(httpserve.RateLimits{
			Rate: rate.PerSecond, Burst: rate.Burst, MaxKeys: maxRated, Key: s.whom, Now: s.cfg.Now,
		}, s.Fail)
	}
	return nil
}

// whom returns the key that a request is counted under.
func (s *Shell[C]) whom(r *http.Request) string {
	c := callOf[C](r.Context())
	if c.unknown != nil || s.cfg.Whom == nil {
		return "network " + c.peer.Network
	}
	return s.cfg.Whom(c.caller, c.peer)
}
