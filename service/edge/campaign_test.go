package edge_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// fleet makes a site with n devices d000, d001, ...
func (c *control) fleet(name string, n int) (site, agent string) {
	c.Helper()
	site, agent = c.site(name, enrollmentToken)
	for i := range n {
		c.device(agent, fmt.Sprintf("%s-%03d", name, i))
	}
	return site, agent
}

func (c *control) campaign(site string, more object) edgeapi.Campaign {
	c.Helper()
	body := artifact("9")
	body["name"], body["targets"] = "spring", object{"site_ids": []string{site}}
	for k, v := range more {
		body[k] = v
	}
	return contracttest.As[edgeapi.Campaign](c.call("POST", "/ota/campaigns", adminToken, body).Want(201))
}

func (c *control) readCampaign(id string) edgeapi.Campaign {
	c.Helper()
	return contracttest.As[edgeapi.Campaign](c.call("GET", "/ota/campaigns/"+id, viewerToken, nil).Want(200))
}

// asked are the devices of a campaign that were asked and have not finished.
func (c *control) asked(id string) []string {
	c.Helper()
	var ids []string
	for _, d := range contracttest.As[[]edgeapi.CampaignDevice](c.call("GET", "/ota/campaigns/"+id+"/devices?limit=1000&outcome=pending", viewerToken, nil).Want(200)) {
		ids = append(ids, d.DeviceId)
	}
	return ids
}

func TestACampaignRollsThroughItsStages(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 20)
		c.fleet("b", 2) // no targets
		cp := c.campaign(site, nil)
		if cp.Status != "draft" || cp.CurrentStage != -1 || !slices.Equal(cp.Stages, []int{5, 25, 100}) {
			c.Errorf("%+v", cp)
		}
		path := "/ota/campaigns/" + cp.Id
		c.call("POST", path+"/promote", adminToken, nil).Refused(409, "illegal_transition", "")
		cp = contracttest.As[edgeapi.Campaign](c.call("POST", path+"/start", adminToken, nil).Want(200))
		if cp.Status != "running" || cp.Counts.Total != 20 || cp.Counts.Pending != 1 || cp.Counts.Waiting != 19 ||
			cp.Rollout.Phase != "idle" {
			c.Errorf("%+v %+v", cp.Counts, cp.Rollout)
		}
		c.call("POST", path+"/start", adminToken, nil).Refused(409, "illegal_transition", "")
		for stage, want := range []int{1, 4, 15} {
			devices := c.asked(cp.Id)
			if len(devices) != want {
				c.Fatalf("stage %d asked %d devices, want %d", stage, len(devices), want)
			}
			for _, d := range devices {
				c.ota(agent, site, d, "installing", nil).Want(200)
				c.ota(agent, site, d, "succeeded", nil).Want(200)
			}
			if stage < 2 {
				c.call("POST", path+"/promote", adminToken, nil).Want(200)
			}
		}
		c.eventually("completion", func() bool { return c.readCampaign(cp.Id).Status == "completed" })
		if cp = c.readCampaign(cp.Id); cp.Counts.Succeeded != 20 || cp.FinishedAt == nil {
			c.Errorf("%+v", cp)
		}
		c.call("POST", path+"/promote", adminToken, nil).Refused(409, "illegal_transition", "")
		c.call("POST", path+"/abort", adminToken, nil).Refused(409, "illegal_transition", "")
	})
}

func TestACampaignPromotesItselfAfterItsSoak(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.fleet("a", 10)
	cp := c.campaign(site, object{"stages": []int{50, 100}, "auto_promote": true, "soak_seconds": 600})
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).Want(200)
	for _, d := range c.asked(cp.Id) {
		c.ota(agent, site, d, "succeeded", nil).Want(200)
	}
	c.maintain()
	if got := c.readCampaign(cp.Id); got.CurrentStage != 0 {
		t.Errorf("promoted without a soak: stage %d", got.CurrentStage)
	}
	c.ahead(11 * time.Minute)
	c.eventually(
		"promotion", func() bool { return c.readCampaign(cp.Id).CurrentStage == 1 && len(c.asked(cp.Id)) == 5 },
	)
}

