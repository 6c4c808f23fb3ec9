package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/storage"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// house is a gateway's database that a monitor watches over.
type house struct {
	*testing.T
	db      *db.DB
	now     time.Time
	store   *record.Store
	monitor *monitor.Monitor
}

func each(t *testing.T, test func(h *house)) {
	t.Helper()
	for engine, of := range map[string]func(t *testing.T) db.Config{
		"SQLite": func(t *testing.T) db.Config { return db.Config{Path: filepath.Join(t.TempDir(), "test.db")} },
		"PostgreSQL": func(t *testing.T) db.Config {
			return db.Config{URL: dbtest.PostgresURL(t), Schema: "storage"}
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(newHouse(t, of(t)))
		})
	}
}

func newHouse(t *testing.T, cfg db.Config) *house {
	t.Helper()
	d, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	for _, m := range storage.Migrations() {
		if err := d.Migrate(t.Context(), m.Owner, m.Files); err != nil {
			t.Fatal(err)
		}
	}
	h := &house{T: t, db: d, now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return h.now }
	log, err := audit.Open(t.Context(), audit.Config{DB: d, Seed: make([]byte, 32), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	h.store = record.New(d, log, now)
	if h.monitor, err = monitor.New(monitor.Config{DB: d, Store: h.store, Audit: log, Now: now}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *house) sql(query string, args ...any) {
	h.Helper()
	if err := h.db.Update(h.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(h.Context(), query, args...)
		return err
	}); err != nil {
		h.Fatalf("%s: %v", query, err)
	}
}

// cluster adds a backend with a cluster.
func (h *house) cluster(id, health string, raw, used int64) {
	h.Helper()
	h.sql(`INSERT INTO backends (id, name, type, mode, connection_ref, cordoned, capabilities, last_error, created_at)
		VALUES (?, ?, 'ceph', 'external', 'x', FALSE, '{}', '', 0)`, id, "b-"+id)
	h.sql(`INSERT INTO clusters (id, backend_id, native_id, name, health, summary, raw_bytes, used_bytes, available_bytes,
		recovering, degraded_objects, seen_at) VALUES (?, ?, ?, 'ceph', ?, 'why', ?, ?, ?, FALSE, 7, 0)`,
		id, id, id, health, raw, used, raw-used)
}

func (h *house) pool(id string, used, most int64) {
	h.Helper()
	h.sql(`INSERT INTO pools (id, cluster_id, name, kind, device_class, replicas, used_bytes, max_bytes, health, missing)
		VALUES (?, 'c1', ?, 'rbd', '', 3, ?, ?, 'ok', FALSE)`, id, id, used, most)
}

// round makes a round, and returns the open alerts that a caller sees, as kinds with what they are about.
func (h *house) round(ctx context.Context) map[string]alert.Alert {
	h.Helper()
	if err := h.monitor.Round(h.Context()); err != nil {
		h.Fatal(err)
	}
	list, err := h.monitor.Alerts(ctx, alert.Filter{Status: alert.Firing, Limit: 100})
	if err != nil {
		h.Fatal(err)
	}
	open := map[string]alert.Alert{}
	for _, a := range list {
		open[a.Kind+" "+a.Subject] = a
	}
	return open
}

func (h *house) all() context.Context { return caller.ByItself(h.Context()) }

func TestEachConditionRaisesItsAlertAndResolvesIt(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.cluster("c1", "ok", 1000, 100)
		if open := h.round(h.all()); len(open) != 0 {
			h.Fatalf("%v", slices.Collect(maps.Keys(open)))
		}
		h.cluster("c2", "warning", 1000, 100)
		h.cluster("c3", "error", 1000, 100)
		h.sql("UPDATE backends SET last_error = 'no route' WHERE id = 'c1'")
		h.pool("p74", 7499, 10_000)
		h.pool("p75", 7500, 10_000)
		h.pool("p85", 8500, 10_000)
		h.pool("unknown", 0, 0) // without a manager, Ceph does not tell
		h.pool("large", 1<<60, 1<<61)
		h.sql(`INSERT INTO osds (cluster_id, number, up, in_cluster, device_class, host, used_bytes, capacity_bytes) VALUES
			('c1', 0, TRUE, TRUE, '', 'one', 0, 0), ('c1', 1, FALSE, TRUE, '', 'one', 0, 0)`)
		// 30 bytes a day, and 810 are left.
		h.sql("UPDATE clusters SET used_bytes = 190 WHERE id = 'c2'")
		for i := range 3 {
			h.sql("INSERT INTO capacity (cluster_id, step, at, raw_bytes, used_bytes, health) VALUES ('c2', 86400, ?, 1000, ?, 0)",
				db.At(time.Date(2026, 3, 1+i, 0, 0, 0, 0, time.UTC)), 100+30*i)
		}
		h.sql(`INSERT INTO tenants (name, description, max_volumes, max_bytes, max_snapshots, created_at) VALUES
			('acme', '', 5, NULL, 0, 0), ('beta', '', 4, 100, 10, 0)`)
		for i := range 4 {
			h.volume("acme", fmt.Sprint("a", i), 10)
		}
		h.volume("beta", "b", 96)
		for i, at := range []time.Time{h.now.Add(-14 * time.Minute), h.now.Add(-16 * time.Minute)} {
			h.failedJob(fmt.Sprint("j", i), at)
		}
		open := h.round(h.all())
		want := map[string]string{
			"cluster_unhealthy c2": `{"health": "warning", "degraded_objects": 7}`,
			"cluster_failing c3":   `{"health": "error", "degraded_objects": 7}`, "backend_unreachable c1": `{}`,
			"pool_near_full p75":   `{"used_percent": 75, "used_bytes": 7500, "max_bytes": 10000}`,
			"pool_almost_full p85": `{"used_percent": 85, "used_bytes": 8500, "max_bytes": 10000}`,
			"osd_down c1:1":        `{"osd": 1}`, "capacity_forecast c2": `{"growth_bytes_per_day": 30}`,
			"quota_near acme:volumes":      `{"limit": "volumes", "used": 4, "max": 5}`,
			"quota_almost_used beta:bytes": `{"limit": "bytes", "used": 96, "max": 100}`,
			"jobs_failed jobs:acme":        `{"failed": 1}`,
		}
		for name, evidence := range want {
			a, ok := open[name]
			if got := monitor.Evidence(&a); !ok || got != evidence || !json.Valid([]byte(got)) {
				h.Errorf("%s: %t, %s", name, ok, got)
			}
			if monitor.Kinds[a.Kind].Title == "" || a.Message == "" {
				h.Errorf("%s: %+v", name, a)
			}
		}
		if len(open) != len(want) {
			h.Errorf("%v", slices.Sorted(maps.Keys(open)))
		}
		h.sql("UPDATE clusters SET health = 'ok'")
		h.sql("UPDATE backends SET last_error = ''")
		h.sql("UPDATE pools SET missing = TRUE")
		h.sql("UPDATE osds SET up = TRUE")
		h.sql("DELETE FROM capacity")
		h.sql("UPDATE tenants SET max_volumes = NULL, max_bytes = NULL")
		h.now = h.now.Add(15 * time.Minute)
		if open := h.round(h.all()); len(open) != 0 {
			h.Errorf("still open: %v", slices.Sorted(maps.Keys(open)))
		}
	})
}

