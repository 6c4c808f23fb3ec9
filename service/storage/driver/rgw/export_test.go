package rgw

import (
	"context"
	"time"
)

// SetWithin sets how long the requests of a test may take.
func (g *Gateway) SetWithin(d time.Duration) { g.within = d }

// SetWithin sets how long the requests of a test may take.
func (s *Single) SetWithin(d time.Duration) { s.within = d }

// Purge empties the bucket.
func (s *Single) Purge(ctx context.Context) error { return s.purge(ctx, func(int) {}) }
