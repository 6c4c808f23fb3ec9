package vm_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// told is something that happens to a VM: from then on it is in a state, of the run that began at started.
type told struct {
	at, started time.Time
	state       record.State
}

// history returns what happens to a VM in about a month, and how long its process runs.
func history(r *rand.Rand, t time.Time) (all []told, ran time.Duration) {
	for range 3 + r.IntN(12) {
		t = t.Add(time.Duration(1+r.Int64N(48*3600e6)) * time.Microsecond)
		begin := t
		all = append(all, told{t.Add(-time.Microsecond), time.Time{}, record.Starting}, told{t, begin, record.Running})
		for range r.IntN(3) {
			t = t.Add(time.Duration(1+r.Int64N(20*3600e6)) * time.Microsecond)
			state := record.Paused
			if all[len(all)-1].state == record.Paused {
				state = record.Running
			}
			all = append(all, told{t, begin, state})
		}
		t = t.Add(time.Duration(1+r.Int64N(20*3600e6)) * time.Microsecond)
		all, ran = append(all, told{t, begin, record.Stopping}), ran+t.Sub(begin)
		t = t.Add(time.Second)
		all, ran = append(all, told{t, time.Time{}, record.Stopped}), ran+time.Second
	}
	return all, ran
}

// However sightings and events come, late, repeated or not at all, a VM's runs add up to how long it ran.
func TestSightingsAndEventsAddUpToHowLongAVMRan(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		manyHistories(t, db.Config{Path: filepath.Join(t.TempDir(), "vm.db"), Schema: "vm"}, 4)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		manyHistories(t, db.Config{URL: dbtest.PostgresURL(t), Schema: "vm"}, 8)
	})
}

func manyHistories(t *testing.T, cfg db.Config, seeds uint64) {
	t.Helper()
	d, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, m := range vm.Migrations() {
		if err := d.Migrate(t.Context(), m.Owner, m.Files); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		oneHistory(t, d, seed)
	}
}

func oneHistory(t *testing.T, d *db.DB, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	began := time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)
	all, want := history(r, began)
	now := began
	store := record.New(d, nil, func() time.Time { return now })
	v := record.VM{
		ID: fmt.Sprintf("vm-%d", seed), Name: fmt.Sprintf("web-%d", seed), DriverID: fmt.Sprintf("d-%d", seed), CPUs: 1, Memory: 512, Disk: 2,
		State: record.Stopped, CreatedAt: db.At(began), UpdatedAt: db.At(began),
	}
	if err := d.Update(t.Context(), func(tx *db.Tx) error { return tx.Insert(t.Context(), "vms", v) }); err != nil {
		t.Fatal(err)
	}
	end := all[len(all)-1].at.Add(time.Hour)
	read := 0 // how many events were counted
	for now.Before(end) || read < len(all) {
		now = now.Add(time.Duration(r.Int64N(12*3600e6)) * time.Microsecond)
		if r.IntN(3) > 0 {
			see(t, store, &v, all, now)
		}
		if r.IntN(6) == 0 && read > 0 {
			read = r.IntN(read) // it was killed, or another replica reads them, too
		}
		if r.IntN(3) == 0 {
			for n := r.IntN(8); n >= 0 && read < len(all) && !all[read].at.After(now); n-- {
				e := all[read]
				read++
				if err := store.Happened(t.Context(), record.UsageEvent{
					Event: fmt.Sprint(read), DriverID: v.DriverID, At: e.at, State: e.state,
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	f := record.UsageFilter{From: began, To: now.AddDate(0, 1, 0)}
	segments, err := store.UsageOf(caller.ByItself(t.Context()), f, []string{v.ID})
	if err != nil {
		t.Fatal(err)
	}
	var got time.Duration
	segments = slices.DeleteFunc(segments, func(u record.Usage) bool { return u.Kind != "run" })
	for i, u := range segments {
		got += u.To.Sub(u.From.Time)
		if i > 0 && u.From.Before(segments[i-1].To.Time) {
			t.Errorf("seed %d: %s counts twice", seed, u.From)
		}
		if u.From.Month() != u.To.Add(-time.Microsecond).Month() && u.From.Before(u.To.Time) {
			t.Errorf("seed %d: a segment over a month's end: %s to %s", seed, u.From, u.To)
		}
	}
	if got != want {
		t.Errorf("seed %d: it ran %s, and %s are counted", seed, want, got)
	}
}

// see has the store see a VM as it is at a time.
func see(t *testing.T, store *record.Store, v *record.VM, all []told, at time.Time) {
	t.Helper()
	seen := record.Seen{DriverID: v.DriverID, State: record.Stopped, CPUs: 1, Memory: 512, Disk: 2}
	for _, e := range all {
		if e.at.After(at) {
			break
		}
		seen.State, seen.StartedAt = e.state, db.At(e.started)
	}
	if err := store.Sighted(t.Context(), []record.Sighting{{VM: v.ID, At: at, Seen: seen}}); err != nil {
		t.Fatal(err)
	}
}
