package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/edge/campaign"
)

const (
	// selectPage is how many devices one transaction of a rollout reads, and requestPageSize how
	// many it asks. They are small so that ingest, which runs in between, waits only milliseconds,
	// whatever the size of the campaign (docs/performance.md).
	selectPage      = 500
	requestPageSize = 50
)

const rolloutKind = "campaign.rollout"

// rollout holds the arguments of the job that rolls a campaign's current stage out to its devices.
// Its progress is stored with the campaign and its devices, so the job can be restarted at any
// point.
type rollout struct {
	CampaignID string `json:"campaign_id"`
	Stage      int    `json:"stage"`
}

func (s *Service) enqueueRollout(ctx context.Context, tx *db.Tx, c Campaign) (string, error) {
	// Several jobs may roll out the same stage, for example after a pause that the first one has
	// not noticed. The lock on the campaign takes them through its devices one by one.
	return s.jobs.Enqueue(ctx, tx, rolloutKind, rollout{c.ID, c.CurrentStage}, jobs.Options{})
}

// errStageOver ends a rollout whose campaign is paused, was aborted, or has moved on.
var errStageOver = errors.New("there is nothing to roll out")

func (s *Service) runRollout(ctx context.Context, job *jobs.Job, args rollout) error {
	ctx = asSystem(ctx)
	err := s.selectTargets(ctx, args)
	for more := true; more && err == nil; {
		var done, total int64
		if done, total, more, err = s.requestNext(ctx, args); err == nil {
			err = job.Progress(ctx, done, total)
		}
	}
	if errors.Is(err, errStageOver) {
		return nil
	}
	return err
}

// rolling locks the campaign and returns it. It fails with errStageOver if nothing is left to do.
func (s *Service) rolling(ctx context.Context, tx *db.Tx, args rollout) (Campaign, error) {
	c, err := s.campaign(ctx, tx, args.CampaignID, tx.ForUpdate())
	if err != nil {
		return c, err
	}
	if c.Status != campaign.Running || c.CurrentStage != args.Stage || c.Phase == phaseIdle || c.PausedReason != "" {
		return c, errStageOver
	}
	return c, nil
}

// selectTargets freezes the campaign's targets, page by page.
func (s *Service) selectTargets(ctx context.Context, args rollout) error {
	after := ""
	for {
		var last string
		err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
			last, err = s.selectTargetsAfter(ctx, tx, args, after)
			return err
		})
		if err != nil || last == "" {
			return err
		}
		after = last
	}
}

// selectTargetsAfter is one step of selectTargets: it checks the page of devices after an ID and
// returns the ID of the last one. After the last page it moves the campaign to the next phase and
// returns "".
func (s *Service) selectTargetsAfter(
	ctx context.Context, tx *db.Tx, args rollout, after string,
) (last string, err error) {
	c, err := s.rolling(ctx, tx, args)
	if err != nil || c.Phase != phaseSelecting {
		return "", err
	}
	page, err := candidates(ctx, tx, c, db.All(), after, selectPage)
	if err != nil {
		return "", err
	}
	if len(page) == 0 {
		_, err := tx.Exec(
			ctx, "UPDATE campaigns SET phase = ?, phase_done = 0, phase_total = 0 WHERE id = ?", phaseRequesting, c.ID,
		)
		return "", err
	}
	selected, isTarget := 0, c.Targets.V.matcher()
	for i := range page {
		if !isTarget(&page[i]) {
			continue
		}
		selected++
		if _, err := tx.Exec(
			ctx,
			`INSERT INTO campaign_devices (campaign_id, device_id, position, stage, outcome, request_id, message)
			VALUES (?, ?, ?, -1, 'waiting', '', '') ON CONFLICT (campaign_id, device_id) DO NOTHING`,
			c.ID, page[i].DeviceID, campaign.Position(c.ID, page[i].DeviceID),
		); err != nil {
			return "", err
		}
	}
	_, err = tx.Exec(ctx, "UPDATE campaigns SET phase_done = phase_done + ? WHERE id = ?", selected, c.ID)
	return page[len(page)-1].DeviceID, err
}

// candidates returns the next page of devices that the campaign may select, ordered by ID, with what
// Targets.matcher reads. within narrows them down; its conditions are on d, the table of devices.
func candidates(
	ctx context.Context, q db.Querier, c Campaign, within db.Scope, after string, limit int,
) (page []Device, err error) {
	where, args := within.SQL()
	query := `SELECT d.device_id, d.site_id, d.labels FROM devices d JOIN sites s ON s.id = d.site_id AND s.status <> 'revoked'
		WHERE ` + where + ` AND d.device_id > ?`
	args = append(args, after)
	if c.OrgID != "" {
		query, args = query+" AND d.org_id = ?", append(args, c.OrgID)
	}
	return page, q.Select(ctx, &page, query+" ORDER BY d.device_id LIMIT ?", append(args, limit)...)
}

// requestNext asks the next page of the stage's devices to update.
func (s *Service) requestNext(ctx context.Context, args rollout) (done, total int64, more bool, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) (err error) {
		done, total, more, err = s.requestPage(ctx, tx, args)
		return err
	})
	return done, total, more, err
}

