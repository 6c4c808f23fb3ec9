package edge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
)

func TestAPausedCampaignAsksNobodyUntilItIsResumed(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 4)
		cp := c.campaign(site, object{"stages": []int{50, 100}, "auto_promote": true})
		path := "/ota/campaigns/" + cp.Id
		c.call("POST", path+"/pause", adminToken, nil).Refused(409, "illegal_transition", "")
		c.call("POST", path+"/resume", adminToken, nil).Refused(409, "illegal_transition", "")
		c.call("POST", path+"/start", adminToken, nil).Want(200)
		paused := contracttest.As[edgeapi.Campaign](c.call("POST", path+"/pause", adminToken, nil).Want(200))
		if paused.Status != "running" || !strings.HasPrefix(paused.PausedReason, "paused by ") {
			c.Errorf("%+v", paused)
		}
		c.call("POST", path+"/pause", adminToken, nil).Refused(409, "illegal_transition", "")
		for _, d := range c.asked(cp.Id) {
			c.ota(agent, site, d, "succeeded", nil).Want(200)
		}
		c.ahead(time.Minute)
		c.maintain() // it would be promoted by itself
		if got := c.readCampaign(cp.Id); got.CurrentStage != 0 || len(c.asked(cp.Id)) != 0 {
			c.Errorf("a paused campaign is in stage %d", got.CurrentStage)
		}
		c.call("POST", path+"/resume", adminToken, nil).Want(200)
		c.eventually("the next stage", func() bool { c.maintain(); return len(c.asked(cp.Id)) == 2 })
		c.call("POST", path+"/pause", viewerToken, nil).Want(403)
	})
}

// The job that asks the devices of a stage ends when the campaign is paused.
func TestACampaignThatIsPausedWhileItAsksItsDevicesAsksTheOthersWhenItIsResumed(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, _ := c.fleet("a", 4)
		cp := c.campaign(site, object{"stages": []int{50, 100}})
		path := "/ota/campaigns/" + cp.Id
		c.call("POST", path+"/start", adminToken, nil).Want(200)
		if err := c.service.DB().Update(c.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(
				c.Context(),
				`UPDATE campaigns SET current_stage = 1, phase = 'requesting', phase_done = 0, phase_total = 0,
				paused_reason = 'paused by ops' WHERE id = ?`, cp.Id,
			)
			return err
		}); err != nil {
			c.Fatal(err)
		}
		c.maintain()
		c.call("POST", path+"/promote", adminToken, nil).Refused(409, "illegal_transition", "")
		if n := len(c.asked(cp.Id)); n != 2 {
			c.Errorf("%d devices were asked", n)
		}
		got := contracttest.As[edgeapi.Campaign](c.call("POST", path+"/resume", adminToken, nil).Want(200))
		if got.Rollout.Phase != "idle" || len(c.asked(cp.Id)) != 4 {
			c.Errorf("%+v, asked %d", got.Rollout, len(c.asked(cp.Id)))
		}
	})
}

