package edge

import (
	"context"
	"encoding/json"
	"errors"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/edge/ota"
)

// Maintain does all periodic work at once, for tests that move the clock.
func (s *Service) Maintain(ctx context.Context) error {
	return errors.Join(s.markOffline(ctx), s.advanceCampaigns(ctx), s.sweepAlerts(ctx), s.expire(ctx), s.renewCRL(ctx))
}

// MaintainWith is Maintain with a function that is called between the steps of maintenance.
func (s *Service) MaintainWith(ctx context.Context, pause func(at string)) error {
	return s.Maintain(context.WithValue(ctx, pauseKey{}, pause))
}

// DB is the service's database, for tests that change it behind the service's back.
func (s *Service) DB() *db.DB { return s.db }

// RetryAndAbort retries and aborts a campaign, with the job that asks its devices getting to some pages
// of them in between.
func (s *Service) RetryAndAbort(ctx context.Context, id string, pages int) error {
	ctx = asSystem(ctx)
	return s.db.Update(ctx, func(tx *db.Tx) error {
		move := func(action string, decide func(c *Campaign) error) error {
			c, err := s.campaign(ctx, tx, id, tx.ForUpdate())
			if err != nil {
				return err
			}
			was := c.Status
			if err := decide(&c); err != nil {
				return err
			}
			_, err = s.writeCampaign(ctx, tx, was, c, action, action)
			return err
		}
		if err := move("campaign.retry", func(c *Campaign) error { return c.retry(ctx, tx, nil) }); err != nil {
			return err
		}
		for range pages {
			if _, _, _, err := s.requestPage(ctx, tx, rollout{id, 0}); err != nil {
				return err
			}
		}
		return move("campaign.abort", func(c *Campaign) error { c.abort(s.now()); return nil })
	})
}

// Reread has the delivery engine forget what it has read of a route.
func (s *Service) Reread(routeID string) { s.delivery.Changed(routeID) }

// Looks is how often the delivery engine has looked at whether routes were changed.
func (s *Service) Looks() int64 { return s.delivery.Looks() }

// EventsFrom is Events with reads that a test watches.
func (s *Service) EventsFrom(ctx context.Context, q db.Querier, f EventFilter) ([]Event, int64, error) {
	return s.events(ctx, q, f)
}

// SitesFrom is Sites with reads that a test watches.
func (s *Service) SitesFrom(ctx context.Context, q db.Querier, f SiteFilter) ([]Site, error) {
	sites, _, err := s.sites(ctx, q, f)
	return sites, err
}

// DevicesFrom is Devices with reads that a test watches.
func (s *Service) DevicesFrom(ctx context.Context, q db.Querier, f DeviceFilter) ([]Device, error) {
	devices, _, err := s.devices(ctx, q, f)
	return devices, err
}

// RoutesFrom reads as Routes, with reads that a test watches.
func (s *Service) RoutesFrom(ctx context.Context, q db.Querier, f RouteFilter) error {
	_, _, err := s.routes(ctx, q, f)
	return err
}

// DeploymentsFrom reads as Deployments, with reads that a test watches.
func (s *Service) DeploymentsFrom(ctx context.Context, q db.Querier, f DeploymentFilter) error {
	_, _, err := s.deployments(ctx, q, f)
	return err
}

// CampaignsFrom reads as Campaigns, with reads that a test watches.
func (s *Service) CampaignsFrom(ctx context.Context, q db.Querier, f CampaignFilter) error {
	_, _, err := s.campaigns(ctx, q, f)
	return err
}

// FailedUpdates are two states of updates that failed.
var FailedUpdates = []ota.State{ota.Failed, ota.TimedOut}

// DeadLettersFrom is DeadLetters with reads that a test watches.
func (s *Service) DeadLettersFrom(ctx context.Context, q db.Querier, f DeadLetterFilter) (string, error) {
	_, examined, err := s.deadLetters(ctx, q, f)
	return examined, err
}

// As returns a context in which a global viewer, or one of an org, calls.
func As(ctx context.Context, orgID string) context.Context {
	c := Caller{Subject: "test", Kind: KindToken, Role: RoleViewer}
	if orgID != "" {
		c.Kind, c.OrgID = KindOrg, orgID
	}
	return shell.As(ctx, c)
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