func (h *house) volume(tenant, id string, size int64) {
	h.Helper()
	h.sql(`INSERT INTO volumes (id, tenant, name, cluster_id, pool_id, native, kind, policy, state, health, asked_bytes,
		size_bytes, used_bytes, enforced, foreign_made, source_id, owner, owner_product, owner_resource, last_error,
		created_at, updated_at, search) VALUES (?, ?, ?, 'c1', 'p74', ?, 'block', 'default', 'available', 'ok', ?, ?, 0,
		TRUE, FALSE, '', '{}', '', '', '', 0, 0, '')`, id, tenant, id, id, size, size)
}

func (h *house) failedJob(id string, at time.Time) {
	h.Helper()
	h.sql(`INSERT INTO operations (id, kind, tenant, actor, idempotency_key, request_sha256, created_at, resource_type,
		resource_id) VALUES (?, 'volume.create', 'acme', 'ann', '', '', 0, 'volume', 'x')`, id)
	h.sql(`INSERT INTO jobs (id, queue, kind, args, state, attempt, max_attempts, run_at, worker, progress_done,
		progress_total, error, unique_key, cancel_requested, created_at, finished_at) VALUES (?, 'operations',
		'volume.create', '{}', 'failed', 1, 1, 0, '', 0, 1000, 'no room', '', FALSE, 0, ?)`, id, db.At(at))
}

