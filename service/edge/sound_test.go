package edge_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// ended waits for the end of a stream, whatever comes before it.
func (c *control) ended(stream <-chan streamed) {
	c.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case _, open := <-stream:
			if !open {
				return
			}
		case <-timeout:
			c.Fatal("the stream goes on")
		}
	}
}

func TestAStreamEndsWithItsCredentials(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		login := contracttest.As[edgeapi.Session](
			c.call("POST", "/auth/login", "", object{"username": "operator", "password": "correct horse"}).Want(200),
		)
		bySession := c.follow(login.Token, "")
		c.call("POST", "/auth/logout", login.Token, nil).Want(204)
		c.ended(bySession)

		org := c.org("tenant")
		byOrg := c.follow(org.ViewerToken, "")
		c.call("DELETE", "/orgs/"+org.Id, adminToken, nil).Want(204)
		c.ended(byOrg)

		later := contracttest.As[edgeapi.Session](
			c.call("POST", "/auth/login", "", object{"username": "operator", "password": "correct horse"}).Want(200),
		)
		expiring := c.follow(later.Token, "")
		lasting := c.follow(viewerToken, "")
		c.ahead(13 * time.Hour)
		c.call("POST", "/activity", adminToken, object{"entries": []object{{"message": "after"}}}).Want(200)
		c.ended(expiring)
		for e := c.next(lasting); ; e = c.next(lasting) {
			if len(e.data) > 0 {
				break // it continues
			}
		}
	})
}

func TestWrongEnrollmentTokensDoNotKeepOutARightOne(t *testing.T) {
	t.Parallel()
	c := start(t)
	throttled := false
	for range 10 {
		throttled = c.call(
			"POST", "/enroll", "", object{"name": "a", "enrollment_token": "wrong"},
		).Status == http.StatusTooManyRequests
	}
	if !throttled {
		t.Fatal("guesses are not slowed down")
	}
	c.call("POST", "/enroll", "", object{"name": "a", "enrollment_token": enrollmentToken}).Want(200)
}

// Right after a start, all sites have been silent for as long as the control plane was down.
func TestARestartMakesNoSiteOffline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inDir := func(cfg *edge.Config) { cfg.Data = dir }
	c := start(t, inDir)
	_, agent := c.site("plant", enrollmentToken)
	c.site("gone", enrollmentToken)
	c.stop()

	skew := time.Hour // it was down for so long
	c = startAt(t, skew, inDir)
	status := func() map[string]string {
		c.maintain()
		byName := map[string]string{}
		for _, s := range contracttest.As[[]edgeapi.Site](c.call("GET", "/sites", adminToken, nil).Want(200)) {
			byName[s.Name] = string(s.Status)
		}
		return byName
	}
	if got := status(); got["plant"] != "online" || got["gone"] != "online" {
		t.Errorf("after the start: %v", got)
	}
	c.ahead(31 * time.Second)
	c.call("POST", "/heartbeat", agent, object{}).Want(200)
	c.ahead(31 * time.Second)
	if got := status(); got["plant"] != "online" || got["gone"] != "offline" {
		t.Errorf("after two heartbeats: %v", got)
	}
}

func TestAReportOnAnOlderRevisionSaysNothingOfTheNewOne(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		d := contracttest.As[edgeapi.Deployment](
			c.call(
				"POST", "/deployments", adminToken,
				object{"site_id": site, "name": "web", "image": "nginx:1", "version": "1"},
			).Want(201),
		)
		report := func(revision int, status string) {
			c.call(
				"POST", "/agent/deployments/"+d.Id+"/status", agent,
				object{"site_id": site, "status": status, "observed_revision": revision},
			).Want(200)
		}
		patch := func(image string) edgeapi.Deployment {
			return contracttest.As[edgeapi.Deployment](
				c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"image": image}).Want(200),
			)
		}
		report(1, "running")
		patch("nginx:2")
		report(1, "running") // late: it speaks of nginx:1
		if got := contracttest.As[edgeapi.Deployment](
			c.call("GET", "/deployments/"+d.Id, adminToken, nil).Want(200),
		); got.Status != "pending" {
			c.Errorf("a late report made the new revision %s", got.Status)
		}
		patch("nginx:3")
		c.call(
			"POST", "/agent/deployments/"+d.Id+"/rollback", agent,
			object{"site_id": site, "reason": "it does not start"},
		).Want(200)
		if got := contracttest.As[edgeapi.Deployment](
			c.call("GET", "/deployments/"+d.Id, adminToken, nil).Want(200),
		); got.Image != "nginx:1" {
			c.Errorf("it went back to %s, which never ran", got.Image)
		}
	})
}

func TestADeploymentMayStopWhateverThePoliciesSay(t *testing.T) {
	t.Parallel()
	c := start(t)
	site, _ := c.site("plant", enrollmentToken)
	d := contracttest.As[edgeapi.Deployment](
		c.call(
			"POST", "/deployments", adminToken,
			object{"site_id": site, "name": "web", "image": "nginx:1", "version": "1"},
		).Want(201),
	)
	c.call(
		"POST", "/policy-packs", adminToken, object{"name": "strict", "allowed_images": []string{"registry.example/*"}},
	).Want(201)
	c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"version": "2"}).Refused(403, "image_not_allowed", "")
	c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "stopped"}).Want(200)
	c.call("PATCH", "/deployments/"+d.Id, adminToken, object{"desired_state": "running"}).Refused(
		403, "image_not_allowed", "",
	)
}

func TestADeviceIsNotRegisteredForASiteThatIsGone(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		for i := range 5 {
			site, agent := c.site(fmt.Sprint(i), enrollmentToken)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for n := range 10 {
					c.call(
						"POST", "/devices/register", agent,
						object{"device_id": fmt.Sprintf("%d-%d", i, n), "name": "d"},
					)
				}
			}()
			c.call("DELETE", "/sites/"+site, adminToken, nil).Want(204)
			<-done
		}
		if devices := c.all("/devices", adminToken); len(devices) > 0 {
			c.Errorf("%d devices of sites that are gone", len(devices))
		}
		if o := contracttest.As[edgeapi.Overview](c.call("GET", "/overview", adminToken, nil).Want(200)); o.Devices != 0 {
			c.Errorf("%d devices are counted", o.Devices)
		}
	})
}
