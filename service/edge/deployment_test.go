package edge_test

import (
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

func TestADeploymentMovesBetweenControlPlaneAndAgent(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		create := object{"site_id": site, "name": "web", "image": "ghcr.io/acme/web:1", "version": "1"}
		d := as[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, create).want(201))
		if d.Status != "pending" || d.Revision != 1 || d.DesiredState != "running" || d.Previous != nil {
			c.Errorf("%+v", d)
		}
		c.call("POST", "/deployments", adminToken, create).want(409)
		report := func(status string, revision int) answer {
			return c.call("POST", "/agent/deployments/"+d.Id+"/status", agent, object{"site_id": site, "status": status, "observed_revision": revision})
		}
		report("running", 1).want(200)
		report("running", 7).refused(400, "invalid", "observed_revision")
		d = as[edgeapi.Deployment](c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"image": "ghcr.io/acme/web:2", "version": "2"}).want(200))
		if d.Revision != 2 || d.Previous == nil || d.Previous.Version != "1" || d.Status != "pending" {
			c.Errorf("%+v", d)
		}
		report("failed", 2).want(200)
		if late := as[edgeapi.Deployment](report("running", 1).want(200)); late.Status != "failed" {
			c.Errorf("a late report on revision 1 counted: %+v", late)
		}
		c.maintain()
		if a := c.alerts("deployment_failed"); len(a) != 1 {
			c.Errorf("%+v", a)
		}
		rollback := func() edgeapi.RollbackResult {
			return as[edgeapi.RollbackResult](c.call("POST", "/agent/deployments/"+d.Id+"/rollback", agent, object{"site_id": site, "reason": "crash"}).want(200))
		}
		if r := rollback(); !r.RolledBack || r.Deployment.Version != "1" || r.Deployment.Status != "rolled_back" || r.Deployment.Revision != 3 {
			c.Errorf("%+v", r)
		}
		if r := rollback(); r.RolledBack {
			c.Errorf("rolled back twice: %+v", r)
		}
		stopped := as[edgeapi.Deployment](c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "stopped"}).want(200))
		if stopped.DesiredState != "stopped" {
			c.Errorf("%+v", stopped)
		}
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "asleep"}).refused(400, "invalid", "desired_state")
		c.call("PATCH", "/deployments/none", adminToken, object{}).want(404)
		c.call("DELETE", "/deployments/"+d.Id, adminToken, nil).want(204)
		c.call("DELETE", "/deployments/"+d.Id, adminToken, nil).want(404)
		if list := as[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).want(200)); len(list) != 0 {
			c.Errorf("%+v", list)
		}
	})
}

func TestPolicyPacksDecideWhatASiteMayRun(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		deploy := func(name, image string) answer {
			return c.call("POST", "/deployments", adminToken, object{"site_id": site, "name": name, "image": image, "version": "1"})
		}
		before := as[edgeapi.Deployment](deploy("before", "evil.example/miner").want(201))
		fleet := as[edgeapi.PolicyPack](c.call("POST", "/policy-packs", adminToken, object{"name": "fleet", "allowed_images": []string{"ghcr.io/acme/*"}}).want(201))
		deploy("good", "ghcr.io/acme/web:1").want(201)
		deploy("bad", "evil.example/miner").refused(403, "image_not_allowed", "")
		deploy("worse", "not an image").refused(400, "invalid", "image")
		c.call("PATCH", "/deployments/"+before.Id, adminToken, object{"desired_state": "running"}).refused(403, "image_not_allowed", "")

		// What runs already is judged again: the agent is told, and so is the operator.
		for _, d := range as[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).want(200)) {
			if d.Allowed != (d.Name == "good") {
				c.Errorf("%s: allowed %t", d.Name, d.Allowed)
			}
		}
		c.maintain()
		if a := c.alerts("policy_violation"); len(a) != 1 || a[0].Subject != before.Id {
			c.Errorf("%+v", a)
		}
		// Packs add up; a disabled one counts for nothing.
		c.call("POST", "/policy-packs", adminToken, object{"name": "site", "site_id": site, "allowed_images": []string{"evil.example/*"}}).want(201)
		deploy("bad", "evil.example/miner").want(201)
		p := as[edgeapi.PolicyPack](c.call("PATCH", "/policy-packs/"+fleet.Id, adminToken, object{"enabled": false, "name": "old"}).want(200))
		if p.Version != 2 || p.Enabled || p.Name != "old" || len(p.AllowedImages) != 1 {
			c.Errorf("%+v", p)
		}
		deploy("other", "ghcr.io/acme/web:1").refused(403, "image_not_allowed", "")
		c.call("POST", "/policy-packs", adminToken, object{"allowed_images": []string{"x"}}).refused(400, "invalid", "name")
		org := c.org("acme")
		c.call("POST", "/policy-packs", org.AdminToken, object{"name": "fleet-wide", "allowed_images": []string{"*"}}).want(403)
		c.call("PATCH", "/policy-packs/"+fleet.Id, org.AdminToken, object{"enabled": true}).want(403)
	})
}