func TestHistoryKeepsTheLastOfEachStepAndItsWorstHealth(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.cluster("c1", "ok", 1000, 100)
		h.cluster("away", "unknown", 1000, 100)
		begun := h.now
		for _, c := range []struct {
			after  time.Duration
			used   int
			health string
		}{{0, 100, "ok"}, {20 * time.Second, 110, "warning"}, {40 * time.Second, 120, "ok"}, {time.Minute, 130, "ok"}} {
			h.now = begun.Add(c.after)
			h.sql("UPDATE clusters SET used_bytes = ?, health = ? WHERE id = 'c1'", c.used, c.health)
			if err := h.store.SampleCapacity(h.all()); err != nil {
				h.Fatal(err)
			}
		}
		read := func(step time.Duration) string {
			all, err := h.store.CapacityHistory(h.all(), "", begun.Add(-24*time.Hour), h.now.Add(time.Minute), step)
			if err != nil {
				h.Fatal(err)
			}
			text := ""
			for _, c := range all {
				text += fmt.Sprintf("%s %s %d/%d %s; ", c.ClusterID, c.At.UTC().Format("02 15:04"), c.Used, c.Raw, c.Health())
			}
			return text
		}
		if got := read(time.Minute); got != "c1 04 12:00 120/1000 warning; c1 04 12:01 130/1000 ok; " {
			h.Errorf("minutes: %s", got)
		}
		if got := read(time.Hour); got != "c1 04 12:00 130/1000 warning; " {
			h.Errorf("hours: %s", got)
		}
		h.now = begun.Add(72 * time.Hour) // the minutes are gone then, the hours are not
		if err := h.monitor.Expire(h.all()); err != nil {
			h.Fatal(err)
		}
		if got := read(time.Minute); got != "c1 04 12:00 130/1000 warning; " {
			h.Errorf("later: %s", got)
		}
		var left int
		if err := h.db.Get(h.Context(), &left, "SELECT COUNT(*) FROM capacity"); err != nil || left != 2 {
			h.Errorf("%d rows are left, %v", left, err)
		}
	})
}

func TestTenantsSeeTheirOwnAlerts(t *testing.T) {
	t.Parallel()
	each(t, func(h *house) {
		h.cluster("c1", "error", 1000, 100)
		h.pool("p74", 1, 10_000)
		h.sql("INSERT INTO tenants (name, description, max_volumes, created_at) VALUES ('acme', '', 1, 0)")
		h.volume("acme", "a", 1)
		all := h.round(h.all())
		if len(all) != 2 {
			h.Errorf("%v", slices.Sorted(maps.Keys(all)))
		}
		id := all["cluster_failing c1"].ID
		if _, err := h.monitor.Resolve(h.all(), id); err != nil {
			h.Error(err)
		}
		if again, err := h.monitor.Resolve(h.all(), id); err != nil || again.Status != alert.Resolved {
			h.Errorf("%+v, %v", again, err)
		}
		h.now = h.now.Add(time.Minute) // it is there still
		if open := h.round(h.all()); open["cluster_failing c1"].ID == id || len(open) != 2 {
			h.Errorf("%v", open)
		}
		if none := h.round(h.Context()); len(none) != 0 {
			h.Errorf("nobody sees %v", none)
		}
	})
}