func TestACampaignStopsAtItsFailureThreshold(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 10)
		for _, auto := range []bool{false, true} {
			cp := c.campaign(
				site, object{"stages": []int{50, 100}, "auto_abort": auto, "failure_threshold": 0.2, "min_devices": 2},
			)
			c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).Want(200)
			devices := c.asked(cp.Id)
			c.ota(agent, site, devices[0], "failed", nil).Want(200)
			if got := c.readCampaign(cp.Id); got.PausedReason != "" || got.Status != "running" {
				c.Errorf("judged before min_devices: %+v", got)
			}
			c.ota(agent, site, devices[1], "rolled_back", nil).Want(409) // not from pending
			c.ota(agent, site, devices[1], "timed_out", nil).Want(200)
			got := c.readCampaign(cp.Id)
			if auto && got.Status != "aborted" || !auto && (got.Status != "running" || got.PausedReason == "") {
				c.Errorf("auto_abort %t: %s, %q", auto, got.Status, got.PausedReason)
			}
			if !auto {
				c.maintain()
				if n := contracttest.As[edgeapi.Overview](
					c.call("GET", "/overview", viewerToken, nil).Want(200),
				).Campaigns; n["paused"] != 1 ||
					n["running"] != 0 {
					c.Errorf("a campaign that waits for a person counts as %v", n)
				}
				if a := c.alerts("campaign_paused"); len(a) != 1 {
					c.Errorf("%+v", a)
				}
				c.call("POST", "/ota/campaigns/"+cp.Id+"/promote", adminToken, nil).Want(200)
				c.call("POST", "/ota/campaigns/"+cp.Id+"/abort", adminToken, nil).Want(200)
			}
		}
	})
}

func TestDevicesThatGoAwayLeaveTheDenominator(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.fleet("a", 4)
		other, _ := c.fleet("b", 4)
		cp := c.campaign(site, object{
			"stages":            []int{100},
			"targets":           object{"site_ids": []string{site, other}},
			"success_threshold": 1,
			"failure_threshold": 1,
		})
		c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).Want(200)
		c.call("POST", "/sites/"+other+"/revoke", adminToken, nil).Want(200)
		c.ota(agent, site, "a-000", "failed", nil).Want(200)
		c.call("DELETE", "/devices/a-000", adminToken, nil).Want(204)
		for _, d := range []string{"a-001", "a-002", "a-003"} {
			c.ota(agent, site, d, "succeeded", nil).Want(200)
		}
		c.eventually("completion", func() bool { return c.readCampaign(cp.Id).Status == "completed" })
		if got := c.readCampaign(cp.Id).Counts; got.Total != 3 || got.Removed != 5 || got.Succeeded != 3 {
			c.Errorf("%+v", got)
		}
	})
}

func TestADeviceThatTakesTooLongCountsAsFailed(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, _ := c.fleet("a", 2)
	cp := c.campaign(site, object{"stages": []int{100}, "device_timeout_seconds": 60})
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).Want(200)
	c.ahead(2 * time.Minute)
	if got := c.readCampaign(cp.Id); got.Counts.Failed != 2 || got.PausedReason == "" {
		t.Errorf("%+v", got)
	}
}

func TestTargetsAreSelectedByLabelAndName(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, agent := c.fleet("a", 3)
	c.call("POST", "/devices/register", agent, object{"device_id": "special", "labels": object{"line": "b"}}).Want(201)
	cp := c.campaign(
		site,
		object{"stages": []int{100}, "targets": object{"labels": object{"line": "b"}, "device_ids": []string{"a-001"}}},
	)
	c.call("POST", "/ota/campaigns/"+cp.Id+"/start", adminToken, nil).Want(200)
	got := c.asked(cp.Id)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a-001", "special"}) {
		t.Errorf("%v", got)
	}
	for name, change := range map[string]object{
		"targets":              {"targets": object{}},
		"targets.site_ids":     {"targets": object{"site_ids": []string{"nowhere"}}},
		"stages":               {"stages": []int{10, 50}},
		"stages.1":             {"stages": []int{50, 10, 100}},
		"failure_threshold":    {"failure_threshold": 1.5},
		"targets.device_ids.0": {"targets": object{"device_ids": []any{1}}},
	} {
		body := artifact("9")
		body["name"], body["targets"] = "x", object{"site_ids": []string{site}}
		for k, v := range change {
			body[k] = v
		}
		c.call("POST", "/ota/campaigns", adminToken, body).Refused(400, "invalid", name)
	}
}
