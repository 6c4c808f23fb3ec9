package edge_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// Whatever is accepted while maintenance runs is still there afterwards. An event comes into an
// idle fleet between two of its steps: on PostgreSQL it is committed there, on SQLite right after.
func TestMaintenanceNeverDeletesEventsThatWereJustAccepted(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		var accepted sync.Map
		var clients sync.WaitGroup
		send := func(id string) {
			c.call("POST", "/events", agent, object{"event_id": id, "site_id": site, "topic": "t", "payload": 1}).Want(
				202,
			)
			accepted.Store(id, true)
		}
		for _, point := range []string{"counter read", "deliveries read", "minutes read"} {
			err := c.service.MaintainWith(c.Context(), func(at string) {
				if at != point {
					return
				}
				done := make(chan struct{})
				clients.Go(func() { defer close(done); send(at) })
				if c.service.DB().Engine() == db.Postgres {
					<-done
				}
			})
			if err != nil {
				c.Fatal(err)
			}
			clients.Wait()
			c.stored(&accepted)
			c.ahead(8 * 24 * time.Hour) // all of them are too old now
			c.maintain()
			if left := c.eventIDs(); len(left) > 0 {
				c.Fatalf("events are older than they are kept: %v", left)
			}
			accepted.Clear()
		}
	})
}

// eventIDs are the ids of all events, the newest first.
func (c *control) eventIDs() (ids []string) {
	c.Helper()
	for _, raw := range c.all("/events?limit=90", adminToken) {
		var e edgeapi.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			c.Fatal(err)
		}
		ids = append(ids, e.EventId)
	}
	return ids
}

// stored fails the test unless the events with these ids are listed.
func (c *control) stored(ids *sync.Map) {
	c.Helper()
	listed := map[string]bool{}
	for _, id := range c.eventIDs() {
		listed[id] = true
	}
	n := 0
	ids.Range(func(id, _ any) bool {
		if n++; !listed[id.(string)] {
			c.Errorf("event %s was accepted and is gone", id)
		}
		return true
	})
	if n == 0 {
		c.Error("nothing was accepted")
	}
}

func TestMaintenanceBesideIngestLosesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(c *control) {
		site, agent := c.site("plant", enrollmentToken)
		var accepted sync.Map
		var clients sync.WaitGroup
		stop := make(chan struct{})
		var maintenance sync.WaitGroup
		maintenance.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := c.service.Maintain(c.Context()); err != nil {
						c.Error(err)
						return
					}
				}
			}
		})
		for k := range 4 {
			clients.Go(func() {
				for i := range 50 {
					id := fmt.Sprintf("%d-%d", k, i)
					c.call(
						"POST", "/events", agent, object{"event_id": id, "site_id": site, "topic": "t", "payload": 1},
					).Want(202)
					accepted.Store(id, true)
				}
			})
		}
		clients.Wait()
		close(stop)
		maintenance.Wait()
		c.stored(&accepted)
	})
}

func TestRetentionBySizeKeepsTheNewestEvents(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *edge.Config) { cfg.RetentionSize = 1 << 20 })
	site, agent := c.site("plant", enrollmentToken)
	payload := make([]byte, 100_000)
	for i := range payload {
		payload[i] = 'x'
	}
	for i := range 20 { // two megabytes, within a minute or two
		c.call(
			"POST", "/events", agent,
			object{"event_id": fmt.Sprint(i), "site_id": site, "topic": "t", "payload": string(payload)},
		).Want(202)
	}
	for range 3 { // it deletes no more when it runs again
		c.maintain()
	}
	if left := c.eventIDs(); len(left) < 8 || len(left) > 11 || left[0] != "19" {
		t.Errorf("left: %v", left)
	}
}
