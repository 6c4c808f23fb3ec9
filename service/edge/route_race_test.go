package edge_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// replicas are two control planes on one PostgreSQL database.
func replicas(t *testing.T) [2]*control {
	url, pki := dbtest.PostgresURL(t), t.TempDir()
	change := func(cfg *edge.Config) { cfg.Database, cfg.PKIDir, cfg.SecretKey = url, pki, secretKey }
	return [2]*control{start(t, change), start(t, change)}
}

const secretKey = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0ICEhISE="

// Routes are made, changed, disabled, enabled and deleted while events come in and are delivered.
// Afterwards every event has become exactly what the routes at its time asked for.
func TestRouteChangesBesideIngestLoseNothing(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		c := start(t)
		raceRoutes(t, [2]*control{c, c})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		raceRoutes(t, replicas(t))
	})
}

func raceRoutes(t *testing.T, c [2]*control) {
	const clients, each, changers = 4, 30, 4
	tg := newTarget(t, func(n int, _ *http.Request, _ []byte) int {
		if n%7 == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	site, agent := c[0].site("plant", enrollmentToken)
	steady := c[0].route(newTarget(t, nil), object{"name": "steady"})

	var ingest, changes sync.WaitGroup
	done := make(chan struct{})
	var changed atomic.Int64
	for k := range changers {
		changes.Go(func() {
			at := c[k%2]
			for {
				select {
				case <-done:
					return
				default:
				}
				r := at.route(tg, object{"name": fmt.Sprint("changing ", k)})
				for range rand.IntN(4) {
					at.call("PATCH", "/routes/"+r.Id, adminToken, object{"enabled": rand.IntN(2) == 0}).Want(200)
					changed.Add(1)
				}
				if rand.IntN(3) > 0 {
					at.call("DELETE", "/routes/"+r.Id, adminToken, nil).Want(204)
				} else {
					at.call("PATCH", "/routes/"+r.Id, adminToken, object{"enabled": false}).Want(200)
				}
				changed.Add(2)
			}
		})
	}
	for k := range clients {
		ingest.Go(func() {
			for i := range each {
				c[k%2].send(agent, site, fmt.Sprintf("%d-%d", k, i), "t")
			}
		})
	}
	ingest.Wait()
	close(done)
	changes.Wait()
	if changed.Load() < changers {
		t.Fatalf("only %d changes of routes", changed.Load())
	}

	c[0].eventually("all deliveries of the steady route", func() bool {
		st := contracttest.As[edgeapi.RouteStats](c[0].call("GET", "/routes/"+steady.Id+"/stats", adminToken, nil).Want(200))
		return st.Delivered == clients*each
	})
	d := c[0].service.DB()
	count := func(query string, args ...any) (n int64) {
		if err := d.Get(t.Context(), &n, query, args...); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(
		"SELECT count(*) FROM deliveries WHERE route_id NOT IN (SELECT id FROM routes WHERE enabled)",
	); n > 0 {
		t.Errorf("%d deliveries are of routes that are disabled or gone", n)
	}
	c[0].eventually("outcomes of requests that were under way", func() bool {
		return count("SELECT count(*) FROM deliveries") == count(
			"SELECT COALESCE(CAST(SUM(n) AS BIGINT), 0) FROM tallies WHERE kind = 'delivery'",
		) &&
			count("SELECT count(*) FROM deadletters") == count(
				"SELECT COALESCE(CAST(SUM(n) AS BIGINT), 0) FROM tallies WHERE kind = 'deadletter'",
			)
	})
}

func TestAReplicaFollowsRoutesThatAnotherChanged(t *testing.T) {
	t.Parallel()
	c := replicas(t)
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	old := newTarget(t, func(int, *http.Request, []byte) int { <-release; return http.StatusOK })
	t.Cleanup(finish) // otherwise a failure would wait for the target for ever
	now := newTarget(t, nil)
	const sites, each = 4, 20
	var ids, tokens [sites]string
	for i := range sites {
		ids[i], tokens[i] = c[0].site(fmt.Sprint(i), enrollmentToken)
	}
	// A hand-over of shards would wait for the requests under way.
	c[0].eventually("both replicas have their share of the shards", func() bool {
		var shares []int64
		if err := c[0].service.DB().Select(
			t.Context(), &shares, "SELECT count(*) FROM delivery_shards GROUP BY owner",
		); err != nil {
			t.Fatal(err)
		}
		return len(shares) == len(c) && shares[0] == shares[1]
	})
	// A request that times out on a slow machine would be sent again.
	r := c[0].route(old, object{"timeout_seconds": 60})
	for n := range each {
		for i := range sites {
			c[0].send(tokens[i], ids[i], fmt.Sprintf("%d-%d", i, n), "t")
		}
	}
	// Both replicas have read ahead; each lane has one request under way to the old target.
	c[0].eventually("requests to the old target", func() bool { return len(old.got()) == sites })
	c[1].call("PATCH", "/routes/"+r.Id, adminToken, object{"target_url": now.url}).Want(200)
	c[0].lookAtRoutes()
	c[1].lookAtRoutes()
	finish()
	c[0].eventually("all deliveries", func() bool { return len(old.got())+len(now.got()) >= sites*each })
	if n := len(old.got()); n != sites {
		t.Errorf("the old target got %d requests, %d of them after the change", n, n-sites)
	}
}

// lookAtRoutes waits until a replica has had time to look at the routes' revision.
func (c *control) lookAtRoutes() {
	c.Helper()
	begin := c.service.Looks()
	c.eventually("a look at the routes", func() bool { return c.service.Looks() >= begin+2 })
}

func TestADeletedOrgActsNoMore(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		org := contracttest.As[edgeapi.NewOrg](c.call("POST", "/orgs", adminToken, object{"name": "tenant"}).Want(201))
		site, agent := c.site("plant", org.EnrollmentToken)
		tg := newTarget(c.T, func(int, *http.Request, []byte) int { return http.StatusServiceUnavailable })
		r := contracttest.As[edgeapi.Route](
			c.call("POST", "/routes", org.AdminToken, object{"name": "r", "topic": "*", "target_url": tg.url}).Want(
				201,
			),
		)
		c.device(agent, "pump")
		campaign := contracttest.As[edgeapi.Campaign](
			c.call(
				"POST",
				"/ota/campaigns",
				org.AdminToken,
				object{"name": "spring", "version": "2", "url": "https://x.example/2",
					"sha256": fmt.Sprintf("%064x", 1), "targets": object{"device_ids": []string{"pump"}}},
			).Want(201),
		)
		c.call("POST", "/ota/campaigns/"+campaign.Id+"/start", org.AdminToken, nil).Want(200)
		c.send(agent, site, "one", "t")
		c.eventually("an attempt", func() bool { return len(tg.got()) == 1 })

		c.call("DELETE", "/orgs/"+org.Id, adminToken, nil).Want(204)
		c.send(agent, site, "two", "t") // the site lives on
		if got := contracttest.As[edgeapi.Route](c.call("GET", "/routes/"+r.Id, adminToken, nil).Want(200)); got.Enabled ||
			ptr(got.DisabledReason) != "its org was deleted" {
			c.Errorf("route: %+v", got)
		}
		if got := contracttest.As[edgeapi.Campaign](
			c.call("GET", "/ota/campaigns/"+campaign.Id, adminToken, nil).Want(200),
		); got.Status != "aborted" {
			c.Errorf("campaign: %s", got.Status)
		}
		c.eventually("dead letters of both events", func() bool { return len(c.deadLetters(r.Id)) == 2 })
		attempts := len(tg.got()) // more than one if the first was repeated before the org was deleted
		c.ahead(time.Hour)
		c.maintain()
		if n := len(tg.got()); n != attempts {
			c.Errorf("the target got %d requests, %d of them afterwards", n, n-attempts)
		}
	})
}