// requestPage is the transaction of requestNext.
func (s *Service) requestPage(
	ctx context.Context, tx *db.Tx, args rollout,
) (done, total int64, more bool, err error) {
	c, err := s.rolling(ctx, tx, args)
	if err != nil {
		return 0, 0, false, err
	}
	if c.Phase == phaseRetrying {
		return s.retryPage(ctx, tx, c)
	}
	if c.PhaseTotal == 0 { // the first page of the stage
		counts, err := countCampaign(ctx, tx, c.ID, -1)
		if err != nil {
			return 0, 0, false, err
		}
		asked := counts.Total() - counts.Waiting
		c.PhaseTotal = max(campaign.Upto(c.Stages.V, c.CurrentStage, counts.Total())-asked, 0)
	}
	var next []CampaignDevice
	if err := tx.Select(
		ctx, &next,
		`SELECT * FROM campaign_devices WHERE campaign_id = ? AND stage = -1 AND outcome = 'waiting'
		ORDER BY position LIMIT ?`,
		c.ID, min(requestPageSize, c.PhaseTotal-c.PhaseDone),
	); err != nil {
		return 0, 0, false, err
	}
	for i := range next {
		next[i].Stage = c.CurrentStage
	}
	if err := s.requestCampaignDevices(ctx, tx, &c, next); err != nil {
		return 0, 0, false, err
	}
	more, err = s.endPage(ctx, tx, &c, len(next))
	return c.PhaseDone, c.PhaseTotal, more, err
}

// endPage stores that a page of n devices is done. After the last one, it ends the phase.
func (s *Service) endPage(ctx context.Context, tx *db.Tx, c *Campaign, n int) (more bool, err error) {
	c.PhaseDone += int64(n)
	more = n > 0 && c.PhaseDone < c.PhaseTotal
	if !more {
		c.Phase, c.StageStartedAt = phaseIdle, db.At(s.now())
		tx.OnCommit(s.nudgeCampaigns)
	}
	_, err = tx.Exec(
		ctx,
		"UPDATE campaigns SET phase = ?, phase_done = ?, phase_total = ?, stage_started_at = ? WHERE id = ?",
		c.Phase, c.PhaseDone, c.PhaseTotal, c.StageStartedAt, c.ID,
	)
	return more, err
}

// requestCampaignDevices asks devices to update, in the stages that they are given. A device that was
// asked before is asked again only if it has not succeeded since, and nobody has asked it for another
// update.
func (s *Service) requestCampaignDevices(ctx context.Context, tx *db.Tx, c *Campaign, asked []CampaignDevice) error {
	if len(asked) == 0 {
		return nil
	}
	parts := make(map[string]CampaignDevice, len(asked))
	ids := make([]string, len(asked))
	for i, d := range asked {
		parts[d.DeviceID], ids[i] = d, d.DeviceID
	}
	query, args, err := db.In("SELECT * FROM devices WHERE device_id IN (?) ORDER BY device_id", ids)
	if err != nil {
		return err
	}
	var devices []Device
	if err := tx.Select(ctx, &devices, query+tx.ForUpdate(), args...); err != nil {
		return err
	}
	now := s.now().UTC()
	moves := otaMoves{}
	var sites []string
	for i := range devices {
		part := parts[devices[i].DeviceID]
		if outcome, message := notAskedAgain(part, &devices[i]); outcome != "" {
			if _, err := tx.Exec(
				ctx,
				"UPDATE campaign_devices SET outcome = ?, message = ? WHERE campaign_id = ? AND device_id = ?",
				outcome, message, c.ID, part.DeviceID,
			); err != nil {
				return err
			}
			continue
		}
		sites = append(sites, devices[i].SiteID)
		req := OTARequest{
			RequestID:   newID(),
			Version:     c.Version,
			URL:         c.URL,
			SHA256:      c.SHA256,
			Size:        c.Size,
			RequestedAt: now,
			CampaignID:  c.ID,
		}
		if err := s.writeOTARequest(ctx, tx, &devices[i], req, moves); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			`UPDATE campaign_devices SET stage = ?, outcome = 'pending', message = '', request_id = ?, requested_at = ?
			WHERE campaign_id = ? AND device_id = ?`,
			part.Stage, req.RequestID, db.At(now), c.ID, devices[i].DeviceID,
		); err != nil {
			return err
		}
	}
	if err := moves.tally(ctx, tx); err != nil {
		return err
	}
	return desiredChanged(ctx, tx, sites...)
}

// notAskedAgain returns the outcome, with its message, of a device that was asked before and is not to
// be asked again. It is empty for the others.
func notAskedAgain(part CampaignDevice, d *Device) (outcome, message string) {
	switch {
	case part.RequestID == "":
		return "", ""
	case part.RequestID != d.OTARequestID:
		return outcomeFailed, "not asked again: another update was requested"
	case d.OTAState.Good():
		return outcomeSucceeded, d.OTAMessage
	}
	return "", ""
}

