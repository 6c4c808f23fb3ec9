package edge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/campaign"
	"github.com/mainstay-infra/mainstay/service/edge/ota"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Targets selects the devices of a campaign: those named, plus those that have all the labels and,
// if sites are named, belong to one of them.
type Targets struct {
	SiteIDs   []string          `json:"site_ids,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	DeviceIDs []string          `json:"device_ids,omitempty"`
}

func (t Targets) empty() bool { return len(t.SiteIDs)+len(t.Labels)+len(t.DeviceIDs) == 0 }

// matcher returns a function that reports whether a device is a target.
func (t Targets) matcher() func(*Device) bool {
	devices, sites := setOf(t.DeviceIDs), setOf(t.SiteIDs)
	return func(d *Device) bool {
		if devices[d.DeviceID] {
			return true
		}
		if len(sites) == 0 && len(t.Labels) == 0 || len(sites) > 0 && !sites[d.SiteID] {
			return false
		}
		for k, v := range t.Labels {
			if got, ok := d.Labels.V[k]; !ok || got != v {
				return false
			}
		}
		return true
	}
}

func setOf(ids []string) map[string]bool {
	all := make(map[string]bool, len(ids))
	for _, id := range ids {
		all[id] = true
	}
	return all
}

// Outcomes of a device in a campaign.
const (
	outcomeWaiting    = "waiting" // not asked yet: in a later stage, or to be asked again
	outcomePending    = "pending" // asked to update
	outcomeInProgress = "in_progress"
	outcomeSucceeded  = "succeeded"
	outcomeFailed     = "failed"
	outcomeRemoved    = "removed" // the device was deleted or its site revoked; excluded from all counts
)

func outcomeOf(state ota.State) string {
	switch {
	case state == ota.Pending:
		return outcomePending
	case state.Good():
		return outcomeSucceeded
	case state.Terminal():
		return outcomeFailed
	}
	return outcomeInProgress
}

// Phases of a stage's rollout, which a background job carries out.
const (
	phaseIdle       = "idle"
	phaseSelecting  = "selecting"  // the targets are being frozen
	phaseRequesting = "requesting" // the stage's devices are being asked
	phaseRetrying   = "retrying"   // failed devices are being asked again
)

// Campaign is a staged update of many devices.
type Campaign struct {
	ID                   string           `db:"id"`
	OrgID                string           `db:"org_id"`
	Name                 string           `db:"name"`
	Version              string           `db:"version"`
	URL                  string           `db:"url"`
	SHA256               string           `db:"sha256"`
	Size                 int64            `db:"size"`
	Targets              db.JSON[Targets] `db:"targets"`
	Stages               db.JSON[[]int]   `db:"stages"`
	SuccessThreshold     float64          `db:"success_threshold"`
	FailureThreshold     float64          `db:"failure_threshold"`
	MinDevices           int64            `db:"min_devices"`
	SoakSeconds          int64            `db:"soak_seconds"`
	DeviceTimeoutSeconds int64            `db:"device_timeout_seconds"`
	AutoPromote          bool             `db:"auto_promote"`
	AutoAbort            bool             `db:"auto_abort"`
	Status               campaign.Status  `db:"status"`
	CurrentStage         int              `db:"current_stage"`
	PausedReason         string           `db:"paused_reason"`
	Phase                string           `db:"phase"`
	PhaseDone            int64            `db:"phase_done"`
	PhaseTotal           int64            `db:"phase_total"`
	CreatedAt            db.Time          `db:"created_at"`
	StartedAt            db.Time          `db:"started_at"`
	StageStartedAt       db.Time          `db:"stage_started_at"`
	StageMetAt           db.Time          `db:"stage_met_at"`
	FinishedAt           db.Time          `db:"finished_at"`
	Search               string           `db:"search"` // what a search looks at (package search)

	Counts campaign.Counts `db:"-"`
}

func (c *Campaign) searchText() string {
	return search.Text(nil, c.ID, c.Name, c.Version, c.SHA256, c.URL)
}

// described returns the ID, and the column search.
func (c *Campaign) described() (id, text string) { return c.ID, c.searchText() }

func (c *Campaign) finalStage() bool { return c.CurrentStage == len(c.Stages.V)-1 }

// CreateCampaign stores a draft campaign. It refuses targets outside the caller's org.
func (s *Service) CreateCampaign(ctx context.Context, c Campaign) (Campaign, error) {
	if err := text.Check("name", c.Name); err != nil {
		return c, err
	}
	if err := checkArtifact(c.Version, c.URL); err != nil {
		return c, err
	}
	if len(c.Stages.V) == 0 {
		c.Stages.V = []int{5, 25, 100}
	}
	if err := campaign.CheckStages(c.Stages.V); err != nil {
		return c, err
	}
	t := c.Targets.V
	if t.empty() {
		return c, fault.InvalidField("targets", "must name site_ids, labels or device_ids")
	}
	if err := checkNamed("-", t.Labels); err != nil {
		return c, err
	}
	caller := callerFrom(ctx)
	if err := s.checkTargets(ctx, caller, "site_ids", "sites", "id", t.SiteIDs); err != nil {
		return c, err
	}
	if err := s.checkTargets(ctx, caller, "device_ids", "devices", "device_id", t.DeviceIDs); err != nil {
		return c, err
	}
	c.ID, c.OrgID, c.Status, c.CurrentStage, c.Phase = newID(), caller.OrgID, campaign.Draft, -1, phaseIdle
	c.SHA256, c.CreatedAt = strings.ToLower(c.SHA256), db.At(s.now())
	c.Search = c.searchText()
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if err := keepOrg(ctx, tx, c.OrgID); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "campaigns", c); err != nil {
			return err
		}
		tally.Add(tx, c.OrgID, tally.Campaign, string(c.Status), 1)
		return s.record(ctx, tx, entry{
			Action:  "campaign.create",
			Target:  c.ID,
			OrgID:   c.OrgID,
			Message: "campaign " + c.Name + " drafted",
			Detail:  map[string]any{"version": c.Version},
		})
	})
	return c, err
}

// checkTargets refuses IDs that do not exist (400). For org callers it refuses those and the IDs of
// other orgs with 403, as the contract requires.
func (s *Service) checkTargets(ctx context.Context, caller Caller, field, table, column string, ids []string) error {
	for chunk := range slices.Chunk(ids, 500) {
		query, args, err := db.In("SELECT "+column+" AS id, org_id FROM "+table+" WHERE "+column+" IN (?)", chunk)
		if err != nil {
			return err
		}
		var found []struct {
			ID    string `db:"id"`
			OrgID string `db:"org_id"`
		}
		if err := s.db.Select(ctx, &found, query, args...); err != nil {
			return err
		}
		known := make(map[string]bool, len(found))
		for _, f := range found {
			if !caller.sees(f.OrgID) {
				return fault.New(fault.Denied, "targets.%s: %s is outside your org", field, f.ID)
			}
			known[f.ID] = true
		}
		for _, id := range chunk {
			if known[id] {
				continue
			}
			if !caller.Global() {
				return fault.New(fault.Denied, "targets.%s: %s is outside your org", field, id)
			}
			return fault.InvalidField("targets."+field, "there is no %s", id)
		}
	}
	return nil
}

// CampaignFilter selects campaigns; zero fields select all.
type CampaignFilter struct {
	Status string
	Paused *bool  // whether they wait for a person; nil: both
	Text   string // must be contained in the id, name, version, or URL or SHA-256 of the artifact, ignoring case
	Sort   string // as the contract has it; empty: newest first
	After  string // the key of the last campaign of the previous page
	Limit  int
}

// scope returns the part of a scope that has the status.
func (f CampaignFilter) scope(scope db.Scope) db.Scope {
	if f.Status != "" {
		scope = scope.And("status = ?", f.Status)
	}
	if f.Paused != nil && *f.Paused {
		scope = scope.And(campaignIsPaused)
	} else if f.Paused != nil {
		scope = scope.And("NOT (" + campaignIsPaused + ")")
	}
	return scope
}

var campaignSorts = list.Sorts{List: "campaigns", Unique: "id", Usual: "-id", By: map[string]list.Column{
	"id": {Name: "id"}, "name": {Name: "name"},
}}

// campaignKey returns the key of a campaign in a list.
func campaignKey(order list.Order, c Campaign) string {
	value := ""
	if order.Word() == "name" {
		value = c.Name
	}
	return order.Key(value, c.ID)
}

// Campaigns lists campaigns in scope.
func (s *Service) Campaigns(ctx context.Context, f CampaignFilter) ([]Campaign, list.Order, error) {
	return s.campaigns(ctx, s.db, f)
}

func (s *Service) campaigns(ctx context.Context, q db.Querier, f CampaignFilter) ([]Campaign, list.Order, error) {
	campaigns := []Campaign{}
	order, err := search.Page{
		Table: "campaigns", ID: "id", Sorts: campaignSorts, Scope: f.scope(callerFrom(ctx).scope()), Text: f.Text,
		Sort: f.Sort, After: f.After, Limit: f.Limit,
	}.Read(ctx, q, &campaigns)
	if err != nil {
		return nil, order, err
	}
	for i := range campaigns {
		if campaigns[i].Counts, err = countCampaign(ctx, q, campaigns[i].ID, -1); err != nil {
			return nil, order, err
		}
	}
	return campaigns, order, nil
}

// Campaign returns one campaign in scope. It first advances a running campaign according to the
// outcomes of its devices.
func (s *Service) Campaign(ctx context.Context, id string) (Campaign, error) {
	c, err := s.campaign(ctx, s.db, id, "")
	if err != nil {
		return c, err
	}
	if c.Status == campaign.Running {
		if err := s.advanceCampaign(asSystem(ctx), id); err != nil {
			return c, err
		}
	}
	return s.readCampaign(ctx, id)
}

// readCampaign returns a campaign in scope with its counts.
func (s *Service) readCampaign(ctx context.Context, id string) (Campaign, error) {
	c, err := s.campaign(ctx, s.db, id, "")
	if err != nil {
		return c, err
	}
	c.Counts, err = countCampaign(ctx, s.db, id, -1)
	return c, err
}

func (s *Service) campaign(ctx context.Context, q db.Querier, id, lock string) (Campaign, error) {
	var c Campaign
	err := q.Get(ctx, &c, "SELECT * FROM campaigns WHERE id = ?"+lock, id)
	if err == nil && !callerFrom(ctx).sees(c.OrgID) {
		err = db.ErrNoRows
	}
	return c, db.NotFound(err, "no campaign %s", id)
}

// countCampaign counts devices by outcome, in the stages up to and including stage, or in all
// stages if stage is -1.
func countCampaign(ctx context.Context, q db.Querier, id string, stage int) (campaign.Counts, error) {
	var rows []struct {
		Outcome string `db:"outcome"`
		N       int64  `db:"n"`
	}
	query, args := "SELECT outcome, count(*) AS n FROM campaign_devices WHERE campaign_id = ?", []any{id}
	if stage >= 0 {
		query, args = query+" AND stage <= ?", append(args, stage)
	}
	if err := q.Select(ctx, &rows, query+" GROUP BY outcome", args...); err != nil {
		return campaign.Counts{}, err
	}
	var c campaign.Counts
	for _, r := range rows {
		switch r.Outcome {
		case outcomeWaiting:
			c.Waiting = r.N
		case outcomePending:
			c.Pending = r.N
		case outcomeInProgress:
			c.InProgress = r.N
		case outcomeSucceeded:
			c.Succeeded = r.N
		case outcomeFailed:
			c.Failed = r.N
		case outcomeRemoved:
			c.Removed = r.N
		}
	}
	return c, nil
}

// CampaignDevice is a device's part in a campaign.
type CampaignDevice struct {
	CampaignID  string  `db:"campaign_id"`
	DeviceID    string  `db:"device_id"`
	Position    string  `db:"position"`
	Stage       int     `db:"stage"`
	Outcome     string  `db:"outcome"`
	RequestID   string  `db:"request_id"`
	RequestedAt db.Time `db:"requested_at"`
	Message     string  `db:"message"`
	SiteID      string  `db:"site_id"`
}

// CampaignDevices lists a campaign's devices in rollout order, starting after the given position.
func (s *Service) CampaignDevices(ctx context.Context, id, outcome, after string, limit int) ([]CampaignDevice, error) {
	if _, err := s.campaign(ctx, s.db, id, ""); err != nil {
		return nil, err
	}
	query, args := "SELECT c.*, COALESCE(d.site_id, '') AS site_id FROM campaign_devices c LEFT JOIN devices d ON d.device_id = c.device_id WHERE c.campaign_id = ? AND c.position > ?", []any{
		id,
		after,
	}
	if outcome != "" {
		query, args = query+" AND c.outcome = ?", append(args, outcome)
	}
	devices := []CampaignDevice{}
	err := s.db.Select(ctx, &devices, query+" ORDER BY c.position LIMIT ?", append(args, limit)...)
	return devices, err
}

// settleCampaignDevice records the outcome of a device's update in its campaign. A device that took too
// long has failed. Of its later reports, only a success counts.
func settleCampaignDevice(
	ctx context.Context, tx *db.Tx, campaignID, deviceID, requestID, outcome, message string,
) error {
	_, err := tx.Exec(
		ctx,
		`UPDATE campaign_devices SET outcome = ?, message = ? WHERE campaign_id = ? AND device_id = ? AND request_id = ?
		AND (outcome IN ('pending', 'in_progress') OR outcome IN ('failed', 'waiting') AND ? = 'succeeded')`,
		outcome, message, campaignID, deviceID, requestID, outcome,
	)
	return err
}

// removeFromCampaigns marks devices that are being deleted as removed in their campaigns. The
// condition applies to the table devices.
func removeFromCampaigns(ctx context.Context, tx *db.Tx, condition string, args ...any) error {
	_, err := tx.Exec(
		ctx,
		"UPDATE campaign_devices SET outcome = 'removed' WHERE device_id IN (SELECT device_id FROM devices WHERE "+condition+")",
		args...)
	return err
}

// StartCampaign freezes a draft's targets and starts its first stage.
func (s *Service) StartCampaign(ctx context.Context, id string) (Campaign, error) {
	return s.moveCampaign(ctx, id, "campaign.start", func(c *Campaign) error {
		if c.Status != campaign.Draft {
			return errCampaign(c, "can be started only as a draft")
		}
		c.Status, c.CurrentStage, c.StartedAt = campaign.Running, 0, db.At(s.now())
		c.Phase, c.PhaseDone, c.PhaseTotal = phaseSelecting, 0, 0
		return nil
	})
}

// PromoteCampaign continues to the next stage, whether or not the thresholds are met: it carries
// out a person's decision.
func (s *Service) PromoteCampaign(ctx context.Context, id string) (Campaign, error) {
	return s.moveCampaign(ctx, id, "campaign.promote", func(c *Campaign) error {
		switch {
		case c.Status != campaign.Running:
			return errCampaign(c, "can be promoted only while it runs")
		case c.finalStage():
			return errCampaign(c, "is in its last stage")
		case c.Phase != phaseIdle:
			return errCampaign(c, "has not asked all devices of its present stage")
		}
		c.CurrentStage++
		c.PausedReason, c.StageMetAt = "", db.Time{}
		c.Phase, c.PhaseDone, c.PhaseTotal = phaseRequesting, 0, 0
		return nil
	})
}

// PauseCampaign stops asking devices until the campaign is resumed. Devices that were asked already
// finish their updates.
func (s *Service) PauseCampaign(ctx context.Context, id string) (Campaign, error) {
	return s.moveCampaign(ctx, id, "campaign.pause", func(c *Campaign) error {
		switch {
		case c.Status != campaign.Running:
			return errCampaign(c, "can be paused only while it runs")
		case c.PausedReason != "":
			return errCampaign(c, "is paused already")
		}
		c.PausedReason = "paused by " + callerFrom(ctx).actor()
		return nil
	})
}

// ResumeCampaign continues a paused campaign where it was. If too many of its devices have failed, it
// pauses again.
func (s *Service) ResumeCampaign(ctx context.Context, id string) (Campaign, error) {
	return s.moveCampaign(ctx, id, "campaign.resume", func(c *Campaign) error {
		if c.Status != campaign.Running || c.PausedReason == "" {
			return errCampaign(c, "is not paused")
		}
		c.PausedReason = ""
		return nil
	})
}

// AbortCampaign ends a campaign. Updates that devices have already started continue.
func (s *Service) AbortCampaign(ctx context.Context, id string) (Campaign, error) {
	return s.moveCampaign(ctx, id, "campaign.abort", func(c *Campaign) error {
		if c.Status != campaign.Draft && c.Status != campaign.Running {
			return errCampaign(c, "is over")
		}
		c.abort(s.now())
		return nil
	})
}

func (c *Campaign) abort(now time.Time) {
	c.Status, c.PausedReason, c.Phase, c.FinishedAt = campaign.Aborted, "", phaseIdle, db.At(now)
}

// shownStatus returns the status for people: a running campaign may be paused.
func (c *Campaign) shownStatus() string {
	if c.Status == campaign.Running && c.PausedReason != "" {
		return "paused"
	}
	return string(c.Status)
}

func errCampaign(c *Campaign, why string) error {
	return fault.New(
		fault.Conflict, "campaign %s %s; it is %s in stage %d of %d", c.ID, why, c.shownStatus(), c.CurrentStage+1,
		len(c.Stages.V),
	).WithCode("illegal_transition")
}

// moveCampaign applies a person's decision and waits up to 3 s for the job that carries it out, so
// that the response for a small campaign shows the result.
func (s *Service) moveCampaign(ctx context.Context, id, action string, decide func(*Campaign) error) (Campaign, error) {
	return s.moveCampaignIn(ctx, id, action, func(_ *db.Tx, c *Campaign) error { return decide(c) })
}

// moveCampaignIn is moveCampaign for decisions that change more than the campaign's row.
func (s *Service) moveCampaignIn(
	ctx context.Context, id, action string, decide func(*db.Tx, *Campaign) error,
) (Campaign, error) {
	var job string
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		c, err := s.campaign(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		was := c.Status
		if err := decide(tx, &c); err != nil {
			return err
		}
		job, err = s.writeCampaign(
			ctx, tx, was, c, action,
			fmt.Sprintf("campaign %s: %s, stage %d of %d", c.Name, c.shownStatus(), c.CurrentStage+1, len(c.Stages.V)),
		)
		return err
	})
	if err != nil {
		return Campaign{}, err
	}
	if job != "" {
		waiting, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		// The job of a large campaign continues after the response, which shows its progress.
		if _, err := s.jobs.Wait(waiting, job); err != nil && waiting.Err() == nil {
			return Campaign{}, err
		}
	}
	return s.readCampaign(ctx, id)
}

// writeCampaign stores a campaign's new state, reports it, and enqueues the rollout job if the new
// phase needs one. It returns the ID of that job.
func (s *Service) writeCampaign(
	ctx context.Context, tx *db.Tx, was campaign.Status, c Campaign, action, message string,
) (job string, err error) {
	if _, err := tx.Exec(
		ctx,
		`UPDATE campaigns SET status = ?, current_stage = ?, paused_reason = ?, phase = ?, phase_done = ?, phase_total = ?,
		started_at = ?, stage_started_at = ?, stage_met_at = ?, finished_at = ? WHERE id = ?`,
		string(c.Status),
		c.CurrentStage,
		c.PausedReason,
		c.Phase,
		c.PhaseDone,
		c.PhaseTotal,
		c.StartedAt,
		c.StageStartedAt,
		c.StageMetAt,
		c.FinishedAt,
		c.ID,
	); err != nil {
		return "", err
	}
	if c.Status == campaign.Aborted {
		if err := unmarkFailed(ctx, tx, c.ID); err != nil {
			return "", err
		}
	}
	tally.Move(tx, c.OrgID, tally.Campaign, string(was), string(c.Status))
	level := levelInfo
	switch {
	case c.Status == campaign.Aborted || c.PausedReason != "":
		level = levelWarn
	case c.Status == campaign.Completed:
		level = levelOK
	}
	if _, err := s.tell(
		ctx, tx, Activity{Level: level, OrgID: c.OrgID, Chapter: "campaigns", Action: action, Message: message},
	); err != nil {
		return "", err
	}
	tx.OnCommit(s.nudgeAlerts)
	if err := s.record(ctx, tx, entry{Action: action, Target: c.ID, OrgID: c.OrgID, Message: message}); err != nil {
		return "", err
	}
	if c.Phase == phaseIdle || c.PausedReason != "" {
		return "", nil
	}
	return s.enqueueRollout(ctx, tx, c)
}
