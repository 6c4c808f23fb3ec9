package edge_test

import (
	"maps"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestADeploymentMovesBetweenControlPlaneAndAgent(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		create := object{"site_id": site, "name": "web", "image": "ghcr.io/acme/web:1", "version": "1"}
		d := contracttest.As[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, create).Want(201))
		if d.Status != "pending" || d.Revision != 1 || d.DesiredState != "running" || d.Previous != nil {
			c.Errorf("%+v", d)
		}
		c.call("POST", "/deployments", adminToken, create).Want(409)
		report := func(status string, revision int) answer {
			return c.call(
				"POST", "/agent/deployments/"+d.Id+"/status", agent,
				object{"site_id": site, "status": status, "observed_revision": revision},
			)
		}
		report("running", 1).Want(200)
		report("running", 7).Refused(400, "invalid", "observed_revision")
		d = contracttest.As[edgeapi.Deployment](
			c.call(
				"PATCH", "/deployments/"+d.Id, adminToken, object{"image": "ghcr.io/acme/web:2", "version": "2"},
			).Want(200),
		)
		if d.Revision != 2 || d.Previous == nil || d.Previous.Version != "1" || d.Status != "pending" {
			c.Errorf("%+v", d)
		}
		report("failed", 2).Want(200)
		if late := contracttest.As[edgeapi.Deployment](report("running", 1).Want(200)); late.Status != "failed" {
			c.Errorf("a late report on revision 1 counted: %+v", late)
		}
		c.maintain()
		if a := c.alerts("deployment_failed"); len(a) != 1 {
			c.Errorf("%+v", a)
		}
		rollback := func() edgeapi.RollbackResult {
			return contracttest.As[edgeapi.RollbackResult](
				c.call(
					"POST", "/agent/deployments/"+d.Id+"/rollback", agent, object{"site_id": site, "reason": "crash"},
				).Want(200),
			)
		}
		if r := rollback(); !r.RolledBack || r.Deployment.Version != "1" || r.Deployment.Status != "rolled_back" ||
			r.Deployment.Revision != 3 {
			c.Errorf("%+v", r)
		}
		if r := rollback(); r.RolledBack {
			c.Errorf("rolled back twice: %+v", r)
		}
		stopped := contracttest.As[edgeapi.Deployment](
			c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "stopped"}).Want(200),
		)
		if stopped.DesiredState != "stopped" {
			c.Errorf("%+v", stopped)
		}
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "asleep"}).Refused(
			400, "invalid", "desired_state",
		)
		c.call("PATCH", "/deployments/none", adminToken, object{}).Want(404)
		c.call("DELETE", "/deployments/"+d.Id, adminToken, nil).Want(204)
		c.call("DELETE", "/deployments/"+d.Id, adminToken, nil).Want(404)
		if list := contracttest.As[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).Want(200)); len(
			list,
		) != 0 {
			c.Errorf("%+v", list)
		}
	})
}

func TestADeploymentOfASiteThatIsNotHeardOfCountsAsUnknown(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		deploy := func(site, agent, name, status string) {
			d := contracttest.As[edgeapi.Deployment](
				c.call(
					"POST", "/deployments", adminToken,
					object{"site_id": site, "name": name, "image": "nginx", "version": "1"},
				).Want(201),
			)
			if status != "pending" {
				c.call(
					"POST", "/agent/deployments/"+d.Id+"/status", agent,
					object{"site_id": site, "status": status, "observed_revision": 1},
				).Want(200)
			}
		}
		loud, heard := c.site("loud", enrollmentToken)
		quiet, silent := c.site("quiet", enrollmentToken)
		deploy(loud, heard, "web", "running")
		deploy(quiet, silent, "web", "running")
		deploy(quiet, silent, "db", "stopped")
		deploy(quiet, silent, "cam", "failed")
		deploy(quiet, silent, "new", "pending")
		counted := func(when string, want edgeapi.Counts) {
			c.Helper()
			if got := contracttest.As[edgeapi.Overview](
				c.call("GET", "/overview", viewerToken, nil).Want(200),
			).Deployments; !maps.Equal(got, want) {
				c.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		counted("both are online", edgeapi.Counts{"running": 2, "stopped": 1, "failed": 1, "pending": 1})
		c.ahead(10 * time.Minute)
		c.call("POST", "/heartbeat", heard, object{}).Want(200)
		c.maintain()
		counted("one is offline", edgeapi.Counts{"running": 1, "unknown": 2, "failed": 1, "pending": 1})
		of := contracttest.As[[]edgeapi.Deployment](c.call("GET", "/deployments?site_id="+quiet, viewerToken, nil).Want(200))
		one := contracttest.As[edgeapi.Deployment](c.call("GET", "/deployments/"+of[0].Id, viewerToken, nil).Want(200))
		for _, d := range append(of, one) {
			if d.SiteStatus == nil || *d.SiteStatus != "offline" || d.SiteLastSeenAt == nil {
				c.Errorf("%+v", d)
			}
		}
		c.call("POST", "/sites/"+loud+"/revoke", adminToken, nil).Want(200)
		counted("one is offline, the other revoked", edgeapi.Counts{"unknown": 3, "failed": 1, "pending": 1})
		c.call("POST", "/heartbeat", silent, object{}).Want(200)
		counted("the one is back", edgeapi.Counts{"running": 1, "stopped": 1, "unknown": 1, "failed": 1, "pending": 1})
		if d := contracttest.As[edgeapi.Deployment](
			c.call("GET", "/deployments/"+of[0].Id, viewerToken, nil).Want(200),
		); *d.SiteStatus != "online" {
			c.Errorf("%+v", d)
		}
	})
}