func TestFailedDevicesAreAskedAgainAndCountAsTheyThenTurnOut(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 4)
		cp := c.campaign(site, object{"stages": []int{100}, "failure_threshold": 0.4, "success_threshold": 0.5})
		path := "/ota/campaigns/" + cp.Id
		c.call("POST", path+"/retry", adminToken, nil).Refused(409, "illegal_transition", "")
		c.call("POST", path+"/start", adminToken, nil).Want(200)
		c.call("POST", path+"/retry", adminToken, nil).Refused(409, "illegal_transition", "") // nothing has failed
		devices := c.asked(cp.Id)
		for _, d := range devices[:3] {
			c.ota(agent, site, d, "failed", object{"message": "no power"}).Want(200)
		}
		if got := c.readCampaign(cp.Id); got.PausedReason == "" {
			c.Errorf("%+v", got)
		}
		c.call("POST", path+"/resume", adminToken, nil).Want(200)
		if got := c.readCampaign(cp.Id); got.PausedReason == "" || got.Counts.Failed != 3 {
			c.Errorf("it continues with too many failures: %+v", got)
		}

		// One by name; the campaign continues, since half of its devices may fail.
		one := object{"device_ids": []string{devices[0], "of-nobody"}}
		got := contracttest.As[edgeapi.Campaign](c.call("POST", path+"/retry", adminToken, one).Want(200))
		if got.Counts.Failed != 2 || got.Counts.Pending != 2 || got.Rollout.Phase != "idle" {
			c.Errorf("%+v %+v", got.Counts, got.Rollout)
		}
		c.ota(agent, site, devices[0], "succeeded", nil).Want(200)

		// An empty list is not all of them.
		c.call("POST", path+"/retry", adminToken, object{"device_ids": []string{}}).Refused(400, "invalid", "device_ids")

		// The others; but one of them has been asked for another update since.
		c.call("POST", "/devices/"+devices[1]+"/ota", adminToken, artifact("10")).Want(200)
		got = contracttest.As[edgeapi.Campaign](c.call("POST", path+"/retry", adminToken, object{}).Want(200))
		if got.PausedReason != "" || got.Counts.Failed != 1 || got.Counts.Waiting != 0 {
			c.Errorf("%+v %q", got.Counts, got.PausedReason)
		}
		asked := c.asked(cp.Id)
		if !slices.Contains(asked, devices[2]) || slices.Contains(asked, devices[1]) {
			c.Errorf("asked again: %v of %v", asked, devices)
		}
		for _, d := range asked {
			c.ota(agent, site, d, "succeeded", nil).Want(200)
		}
		c.eventually("completion", func() bool { return c.readCampaign(cp.Id).Status == "completed" })

		// What is left of a completed campaign.
		c.ota(agent, site, devices[1], "succeeded", nil).Want(200)
		got = contracttest.As[edgeapi.Campaign](c.call("POST", path+"/retry", adminToken, nil).Want(200))
		c.eventually("completion", func() bool { return c.readCampaign(cp.Id).Status == "completed" })
		if n := got.Counts; n.Failed != 1 || n.Succeeded != 3 {
			c.Errorf("%+v", n)
		}
	})
}

// failAll fails all devices of a new campaign by its time limit.
func (c *control) failAll(n int) (cp edgeapi.Campaign, site, agent string) {
	c.Helper()
	site, agent = c.fleet("a", n)
	cp = c.campaign(site, object{"stages": []int{100}, "device_timeout_seconds": 60})
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).Want(200)
	c.eventually("all are asked", func() bool { return len(c.asked(cp.Id)) == n })
	c.ahead(2 * time.Minute)
	if got := c.readCampaign(cp.Id); got.Counts.Failed != int64(n) {
		c.Fatalf("%+v", got.Counts)
	}
	return cp, site, agent
}

// messages counts the devices of a campaign with an outcome by message.
func (c *control) messages(id, outcome string) map[string]int {
	c.Helper()
	by := map[string]int{}
	for _, d := range contracttest.As[[]edgeapi.CampaignDevice](
		c.call("GET", "/ota/campaigns/"+id+"/devices?limit=1000&outcome="+outcome, viewerToken, nil).Want(200)) {
		by[d.Message]++
	}
	return by
}

