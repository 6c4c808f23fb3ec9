package edge

import (
	"context"
	"encoding/json"
	"errors"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

// Maintain does all periodic work at once, for tests that move the clock.
func (s *Service) Maintain(ctx context.Context) error {
	return errors.Join(s.markOffline(ctx), s.advanceCampaigns(ctx), s.sweepAlerts(ctx), s.expire(ctx), s.renewCRL(ctx))
}

// DecodeEvent decodes and checks the body of an event as ingest does.
func DecodeEvent(body []byte) (EventInput, error) {
	var in edgeapi.EventInput
	if err := json.Unmarshal(body, &in); err != nil {
		return EventInput{}, err
	}
	e := eventInput(in)
	return e, e.check("")
}
