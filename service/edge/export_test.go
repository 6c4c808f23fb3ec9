package edge

import (
	"context"
	"errors"
)

// Maintain does all periodic work at once, for tests that move the clock.
func (s *Service) Maintain(ctx context.Context) error {
	return errors.Join(s.markOffline(ctx), s.advanceCampaigns(ctx), s.sweepAlerts(ctx), s.expire(ctx), s.renewCRL(ctx))
}