func TestDevicesThatWereToBeAskedAgainAreFailedWhenTheirCampaignIsAborted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ devices, pages, asked int }{{3, 0, 0}, {120, 0, 0}, {120, 1, 50}, {120, 3, 120}} {
		t.Run(fmt.Sprintf("%d devices, %d pages", tt.devices, tt.pages), func(t *testing.T) {
			t.Parallel()
			engines(t, func(c *control) {
				cp, _, _ := c.failAll(tt.devices)
				if err := c.service.RetryAndAbort(c.Context(), cp.Id, tt.pages); err != nil {
					c.Fatal(err)
				}
				got := c.readCampaign(cp.Id)
				if got.Status != "aborted" || got.Counts.Waiting != 0 || got.Counts.Pending != int64(tt.asked) ||
					got.Counts.Failed != int64(tt.devices-tt.asked) {
					c.Errorf("%+v: %+v", got.Status, got.Counts)
				}
				if by := c.messages(cp.Id, "failed"); by["not finished within 60 s"] != tt.devices-tt.asked {
					c.Errorf("%v", by)
				}
				c.maintain()
				if n := c.readCampaign(cp.Id).Counts; n != got.Counts {
					c.Errorf("later: %+v", n)
				}
			})
		})
	}
}

func TestASuccessAfterTheTimeLimitCounts(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		cp, site, agent := c.failAll(4)
		path := "/ota/campaigns/" + cp.Id
		devices := contracttest.As[[]edgeapi.CampaignDevice](
			c.call("GET", path+"/devices", viewerToken, nil).Want(200))
		report := func(i int, state string) { c.ota(agent, site, devices[i].DeviceId, state, nil).Want(200) }
		// Only the end counts, and only if it is good.
		for i := range 3 {
			report(i, "installing")
		}
		if n := c.readCampaign(cp.Id).Counts; n.Failed != 4 {
			c.Errorf("installing: %+v", n)
		}
		report(0, "succeeded")
		report(1, "failed")
		if n := c.readCampaign(cp.Id).Counts; n.Failed != 3 || n.Succeeded != 1 {
			c.Errorf("one has succeeded: %+v", n)
		}
		// An older version has not counted this success.
		report(2, "succeeded")
		c.change(
			"UPDATE campaign_devices SET outcome = 'failed', message = 'late' WHERE campaign_id = ? AND device_id = ?",
			cp.Id, devices[2].DeviceId,
		)
		got := contracttest.As[edgeapi.Campaign](c.call("POST", path+"/retry", adminToken, nil).Want(200))
		if n := got.Counts; n.Succeeded != 2 || n.Pending != 2 || n.Failed != 0 {
			c.Errorf("retried: %+v", n)
		}
		if asked := c.asked(cp.Id); slices.Contains(asked, devices[0].DeviceId) || slices.Contains(asked, devices[2].DeviceId) {
			c.Errorf("asked again: %v", asked)
		}
		if n := len(c.all("/devices?ota_state=succeeded", viewerToken)); n != 2 {
			c.Errorf("%d devices have succeeded", n)
		}
		report(1, "succeeded")
		// A success is also counted after the campaign has ended.
		c.call("POST", path+"/abort", adminToken, nil).Want(200)
		report(3, "succeeded")
		if n := c.readCampaign(cp.Id).Counts; n.Succeeded != 4 {
			c.Errorf("at the end: %+v", n)
		}
	})
}

func TestARetryReachesOnlyCampaignsInScopeThatAreNotAborted(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.fleet("a", 2)
	cp := c.campaign(site, object{"stages": []int{100}, "auto_abort": true})
	path := "/ota/campaigns/" + cp.Id
	c.call("POST", path+"/start", adminToken, nil).Want(200)
	other := contracttest.As[edgeapi.NewOrg](c.call("POST", "/orgs", adminToken, object{"name": "other"}).Want(201))
	for _, step := range []string{"/pause", "/resume", "/retry"} {
		c.call("POST", path+step, other.AdminToken, nil).Want(404)
		c.call("POST", path+step, other.ViewerToken, nil).Want(403)
	}
	for _, d := range c.asked(cp.Id) {
		c.ota(agent, site, d, "failed", nil).Want(200)
	}
	c.eventually("the end", func() bool { return c.readCampaign(cp.Id).Status == "aborted" })
	c.call("POST", path+"/retry", adminToken, nil).Refused(409, "illegal_transition", "")
}

