package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
)

var tables = dbtest.Migrations{"audit": audit.Migrations()}

// fixture is a log as opened by one process.
type fixture struct {
	*audit.Log
	t        testing.TB
	db       *db.DB
	cfg      audit.Config
	out      *lines
	registry *prometheus.Registry
}

// lines collects log output.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// open opens the log with a file of checkpoints.
func open(t testing.TB, d *db.DB, change ...func(*audit.Config)) *fixture {
	t.Helper()
	cfg := audit.Config{
		DB:          d,
		Seed:        bytes.Repeat([]byte{7}, 32),
		Now:         time.Now,
		Checkpoints: filepath.Join(t.TempDir(), "checkpoints.jsonl"),
	}
	for _, f := range change {
		f(&cfg)
	}
	return openWith(t, cfg)
}

func openWith(t testing.TB, cfg audit.Config) *fixture {
	t.Helper()
	f := &fixture{t: t, db: cfg.DB, out: &lines{}, registry: prometheus.NewRegistry()}
	cfg.Log, cfg.Registry = slog.New(slog.NewTextHandler(f.out, nil)), f.registry
	f.cfg = cfg
	var err error
	if f.Log, err = audit.Open(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

// again opens the log like a new process, with the same file.
func (f *fixture) again() *fixture { f.t.Helper(); return openWith(f.t, f.cfg) }

func (f *fixture) append(n int) {
	f.t.Helper()
	for i := range n {
		if err := f.db.Update(context.Background(), func(tx *db.Tx) error {
			e := audit.Entry{
				Actor:     "root",
				ActorType: audit.Admin,
				Action:    "site.revoke",
				Target:    fmt.Sprint(i),
				Tenant:    "org",
			}
			return f.Append(context.Background(), tx, e, map[string]int{"i": i})
		}); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) checkpoint() {
	f.t.Helper()
	if err := f.WriteCheckpoint(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) verify() audit.Verification {
	f.t.Helper()
	v, err := f.Verify(context.Background(), f.db)
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

func (f *fixture) inspect() audit.Verification {
	f.t.Helper()
	v, err := f.Inspect(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// whole fails the test unless the log verifies without breaks.
func (f *fixture) whole(entries int64) {
	f.t.Helper()
	if v := f.verify(); !v.OK || len(v.Breaks) > 0 || v.Entries != entries || v.Verified != entries ||
		len(v.Segments) != 1 {
		f.t.Errorf("%+v", v)
	}
	if f.broken() != 0 || strings.Contains(f.out.String(), "ERROR") {
		f.t.Errorf("a false alarm: %s", f.out)
	}
}

// broken returns the metric audit_broken.
func (f *fixture) broken() float64 { return f.metric("audit_broken") }

func (f *fixture) metric(name string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range families {
		if m.GetName() == name {
			return m.GetMetric()[0].GetGauge().GetValue() + m.GetMetric()[0].GetCounter().GetValue()
		}
	}
	f.t.Fatalf("no metric %s", name)
	return 0
}

// exec changes the database behind the log's back.
func (f *fixture) exec(statements ...string) {
	f.t.Helper()
	if err := f.db.Update(context.Background(), func(tx *db.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(context.Background(), s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
}

func TestAnUntouchedLogVerifies(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.whole(0)
		f.append(5)
		f.whole(5)
		if v := f.verify(); v.HeadHash == "" || v.Genesis == "" || v.Segments[0].Last != 5 {
			t.Errorf("%+v", v)
		}
		f.checkpoint()
		f = f.again()
		f.append(3)
		f.whole(8)
		if v := f.verify(); v.Checkpoints.Count != 1 || v.Checkpoints.Newest.Seq != 5 {
			t.Errorf("%+v", v.Checkpoints)
		}
	})
}

func TestManyEntriesInOneTransactionMakeOneChain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for range 4 {
				if err := f.Append(
					t.Context(), tx, audit.Entry{Actor: "a", ActorType: audit.System, Action: "x.y"}, nil,
				); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f.append(1)
		f.whole(5)
	})
}

func TestConcurrentAppendsMakeOneChainWithoutGaps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { f.append(5) })
		}
		all.Wait()
		f.whole(40)
	})
}

// Replicas learn of each other's entries through signed heads.
func TestReplicasThatAppendAndCheckAtOnceRaiseNoAlarm(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	var replicas []*fixture
	for range 3 {
		replicas = append(replicas, open(t, dbtest.Open(t, db.Config{URL: url, Schema: "test"}, tables)))
	}
	var all sync.WaitGroup
	for _, f := range replicas {
		for range 3 {
			all.Go(func() { f.append(10) })
		}
		all.Go(func() {
			for range 10 {
				f.checkpoint()
				if err := f.Check(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 5 {
				if v := f.verify(); !v.OK {
					t.Errorf("while entries are appended: %+v", v)
				}
			}
		})
	}
	all.Wait()
	for _, f := range replicas {
		f.whole(90)
		f.checkpoint()
		f.again().whole(90)
	}
}

func TestAnEntryIsNotKeptWhenItsChangeIsNot(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(2)
		_ = d.Update(t.Context(), func(tx *db.Tx) error {
			if err := f.Append(
				t.Context(), tx, audit.Entry{Actor: "a", ActorType: audit.System, Action: "x.y"}, nil,
			); err != nil {
				t.Error(err)
			}
			return context.Canceled
		})
		f.append(1)
		f.whole(3)
	})
}

func TestTextsAreCutToWhatBothEnginesKeep(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			long := strings.Repeat("é", 100_000)
			e := audit.Entry{
				Actor:     "a\x00b\xff",
				ActorType: audit.System,
				Action:    "x.y",
				Target:    "t" + long,
				Message:   long,
			}
			return f.Append(t.Context(), tx, e, map[string]string{"long": long})
		}); err != nil {
			t.Fatal(err)
		}
		entries, err := f.List(t.Context(), d, audit.Filter{Limit: 1})
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		e := entries[0]
		if e.Actor != "ab" || len(e.Target) > 256 || len(e.Target) < 250 || len(e.Message) != 1024 ||
			!strings.Contains(e.Detail, "omitted") {
			t.Errorf(
				"actor %q, target of %d bytes, message of %d, detail %.60s", e.Actor, len(e.Target), len(e.Message),
				e.Detail,
			)
		}
		f.whole(1)
	})
}

func TestListFiltersAndPagesNewestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		f.append(5)
		org, other := "org", "other"
		for _, tt := range []struct {
			filter audit.Filter
			want   string
		}{
			{audit.Filter{Limit: 2}, "5 4"},
			{audit.Filter{Limit: 2, Before: 4}, "3 2"},
			{audit.Filter{Limit: 9, Tenant: &org, Actor: "root", Action: "site.revoke"}, "5 4 3 2 1"},
			{audit.Filter{Limit: 9, Tenant: &other}, ""},
			{audit.Filter{Limit: 9, Site: "s"}, ""},
			{audit.Filter{Limit: 2, Result: audit.OK}, "5 4"},
			{audit.Filter{Limit: 9, Result: audit.Denied}, ""},
			{audit.Filter{Limit: 9, Target: "nothing"}, ""},
			{audit.Filter{Limit: 9, Without: "site.revoke"}, ""},
			{audit.Filter{Limit: 2, Without: "site.rotate"}, "5 4"},
			{audit.Filter{Limit: 9, From: time.Now().Add(time.Hour)}, ""},
			{audit.Filter{Limit: 2, Text: "SITE.REV"}, "5 4"},
			{audit.Filter{Limit: 9, Text: "site.rev", Before: 3}, "2 1"},
			{audit.Filter{Limit: 9, Text: "site%rev"}, ""},
			{audit.Filter{Limit: 9, Text: "root", To: time.Now().Add(-time.Hour)}, ""},
			{audit.Filter{Limit: 1, To: time.Now().Add(time.Hour)}, "5"},
		} {
			entries, err := f.List(t.Context(), d, tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, fmt.Sprint(e.Seq))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%+v: got %v, want %s", tt.filter, got, tt.want)
			}
		}
	})
}
