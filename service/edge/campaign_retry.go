package edge

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/edge/campaign"
)

// RetryCampaign asks the failed devices of a campaign again, or those of them that are named. A
// paused campaign continues, and one that was complete runs again until these devices have finished.
// A device that was asked for another update since stays failed, and one that has succeeded meanwhile
// counts as succeeded. Without a failed device, it fails with a conflict.
func (s *Service) RetryCampaign(ctx context.Context, id string, devices []string) (Campaign, error) {
	return s.moveCampaignIn(ctx, id, "campaign.retry", func(tx *db.Tx, c *Campaign) error {
		return c.retry(ctx, tx, devices)
	})
}

func (c *Campaign) retry(ctx context.Context, tx *db.Tx, devices []string) error {
	switch {
	case c.Status != campaign.Running && c.Status != campaign.Completed:
		return errCampaign(c, "has no devices that can be asked again")
	case c.Phase != phaseIdle:
		return errCampaign(c, "has not asked all devices of its present stage")
	}
	failed, err := markFailed(ctx, tx, c.ID, devices)
	if err != nil {
		return err
	}
	if failed == 0 {
		return errCampaign(c, "has no failed device to ask again")
	}
	c.Status, c.PausedReason, c.FinishedAt = campaign.Running, "", db.Time{}
	c.Phase, c.PhaseDone, c.PhaseTotal = phaseRetrying, 0, failed
	return nil
}

// markFailed turns failed devices of a campaign into devices that wait to be asked again, and counts
// them. Without names, these are all that failed. They keep their messages until they are asked, for
// unmarkFailed.
func markFailed(ctx context.Context, tx *db.Tx, id string, names []string) (int64, error) {
	query := "UPDATE campaign_devices SET outcome = 'waiting' WHERE campaign_id = ? AND outcome = 'failed'"
	args := []any{id}
	if len(names) > 0 {
		in, more, err := db.In(" AND device_id IN (?)", names)
		if err != nil {
			return 0, err
		}
		query, args = query+in, append(args, more...)
	}
	return tx.Exec(ctx, query, args...)
}

// unmarkFailed undoes markFailed for the devices that were not asked again.
func unmarkFailed(ctx context.Context, tx *db.Tx, id string) error {
	_, err := tx.Exec(
		ctx, "UPDATE campaign_devices SET outcome = 'failed' WHERE campaign_id = ? AND outcome = 'waiting' AND stage >= 0", id,
	)
	return err
}

// retryPage asks the next page of the devices that wait to be asked again.
func (s *Service) retryPage(ctx context.Context, tx *db.Tx, c Campaign) (done, total int64, more bool, err error) {
	var next []CampaignDevice
	if err := tx.Select(
		ctx, &next,
		`SELECT * FROM campaign_devices WHERE campaign_id = ? AND outcome = 'waiting' AND stage >= 0
		ORDER BY stage, position LIMIT ?`,
		c.ID, requestPageSize,
	); err != nil {
		return 0, 0, false, err
	}
	if err := s.requestCampaignDevices(ctx, tx, &c, next); err != nil {
		return 0, 0, false, err
	}
	more, err = s.endPage(ctx, tx, &c, len(next))
	return c.PhaseDone, c.PhaseTotal, more, err
}