func TestACampaignThatAPersonHasPausedStillAbortsItself(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.fleet("a", 2)
	cp := c.campaign(site, object{"stages": []int{100}, "auto_abort": true})
	path := "/ota/campaigns/" + cp.Id
	c.call("POST", path+"/start", adminToken, nil).Want(200)
	c.call("POST", path+"/pause", adminToken, nil).Want(200)
	c.ota(agent, site, c.asked(cp.Id)[0], "failed", nil).Want(200)
	got := c.readCampaign(cp.Id)
	if got.Status != "aborted" || got.PausedReason != "1 of 2 devices failed, more than 10 %" {
		c.Errorf("%s: %q", got.Status, got.PausedReason)
	}
	c.call("POST", path+"/retry", adminToken, nil).Refused(409, "illegal_transition", "")
}

func TestTargetsAreCountedAsACampaignWouldSelectThem(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 3)
		c.call("POST", "/devices/register", agent, object{"device_id": "special", "labels": object{"line": "b"}}).Want(201)
		// More than the column holds that a search looks at, in which labels are last.
		wordy := object{"zone": "ΟΔΟΣ", "odd": `50%_\`}
		for i := range 12 {
			wordy[fmt.Sprintf("k%02d", i)] = strings.Repeat("é", 60)
		}
		c.call("POST", "/devices/register", agent, object{"device_id": "wordy", "labels": wordy}).Want(201)
		c.call("POST", "/devices/register", agent, object{"device_id": "brief", "labels": object{"zone": "ΟΔΟΣ", "odd": `50%_\`}}).Want(201)
		gone, _ := c.fleet("gone", 2)
		c.call("POST", "/sites/"+gone+"/revoke", adminToken, nil).Want(200)
		other := contracttest.As[edgeapi.NewOrg](
			c.call("POST", "/orgs", adminToken, object{"name": "other"}).Want(201))
		for _, tt := range []struct {
			targets object
			token   string
			want    int64
		}{
			{object{"site_ids": []string{site}}, viewerToken, 6},
			{object{"site_ids": []string{site, gone}}, viewerToken, 6},
			{object{"labels": object{"zone": "ΟΔΟΣ"}}, viewerToken, 2},
			{object{"labels": object{"zone": "ΟΔΟΣ", "odd": `50%_\`}}, viewerToken, 2},
			{object{"labels": object{"zone": "ΟΔΟΣ", "k11": strings.Repeat("é", 60)}}, viewerToken, 1},
			{object{"labels": object{"zone": "οδος"}}, viewerToken, 0},
			{object{"labels": object{"zone": "ΟΔΟ"}}, viewerToken, 0},
			{object{"labels": object{"odd": `50__\`}}, viewerToken, 0},
			{object{"labels": object{"line": "b"}}, viewerToken, 1},
			{object{"labels": object{"line": "b"}, "device_ids": []string{"a-001", "nobody"}}, viewerToken, 2},
			{object{"labels": object{"line": "c"}}, viewerToken, 0},
			{object{"site_ids": []string{site}, "device_ids": []string{"a-001"}}, other.ViewerToken, 0},
		} {
			got := contracttest.As[edgeapi.TargetCount](
				c.call("POST", "/ota/campaigns/count-targets", tt.token, tt.targets).Want(200))
			if got.Devices != tt.want {
				c.Errorf("%v counts %d devices, want %d", tt.targets, got.Devices, tt.want)
			}
		}
		c.call("POST", "/ota/campaigns/count-targets", agent, object{}).Want(403)
		for _, none := range []object{{}, {"site_ids": []string{}, "device_ids": []string{}, "labels": object{}}} {
			c.call("POST", "/ota/campaigns/count-targets", viewerToken, none).Refused(400, "invalid", "")
		}
		c.call("POST", "/ota/campaigns/count-targets", viewerToken, object{"site_ids": "a"}).Refused(400, "invalid", "site_ids")
	})
}