// advanceCampaigns advances all running campaigns.
func (s *Service) advanceCampaigns(ctx context.Context) error {
	ctx = asSystem(ctx)
	var ids []string
	if err := s.db.Select(ctx, &ids, "SELECT id FROM campaigns WHERE status = 'running' ORDER BY id"); err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, s.advanceCampaign(ctx, id))
	}
	return errors.Join(errs...)
}

// advanceCampaign carries out what the outcomes of a running campaign's devices call for. It checks
// without a lock first, and takes the write lock only if there is something to do.
func (s *Service) advanceCampaign(ctx context.Context, id string) error {
	c, err := s.campaign(ctx, s.db, id, "")
	if err != nil {
		return err
	}
	late, err := s.lateDevices(ctx, s.db, c)
	if err != nil {
		return err
	}
	if decision, _, err := s.decide(ctx, s.db, c); err != nil || decision == campaign.Wait && late == 0 {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		c, err := s.campaign(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if late > 0 {
			if err := s.failLateDevices(ctx, tx, c); err != nil {
				return err
			}
		}
		decision, reason, err := s.decide(ctx, tx, c)
		if err != nil {
			return err
		}
		return s.carryOut(ctx, tx, c, decision, reason)
	})
}

// failLateDevices fails the devices that were asked more than DeviceTimeoutSeconds ago and have not
// finished.
func (s *Service) failLateDevices(ctx context.Context, tx *db.Tx, c Campaign) error {
	_, err := tx.Exec(
		ctx,
		`UPDATE campaign_devices SET outcome = 'failed', message = ?
		WHERE campaign_id = ? AND outcome IN ('pending', 'in_progress') AND requested_at < ?`,
		fmt.Sprintf("not finished within %d s", c.DeviceTimeoutSeconds), c.ID, s.deviceDeadline(c),
	)
	return err
}

// carryOut carries out a decision about a campaign, which the caller has locked.
func (s *Service) carryOut(
	ctx context.Context, tx *db.Tx, c Campaign, decision campaign.Decision, reason string,
) error {
	was, action, message := c.Status, "", ""
	switch decision {
	case campaign.Wait:
		return nil
	case campaign.Met:
		_, err := tx.Exec(ctx, "UPDATE campaigns SET stage_met_at = ? WHERE id = ?", db.At(s.now()), c.ID)
		return err
	case campaign.Promote:
		c.CurrentStage++
		c.Phase, c.PhaseDone, c.PhaseTotal, c.StageMetAt = phaseRequesting, 0, 0, db.Time{}
		action, message = "campaign.promote", fmt.Sprintf(
			"campaign %s went on to stage %d of %d by itself", c.Name, c.CurrentStage+1, len(c.Stages.V),
		)
	case campaign.Pause:
		c.PausedReason = reason
		action, message = "campaign.pause", "campaign "+c.Name+" waits for a decision: "+reason
	case campaign.Abort:
		c.Status, c.PausedReason, c.FinishedAt = campaign.Aborted, reason, db.At(s.now())
		action, message = "campaign.abort", "campaign "+c.Name+" aborted itself: "+reason
	case campaign.Complete:
		c.Status, c.FinishedAt = campaign.Completed, db.At(s.now())
		action, message = "campaign.complete", "campaign "+c.Name+" is complete"
	}
	_, err := s.writeCampaign(ctx, tx, was, c, action, message)
	return err
}

func (s *Service) deviceDeadline(c Campaign) db.Time {
	return db.At(s.now().Add(-time.Duration(c.DeviceTimeoutSeconds) * time.Second))
}

// lateDevices counts the devices that failLateDevices would fail.
func (s *Service) lateDevices(ctx context.Context, q db.Querier, c Campaign) (n int64, err error) {
	if c.DeviceTimeoutSeconds == 0 || c.Status != campaign.Running {
		return 0, nil
	}
	err = q.Get(
		ctx, &n,
		"SELECT count(*) FROM campaign_devices WHERE campaign_id = ? AND outcome IN ('pending', 'in_progress') AND requested_at < ?",
		c.ID, s.deviceDeadline(c),
	)
	return n, err
}

func (s *Service) decide(ctx context.Context, q db.Querier, c Campaign) (campaign.Decision, string, error) {
	if c.Status != campaign.Running || c.Phase != phaseIdle {
		return campaign.Wait, "", nil
	}
	counts, err := countCampaign(ctx, q, c.ID, c.CurrentStage)
	if err != nil {
		return campaign.Wait, "", err
	}
	// Devices of later stages have stage -1, so they are counted too. Removed devices may be in
	// either group.
	counts.Waiting = 0
	soaked := time.Duration(-1)
	if !c.StageMetAt.IsZero() {
		soaked = s.now().Sub(c.StageMetAt.Time)
	}
	decision, reason := campaign.Decide(campaign.Plan{
		SuccessThreshold: c.SuccessThreshold, FailureThreshold: c.FailureThreshold, MinDevices: c.MinDevices,
		Soak: time.Duration(c.SoakSeconds) * time.Second, AutoPromote: c.AutoPromote, AutoAbort: c.AutoAbort,
	}, campaign.State{Asked: counts, FinalStage: c.finalStage(), Paused: c.PausedReason != "", Soaked: soaked})
	return decision, reason, nil
}
