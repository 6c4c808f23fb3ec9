package shell

import (
	"fmt"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Rate is how often somebody may call.
type Rate struct {
	PerSecond float64 // in the long run
	Burst     int     // at once
}

// maxRated bounds the callers that a class of operations remembers. The one that was unused
// longest is forgotten first, and has its whole allowance again.
const maxRated = 10_000

// makeRates makes the limit of each class. A class of the contract that has no rate is an error.
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

// whom a request is counted against.
func (s *Shell[C]) whom(r *http.Request) string {
	c := callOf[C](r.Context())
	if c.unknown != nil || s.cfg.Whom == nil {
		return "network " + c.peer.Network
	}
	return s.cfg.Whom(c.caller, c.peer)
}
