package edge_test

import (
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

func TestASitesNumberChangesExactlyWhenItsAgentHasSomethingToPull(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		_, other := c.site("other", enrollmentToken)
		c.device(agent, "d1")
		revision := func(token string) int64 {
			return as[edgeapi.HeartbeatReply](c.call("POST", "/heartbeat", token, nil).want(200)).DesiredRevision
		}
		artifact := object{"version": "2.0", "url": "https://fw.example/2.0.bin", "sha256": strings.Repeat("ab", 32)}
		var deployment, pack, campaign string
		for _, step := range []struct {
			name    string
			change  func()
			changes bool
			others  bool // it binds the other site too
		}{
			{"nothing", func() {}, false, false},
			{"a report", func() {
				c.call("POST", "/agent/twins/d1/reported", agent, object{"reported": object{"a": 1}}).want(200)
			}, false, false},
			{"desired", func() { c.call("PUT", "/twins/d1/desired", adminToken, object{"desired": object{"a": 1}}).want(200) }, true, false},
			{"a refused desired", func() {
				c.call("PUT", "/twins/d1/desired", adminToken, object{"desired": object{"a": 2}, "expected_version": 77}).want(409)
			}, false, false},
			{"an update", func() { c.call("POST", "/devices/d1/ota", adminToken, artifact).want(200) }, true, false},
			{"a deployment", func() {
				deployment = as[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, object{"site_id": site, "name": "web", "image": "a/b:1", "version": "1"}).want(201)).Id
			}, true, false},
			{"a status", func() {
				c.call("POST", "/agent/deployments/"+deployment+"/status", agent, object{"site_id": site, "status": "running"}).want(200)
			}, false, false},
			{"a new version", func() {
				c.call("PATCH", "/deployments/"+deployment, adminToken, object{"version": "2"}).want(200)
			}, true, false},
			{"a rollback", func() {
				c.call("POST", "/agent/deployments/"+deployment+"/rollback", agent, object{"site_id": site}).want(200)
			}, true, false},
			{"the deployment's end", func() { c.call("DELETE", "/deployments/"+deployment, adminToken, nil).want(204) }, true, false},
			{"a pack of the site", func() {
				pack = as[edgeapi.PolicyPack](c.call("POST", "/policy-packs", adminToken, object{"name": "p", "site_id": site}).want(201)).Id
			}, true, false},
			{"a changed pack", func() { c.call("PATCH", "/policy-packs/"+pack, adminToken, object{"enabled": false}).want(200) }, true, false},
			{"a pack of the fleet", func() {
				pack = as[edgeapi.PolicyPack](c.call("POST", "/policy-packs", adminToken, object{"name": "f"}).want(201)).Id
			}, true, true},
			{"its end", func() { c.call("DELETE", "/policy-packs/"+pack, adminToken, nil).want(204) }, true, true},
			{"a campaign", func() {
				draft := object{"name": "spring", "version": "3.0", "url": "https://fw.example/3.0.bin", "sha256": strings.Repeat("cd", 32), "targets": object{"site_ids": []string{site}}, "stages": []int{100}}
				campaign = as[edgeapi.Campaign](c.call("POST", "/ota/campaigns", adminToken, draft).want(201)).Id
				c.call("POST", "/ota/campaigns/"+campaign+"/start", adminToken, nil).want(200)
				c.eventually("the device is asked", func() bool {
					return as[edgeapi.Campaign](c.call("GET", "/ota/campaigns/"+campaign, adminToken, nil).want(200)).Counts.Pending == 1
				})
			}, true, false},
			{"the device's end", func() { c.call("DELETE", "/devices/d1", adminToken, nil).want(204) }, true, false},
		} {
			was, otherWas := revision(agent), revision(other)
			step.change()
			if changed := revision(agent) != was; changed != step.changes {
				c.Errorf("%s: changed is %t", step.name, changed)
			}
			if changed := revision(other) != otherWas; changed != step.others {
				c.Errorf("%s: the other site's changed is %t", step.name, changed)
			}
		}
	})
}
