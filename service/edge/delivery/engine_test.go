package delivery_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
)

// target answers 200 and remembers the events it got. While it holds, it does not answer.
type target struct {
	*httptest.Server
	arrived chan struct{} // one for each request, before it is answered

	mu     sync.Mutex
	got    map[string]int
	sites  map[string]int
	hold   chan struct{}
	header http.Header // of the answers, which are 429 if there is one
}

func newTarget(t *testing.T) *target {
	tg := &target{arrived: make(chan struct{}, 10_000), got: map[string]int{}, sites: map[string]int{}}
	tg.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		value := func(key string) string {
			_, v, _ := strings.Cut(string(body), `"`+key+`":"`)
			v, _, _ = strings.Cut(v, `"`)
			return v
		}
		tg.mu.Lock()
		tg.got[value("event_id")]++
		tg.sites[value("site_id")]++
		hold, header := tg.hold, tg.header
		tg.mu.Unlock()
		tg.arrived <- struct{}{}
		if hold != nil {
			<-hold
		}
		if header != nil {
			maps.Copy(w.Header(), header)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(tg.Close)
	return tg
}

// events is how many different events arrived.
func (tg *target) events() int {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return len(tg.got)
}

// await waits until n different events have arrived.
func (tg *target) await(t *testing.T, n int) {
	t.Helper()
	for tg.events() < n {
		select {
		case <-tg.arrived:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d events arrived", tg.events(), n)
		}
	}
}

// accept stores events of a site with their deliveries over route "r", as ingest does.
func accept(t *testing.T, d *db.DB, site string, from, n int) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		now := db.At(time.Now())
		var pending []delivery.Pending
		for i := from; i < from+n; i++ {
			if _, err := tx.Exec(
				t.Context(),
				`INSERT INTO events (seq, org_id, event_id, site_id, topic, payload, headers, event_time, received_at)
				VALUES (?, 'o', ?, ?, 't', '{}', '{}', ?, ?)`,
				i,
				fmt.Sprintf("e%d", i),
				site,
				now,
				now,
			); err != nil {
				return err
			}
			pending = append(pending, delivery.Pending{
				RouteID:   "r",
				EventSeq:  int64(i),
				SiteID:    site,
				Shard:     delivery.ShardOf("r", site),
				CreatedAt: now,
				NextAt:    now,
			})
		}
		return delivery.Add(t.Context(), tx, pending, func(string) string { return "o" })
	})
	if err != nil {
		t.Fatal(err)
	}
}

// engine is a delivery engine with one route, "r". change may alter its configuration.
func engine(t *testing.T, d *db.DB, tg *target, change func(*delivery.Config)) *delivery.Engine {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		now := db.At(time.Now())
		if _, err := tx.Exec(
			t.Context(),
			`INSERT INTO routes (id, org_id, name, site_id, topic, target_url, method, enabled, disabled_reason, retry_max, timeout_seconds, secret, created_at, updated_at)
			VALUES ('r', 'o', 'r', '', '*', ?, 'POST', ?, '', 5, 5, '', ?, ?)`,
			tg.URL,
			true,
			now,
			now,
		); err != nil {
			return err
		}
		_, err := tx.Exec(
			t.Context(),
			"INSERT INTO route_stats (route_id, delivered, failed_attempts, dead_lettered, last_status, last_error) VALUES ('r', 0, 0, 0, 0, '')",
		)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := delivery.Config{
		DB:     d,
		Client: webhook.NewClient(webhook.Guard{AllowPrivate: true}, webhook.Options{}),
		Route: func(context.Context, string) (delivery.Route, error) {
			return delivery.Route{
				ID:        "r",
				OrgID:     "o",
				TargetURL: tg.URL,
				Method:    "POST",
				Enabled:   true,
				RetryMax:  5,
				Timeout:   20 * time.Second,
			}, nil
		},
		Revision:    func(context.Context) (int64, error) { return 1, nil },
		HoldRoutes:  delivery.LockRoute,
		OnGone:      func(context.Context, *db.Tx, string) error { return nil },
		OnBlocked:   func(context.Context, string, string) error { return nil },
		Concurrency: 4,
		Replica:     "a",
		Log:         slog.New(slog.DiscardHandler),
		Registry:    prometheus.NewRegistry(),
		Now:         time.Now,
	}
	change(&cfg)
	return delivery.New(cfg)
}