func TestPolicyPacksDecideWhatASiteMayRun(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		deploy := func(name, image string) answer {
			return c.call(
				"POST", "/deployments", adminToken,
				object{"site_id": site, "name": name, "image": image, "version": "1"},
			)
		}
		before := contracttest.As[edgeapi.Deployment](deploy("before", "evil.example/miner").Want(201))
		fleet := contracttest.As[edgeapi.PolicyPack](
			c.call(
				"POST", "/policy-packs", adminToken,
				object{"name": "fleet", "allowed_images": []string{"ghcr.io/acme/*"}},
			).Want(201),
		)
		deploy("good", "ghcr.io/acme/web:1").Want(201)
		deploy("bad", "evil.example/miner").Refused(403, "image_not_allowed", "")
		deploy("worse", "not an image").Refused(400, "invalid", "image")
		c.call("PATCH", "/deployments/"+before.Id, adminToken, object{"desired_state": "running"}).Refused(
			403, "image_not_allowed", "",
		)

		// What runs already is judged again: the agent is told, and so is the operator.
		for _, d := range contracttest.As[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).Want(200)) {
			if d.Allowed != (d.Name == "good") {
				c.Errorf("%s: allowed %t", d.Name, d.Allowed)
			}
		}
		c.maintain()
		if a := c.alerts("policy_violation"); len(a) != 1 || a[0].Subject != before.Id {
			c.Errorf("%+v", a)
		}
		// Packs add up; a disabled one counts for nothing.
		c.call(
			"POST", "/policy-packs", adminToken,
			object{"name": "site", "site_id": site, "allowed_images": []string{"evil.example/*"}},
		).Want(201)
		deploy("bad", "evil.example/miner").Want(201)
		p := contracttest.As[edgeapi.PolicyPack](
			c.call("PATCH", "/policy-packs/"+fleet.Id, adminToken, object{"enabled": false, "name": "old"}).Want(200),
		)
		if p.Version != 2 || p.Enabled || p.Name != "old" || len(p.AllowedImages) != 1 {
			c.Errorf("%+v", p)
		}
		deploy("other", "ghcr.io/acme/web:1").Refused(403, "image_not_allowed", "")
		c.call("POST", "/policy-packs", adminToken, object{"allowed_images": []string{"x"}}).Refused(
			400, "invalid", "name",
		)
		org := c.org("acme")
		c.call(
			"POST", "/policy-packs", org.AdminToken, object{"name": "fleet-wide", "allowed_images": []string{"*"}},
		).Want(403)
		c.call("PATCH", "/policy-packs/"+fleet.Id, org.AdminToken, object{"enabled": true}).Want(403)
	})
}

