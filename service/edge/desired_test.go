package edge_test

import (
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestASitesNumberChangesExactlyWhenItsAgentHasSomethingToPull(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		_, other := c.site("other", enrollmentToken)
		c.device(agent, "d1")
		revision := func(token string) int64 {
			return contracttest.As[edgeapi.HeartbeatReply](c.call("POST", "/heartbeat", token, nil).Want(200)).DesiredRevision
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
				c.call("POST", "/agent/twins/d1/reported", agent, object{"reported": object{"a": 1}}).Want(200)
			}, false, false},
			{"desired", func() { c.call("PUT", "/twins/d1/desired", adminToken, object{"desired": object{"a": 1}}).Want(200) }, true, false},
			{"a refused desired", func() {
				c.call("PUT", "/twins/d1/desired", adminToken, object{"desired": object{"a": 2}, "expected_version": 77}).Want(409)
			}, false, false},
			{"an update", func() { c.call("POST", "/devices/d1/ota", adminToken, artifact).Want(200) }, true, false},
			{"a deployment", func() {
				deployment = contracttest.As[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, object{"site_id": site, "name": "web", "image": "a/b:1", "version": "1"}).Want(201)).Id
			}, true, false},
			{"a status", func() {
				c.call("POST", "/agent/deployments/"+deployment+"/status", agent, object{"site_id": site, "status": "running"}).Want(200)
			}, false, false},
			{"a new version", func() {
				c.call("PATCH", "/deployments/"+deployment, adminToken, object{"version": "2"}).Want(200)
			}, true, false},
			{"a rollback", func() {
				c.call("POST", "/agent/deployments/"+deployment+"/rollback", agent, object{"site_id": site}).Want(200)
			}, true, false},
			{"the deployment's end", func() { c.call("DELETE", "/deployments/"+deployment, adminToken, nil).Want(204) }, true, false},
			{"a pack of the site", func() {
				pack = contracttest.As[edgeapi.PolicyPack](c.call("POST", "/policy-packs", adminToken, object{"name": "p", "site_id": site}).Want(201)).Id
			}, true, false},
			{"a changed pack", func() { c.call("PATCH", "/policy-packs/"+pack, adminToken, object{"enabled": false}).Want(200) }, true, false},
			{"a pack of the fleet", func() {
				pack = contracttest.As[edgeapi.PolicyPack](c.call("POST", "/policy-packs", adminToken, object{"name": "f"}).Want(201)).Id
			}, true, true},
			{"its end", func() { c.call("DELETE", "/policy-packs/"+pack, adminToken, nil).Want(204) }, true, true},
			{"a campaign", func() {
				draft := object{"name": "spring", "version": "3.0", "url": "https://fw.example/3.0.bin", "sha256": strings.Repeat("cd", 32), "targets": object{"site_ids": []string{site}}, "stages": []int{100}}
				campaign = contracttest.As[edgeapi.Campaign](c.call("POST", "/ota/campaigns", adminToken, draft).Want(201)).Id
				c.call("POST", "/ota/campaigns/"+campaign+"/start", adminToken, nil).Want(200)
				c.eventually("the device is asked", func() bool {
					return contracttest.As[edgeapi.Campaign](c.call("GET", "/ota/campaigns/"+campaign, adminToken, nil).Want(200)).Counts.Pending == 1
				})
			}, true, false},
			{"the device's end", func() { c.call("DELETE", "/devices/d1", adminToken, nil).Want(204) }, true, false},
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