// run runs an engine until the test ends.
func run(t *testing.T, e *delivery.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func each(t *testing.T, test func(t *testing.T, d *db.DB)) {
	tables := dbtest.Migrations{}
	for _, m := range edge.Migrations() {
		tables[m.Owner] = m.Files
	}
	dbtest.Each(t, tables, test)
}

func TestWhatAWorkerHadReadWhenItPanickedIsDelivered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.DB) {
		tg := newTarget(t)
		hold := make(chan struct{})
		tg.hold = hold
		panics, panicked := make(chan bool, 1), make(chan bool)
		e := engine(t, d, tg, func(cfg *delivery.Config) {
			route := cfg.Route
			cfg.Route = func(ctx context.Context, id string) (delivery.Route, error) {
				select {
				case <-panics:
					close(panicked)
					panic("boom")
				default:
					return route(ctx, id)
				}
			}
		})
		accept(t, d, "s", 1, 10) // of one site: nine wait in the worker while the first is under way
		run(t, e)
		<-tg.arrived
		panics <- true
		e.Changed("r") // the worker reads the route, and panics
		<-panicked
		tg.mu.Lock()
		tg.hold = nil
		tg.mu.Unlock()
		close(hold)
		tg.await(t, 10)
	})
}

func TestANudgeThatComesAsAWorkerEndsIsNotLost(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, nil)
	e := delivery.New(
		delivery.Config{DB: d, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
	)
	if delivery.NudgedAtItsEnd(e, "r", false) {
		t.Error("a worker that nobody nudged left something to do")
	}
	if !delivery.NudgedAtItsEnd(e, "r", true) {
		t.Error("the nudge was lost")
	}
}

func TestTheBacklogsOfSitesAreDeliveredSideBySide(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.DB) {
		const sites, backlog = 4, 400 // each some times what a worker reads ahead
		tg := newTarget(t)
		e := engine(t, d, tg, func(*delivery.Config) {})
		for i := range sites {
			accept(t, d, fmt.Sprintf("site-%d", i), 1+i*backlog, backlog)
		}
		run(t, e)
		// When one site is done, the others are not far behind.
		for done := false; !done; {
			select {
			case <-tg.arrived:
			case <-time.After(time.Minute):
				t.Fatal("delivery stands still")
			}
			tg.mu.Lock()
			got := maps.Clone(tg.sites)
			tg.mu.Unlock()
			for site := range got {
				if got[site] < backlog {
					continue
				}
				done = true
				for i := range sites {
					if n := got[fmt.Sprintf("site-%d", i)]; n < backlog/8 {
						t.Errorf("%s is done when site-%d has got %d of %d", site, i, n, backlog)
					}
				}
			}
		}
	})
}

func TestATargetThatAsksForAPauseGetsOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.DB) {
		tg := newTarget(t)
		tg.header = http.Header{"Retry-After": {"60"}}
		var skew atomic.Int64
		e := engine(t, d, tg, func(cfg *delivery.Config) {
			cfg.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		})
		accept(t, d, "s", 1, 8)
		run(t, e)
		count := func(query string) (n int) {
			if err := d.Get(t.Context(), &n, query); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for pause := 1; pause <= 4; pause++ { // more than five failures in a row would open the circuit
			select {
			case <-tg.arrived:
			case <-time.After(time.Minute):
				t.Fatalf("nothing comes after pause %d", pause-1)
			}
			for deadline := time.Now().Add(time.Minute); count("SELECT failed_attempts FROM route_stats") < pause; {
				if time.Now().After(deadline) {
					t.Fatal("the outcome is not stored")
				}
			}
			if n := len(tg.arrived); n > 0 {
				t.Fatalf("%d requests more in a pause", n)
			}
			skew.Add(int64(61 * time.Second))
		}
		tg.mu.Lock()
		tg.header = nil
		tg.mu.Unlock()
		tg.await(t, 8)
		if n := count("SELECT count(*) FROM deadletters"); n > 0 {
			t.Errorf("%d dead letters, although the target only asked for pauses", n)
		}
	})
}

func TestAnEngineEndsAlthoughOutcomesCannotBeStored(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.DB) {
		tg := newTarget(t)
		hold := make(chan struct{})
		tg.hold = hold
		e := engine(t, d, tg, func(cfg *delivery.Config) { cfg.StopLimit = 50 * time.Millisecond })
		accept(t, d, "s", 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); e.Run(ctx) }()
		<-tg.arrived
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "DROP TABLE route_minutes") // from now on no outcome can be stored
			return err
		}); err != nil {
			t.Fatal(err)
		}
		close(hold)
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the engine does not end")
		}
		var left int
		if err := d.Get(t.Context(), &left, "SELECT count(*) FROM deliveries"); err != nil || left != 1 {
			t.Errorf("%d deliveries are left, %v", left, err)
		}
	})
}
