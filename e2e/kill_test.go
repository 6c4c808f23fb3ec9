package e2e

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

var killsFlag = flag.Int("kills", 0, "how often the crash tests kill the server; default MAINSTAY_KILLS or 10")

func kills(t *testing.T) int {
	t.Helper()
	if *killsFlag > 0 {
		return *killsFlag
	}
	if text := os.Getenv("MAINSTAY_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("MAINSTAY_KILLS=%q is not a number above 0", text)
		}
		return n
	}
	return 10
}

func TestWhatWasAcknowledgedSurvivesKillsOfAServerOnSQLite(t *testing.T) {
	t.Parallel()
	surviveKills(t, kills(t))
}

func TestWhatWasAcknowledgedSurvivesKillsOfAServerOnPostgreSQL(t *testing.T) {
	t.Parallel()
	surviveKills(t, max(3, kills(t)/3), "--database", dbtest.PostgresURL(t))
}

// surviveKills kills a server under load n times and then takes stock.
func surviveKills(t *testing.T, n int, args ...string) {
	tg := newTarget(t, func(r received) int {
		if r.path == "/refuses" {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	e := startEdge(t, append(args, "--allow-private-targets")...)
	e.route("takes all", tg.url+"/takes")
	refusing := e.route("refuses all", tg.url+"/refuses")

	l := &load{edge: e, stop: make(chan struct{}), acknowledged: map[string]bool{}}
	var clients sync.WaitGroup
	for i := range 6 {
		site, _ := e.enroll(fmt.Sprintf("site %d", i))
		clients.Go(func() { l.client(fmt.Sprintf("c%d", i), site, i%2 == 0) })
	}
	for i := range n {
		if i%5 == 4 {
			// One kill in five hits the server while it starts.
			time.Sleep(time.Duration(rand.Int64N(int64(80 * time.Millisecond)))) // the moment of the kill
		} else {
			e.ready()
			before, enough := l.acks.Load(), 10+rand.Int64N(100)
			eventually(t, "the load is served", func() bool { return l.acks.Load() >= before+enough })
		}
		e.kill()
		e.launch()
	}
	e.ready()
	before := l.acks.Load()
	eventually(t, "the load is served after the last kill", func() bool { return l.acks.Load() > before })
	close(l.stop)
	clients.Wait()
	e.drained()

	stored, took, refused, buried := e.events(), tg.deliveries("/takes"), tg.deliveries("/refuses"), e.buried(refusing)
	t.Logf(
		"%d kills, %d events acknowledged, %d requests sent again; %d deliveries, %d dead letters", n,
		len(l.acknowledged), l.resent.Load(), len(took), len(buried),
	)
	for what, there := range map[string]map[string]int{"stored": stored, "delivered": took, "tried at the target that refuses": refused, "a dead letter": buried} {
		if lost := missing(l.acknowledged, there); len(lost) > 0 {
			t.Errorf("acknowledged events that are not %s: %s", what, sample(lost))
		}
	}
	for what, there := range map[string]map[string]int{"stored": stored, "dead letters": buried} {
		if more := repeated(there); len(more) > 0 {
			t.Errorf("events that are %s more than once: %s", what, sample(more))
		}
	}
	// Clients repeat what was not acknowledged until it is, so nothing else is there.
	if made := missing(stored, asCounts(l.acknowledged)); len(made) > 0 {
		t.Errorf("stored events that nobody sent, or parts of refused batches: %s", sample(made))
	}
	e.checkAudit()
}

func asCounts(set map[string]bool) map[string]int {
	counts := map[string]int{}
	for id := range maps.Keys(set) {
		counts[id] = 1
	}
	return counts
}

// load is a set of clients that hand over events and repeat what was not
// acknowledged, as agents do.
type load struct {
	edge *edge
	stop chan struct{}
	acks atomic.Int64
	// resent counts requests that were acknowledged only after a failure.
	resent atomic.Int64

	mu           sync.Mutex
	acknowledged map[string]bool
}

func (l *load) client(name, site string, batches bool) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		var events []edgeapi.EventInput
		for i := range 1 + rand.IntN(20) {
			events = append(events, event(fmt.Sprintf("%s-%d-%d", name, n, i), site, `{"reading": 21.5}`))
			if !batches {
				break
			}
		}
		failures := 0
		for !l.send(events) {
			if l.edge.Context().Err() != nil {
				return // the test has failed
			}
			failures++
			time.Sleep(5 * time.Millisecond) // the server is being restarted
		}
		if failures > 0 {
			l.resent.Add(1)
		}
		l.mu.Lock()
		for _, ev := range events {
			l.acknowledged[*ev.EventId] = true
		}
		l.mu.Unlock()
		l.acks.Add(1)
	}
}

func (l *load) send(events []edgeapi.EventInput) bool {
	e := l.edge
	if len(events) == 1 {
		return e.ingest(events[0])
	}
	_, err := rest.Read(e.api(adminToken).IngestEvents(e.Context(), edgeapi.EventBatch{Events: events}))
	return err == nil
}

func TestAServerKilledInItsFirstStartStartsAgain(t *testing.T) {
	t.Parallel()
	for range kills(t) {
		e := newEdge(t)
		e.launch()
		time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond)))) // the moment of the kill
		e.kill()
		e.start()
		e.kill()
	}
}