func TestADeploymentSaysHowToPullRestartAndCheck(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		create := object{"site_id": site, "name": "web", "image": "ghcr.io/acme/web:1", "version": "1"}
		d := contracttest.As[edgeapi.Deployment](c.call("POST", "/deployments", adminToken, create).Want(201))
		if d.PullPolicy != "missing" || d.Restart != "always" || d.Health != nil {
			c.Errorf("%+v", d)
		}
		change := object{
			"pull_policy": "never",
			"restart":     "on_failure",
			"health":      object{"command": []string{"/check", "a b"}, "retries": 5},
		}
		c.call("PATCH", "/deployments/"+d.Id, adminToken, change).Want(200)
		told := contracttest.As[[]edgeapi.AgentDeployment](c.call("GET", "/agent/deployments", agent, nil).Want(200))[0]
		if told.PullPolicy != "never" || told.Restart != "on_failure" || told.Health == nil ||
			*told.Health.Retries != 5 ||
			*told.Health.IntervalSeconds != 10 ||
			told.Health.Command[1] != "a b" {
			c.Errorf("%+v", told)
		}
		if d = contracttest.As[edgeapi.Deployment](
			c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"health": object{"command": []string{}}}).Want(
				200,
			),
		); d.Health != nil {
			c.Errorf("an empty command left a check: %+v", d.Health)
		}
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"health": object{"command": []string{""}}}).Refused(
			400, "invalid", "health.command.0",
		)
		c.call(
			"PATCH", "/deployments/"+d.Id, adminToken, object{"health": object{"command": []string{"a", "b\x00"}}},
		).Refused(400, "invalid", "health.command.1")
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"pull_policy": "often"}).Refused(
			400, "invalid", "pull_policy",
		)
	})
}

func TestAnImageCanBeTriedAgainstThePacksBeforeItIsDeployed(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := c.org("acme")
		site, agent := c.site("plant", org.EnrollmentToken)
		try := func(image string) edgeapi.ImageVerdict {
			return contracttest.As[edgeapi.ImageVerdict](
				c.call("POST", "/policy-packs/check", org.ViewerToken, object{"image": image, "site_id": site}).Want(
					200,
				),
			)
		}
		if v := try("nginx"); !v.Allowed || v.Packs != 0 || v.Image != "docker.io/library/nginx:latest" ||
			len(v.Matches) != 0 {
			c.Errorf("without packs: %+v", v)
		}
		c.call(
			"POST", "/policy-packs", org.AdminToken,
			object{"name": "own", "site_id": site, "allowed_images": []string{"ghcr.io/acme/*", "*:1"}},
		).Want(201)
		if v := try(
			"ghcr.io/acme/web:1",
		); !v.Allowed || v.Packs != 1 || len(v.Matches) != 2 || v.Matches[0].PackName != "own" ||
			v.Matches[0].Pattern != "ghcr.io/acme/*" {
			c.Errorf("allowed: %+v", v)
		}
		if v := try("nginx"); v.Allowed {
			c.Errorf("not on the list: %+v", v)
		}
		c.call("POST", "/policy-packs/check", org.ViewerToken, object{"image": "UPPER"}).Refused(
			400, "invalid", "image",
		)
		c.call(
			"POST", "/policy-packs/check", c.org("other").ViewerToken, object{"image": "nginx", "site_id": site},
		).Want(404)
		if packs := contracttest.As[[]edgeapi.PolicyPack](
			c.call("GET", "/agent/policy-packs", agent, nil).Want(200),
		); len(packs) != 1 ||
			packs[0].Name != "own" {
			c.Errorf("the agent's packs: %+v", packs)
		}
	})
}

func TestARollbackBringsBackHowTheImageRanToo(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		d := contracttest.As[edgeapi.Deployment](
			c.call(
				"POST",
				"/deployments",
				adminToken,
				object{"site_id": site, "name": "web", "image": "ghcr.io/acme/web:1", "version": "1",
					"env": object{"MODE": "good"}, "ports": []object{{"container_port": 80}}},
			).Want(201),
		)
		report := func(status string) {
			c.call("POST", "/agent/deployments/"+d.Id+"/status", agent, object{"site_id": site, "status": status}).Want(
				200,
			)
		}
		report("running")
		// Two changes before the agent says that one runs: the first never ran.
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"env": object{"MODE": "never ran"}}).Want(200)
		c.call("PATCH", "/deployments/"+d.Id, adminToken, object{
			"version": "2",
			"env":     object{"MODE": "bad"},
			"ports":   []object{},
			"health":  object{"command": []string{"/check"}},
		}).Want(200)
		report("failed")
		back := contracttest.As[edgeapi.RollbackResult](
			c.call("POST", "/agent/deployments/"+d.Id+"/rollback", agent, object{"site_id": site}).Want(200),
		).Deployment
		if back.Version != "1" || back.Env["MODE"] != "good" || len(back.Ports) != 1 || back.Health != nil ||
			back.Previous != nil {
			c.Errorf("%+v", back)
		}
		// Stopping makes no other container, so there is nothing new to go back to.
		if d := contracttest.As[edgeapi.Deployment](
			c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "stopped"}).Want(200),
		); d.Previous != nil {
			c.Errorf("%+v", d.Previous)
		}
	})
}
