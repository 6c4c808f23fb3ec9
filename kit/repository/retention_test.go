package repository_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/mainstay-infra/mainstay/kit/repository"
)

func dated(n int, taken time.Time) repository.Dated {
	d := repository.Dated{Taken: taken}
	binary.BigEndian.PutUint64(d.ID[:], uint64(n))
	return d
}

func berlin(t *testing.T) *time.Location {
	t.Helper()
	l, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKeepersOfAPolicy(t *testing.T) {
	t.Parallel()
	l := berlin(t)
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, l)
	var hourly []repository.Dated // the newest is number 0
	for n := range 24 * 100 {
		hourly = append(hourly, dated(n, now.Add(-time.Duration(n)*time.Hour)))
	}
	for _, c := range []struct {
		policy repository.Policy
		want   int
	}{
		{repository.Policy{}, 2400},
		{repository.Policy{Last: 5}, 5},
		{repository.Policy{Daily: 7}, 7},
		{repository.Policy{Weekly: 4}, 4},
		{repository.Policy{Monthly: 3}, 3},
		// The newest is also that of its day, week and month; 29 March is that of a day and of a week,
		// since it is a Sunday; 31 March is that of a day and of a month.
		{repository.Policy{Last: 1, Daily: 7, Weekly: 2, Monthly: 2}, 7},
		// Two days back from noon, with 48 hours between: no change of time lies there.
		{repository.Policy{Days: 2}, 49},
		// On 29 March there was one hour less.
		{repository.Policy{Days: 4}, 4*24 - 1 + 1},
	} {
		if got := repository.Keepers(hourly, c.policy, now, l); len(got) != c.want {
			t.Errorf("%+v keeps %d instead of %d", c.policy, len(got), c.want)
		}
	}
}

func TestDaysAreThoseOfTheLocation(t *testing.T) {
	t.Parallel()
	// One moment before midnight in Berlin and one after; in UTC both are on one day.
	a, b := dated(1, time.Date(2026, 6, 1, 21, 30, 0, 0, time.UTC)), dated(2, time.Date(2026, 6, 1, 22, 30, 0, 0, time.UTC))
	now, policy := time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC), repository.Policy{Daily: 9}
	if got := repository.Keepers([]repository.Dated{a, b}, policy, now, berlin(t)); len(got) != 2 {
		t.Errorf("in Berlin: %v", got)
	}
	if got := repository.Keepers([]repository.Dated{a, b}, policy, now, time.UTC); len(got) != 1 || got[b.ID] == nil {
		t.Errorf("in UTC: %v", got)
	}
	// The hour that comes twice is on one day.
	first := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	twice := []repository.Dated{dated(1, first), dated(2, first.Add(time.Hour))}
	if got := repository.Keepers(twice, policy, first.Add(time.Hour*9), berlin(t)); len(got) != 1 {
		t.Errorf("the hour that comes twice: %v", got)
	}
	// 2026-12-31 and 2027-01-01 are in one week.
	newYear := []repository.Dated{dated(1, time.Date(2026, 12, 31, 9, 0, 0, 0, time.UTC)), dated(2, time.Date(2027, 1, 1, 9, 0, 0, 0, time.UTC))}
	if got := repository.Keepers(newYear, repository.Policy{Weekly: 9}, first.AddDate(1, 0, 0), time.UTC); len(got) != 1 {
		t.Errorf("the week of the new year: %v", got)
	}
}

func TestPropertiesOfRetention(t *testing.T) {
	t.Parallel()
	l := berlin(t)
	random := rand.New(rand.NewPCG(1, 1))
	removed := 0
	for range 500 {
		now := time.Unix(1700000000+random.Int64N(1e8), 0)
		var all []repository.Dated
		for n := range random.IntN(60) {
			d := dated(n, now.Add(-time.Duration(random.Int64N(int64(3000*time.Hour)))+50*time.Hour))
			if random.IntN(5) == 0 {
				d.ProtectedUntil = now.Add(time.Duration(random.Int64N(int64(100*time.Hour))) - 50*time.Hour)
			}
			all = append(all, d)
		}
		policy := repository.Policy{
			Last: random.IntN(4), Daily: random.IntN(5), Weekly: random.IntN(4), Monthly: random.IntN(3), Days: random.IntN(10),
		}
		keep := repository.Keepers(all, policy, now, l)
		removed += len(all) - len(keep)
		shuffled := slices.Clone(all)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := repository.Keepers(shuffled, policy, now, l); !reflect.DeepEqual(keep, again) {
			t.Fatalf("the order counts: %v, %v", keep, again)
		}
		var left []repository.Dated
		for _, d := range all {
			reasons, kept := keep[d.ID]
			if kept {
				left = append(left, d)
			}
			if kept != (len(reasons) > 0) || slices.ContainsFunc(reasons, func(s string) bool { return strings.TrimSpace(s) == "" }) {
				t.Fatalf("reasons: %v", reasons)
			}
			if !kept && (d.ProtectedUntil.After(now) || d.Taken.After(now) || policy.Last > 0 && len(all) == 1) {
				t.Fatalf("%+v goes under %+v", d, policy)
			}
		}
		// What stays, stays when it is asked again.
		if again := repository.Keepers(left, policy, now, l); !slices.Equal(sortedIDs(keep), sortedIDs(again)) {
			t.Fatalf("%d were kept at first, and then %d", len(keep), len(again))
		}
		// A policy that keeps more keeps all that one keeps that asks for less.
		more := repository.Policy{Last: policy.Last + 1, Daily: policy.Daily + 1, Weekly: policy.Weekly + 1, Monthly: policy.Monthly + 1, Days: policy.Days + 1}
		if policy != (repository.Policy{}) {
			wide := repository.Keepers(all, more, now, l)
			for id := range keep {
				if wide[id] == nil {
					t.Fatalf("%+v keeps what %+v does not", policy, more)
				}
			}
		}
	}
	if removed < 1000 {
		t.Errorf("only %d were removed", removed)
	}
}

func sortedIDs(m map[repository.ID][]string) []string {
	var all []string
	for id := range maps.Keys(m) {
		all = append(all, id.String())
	}
	slices.Sort(all)
	return all
}
