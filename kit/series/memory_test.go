package series_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/series"
)

func TestMemoryKeepsTheLastMinutesOfASeries(t *testing.T) {
	t.Parallel()
	m := series.NewMemory[string](10, 4)
	w := series.Window{From: noon.Add(-time.Hour), To: noon.Add(time.Hour), Step: time.Minute}
	for minute := range 13 {
		if minute == 8 {
			continue // nothing is known of it
		}
		m.Add("a", noon.Add(time.Duration(minute)*time.Minute), float64(minute))
		m.Add("a", noon.Add(time.Duration(minute)*time.Minute+59*time.Second), 1)
	}
	m.Add("a", noon.Add(2*time.Minute), 100) // too old
	got := text(m.Read("a", w))
	want := "[3: 2 4 1 2 3 4: 2 5 1 2.5 4 5: 2 6 1 3 5 6: 2 7 1 3.5 6 7: 2 8 1 4 7 9: 2 10 1 5 9 10: 2 11 1 5.5 10 11: 2 12 1 6 11 12: 2 13 1 6.5 12]"
	if fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := m.Read("b", w); len(got) != 0 {
		t.Errorf("%v of a series that nobody fed", got)
	}
}

func TestMinutesThatTheRingHasGoneBeyondAreGone(t *testing.T) {
	t.Parallel()
	m := series.NewMemory[string](10, 4)
	m.Add("a", noon, 1)
	m.Add("a", noon.Add(15*time.Minute), 2) // another place
	got := text(m.Read("a", series.Window{From: noon, To: noon.Add(time.Hour), Step: time.Minute}))
	if want := "[15: 1 2 2 2 2]"; fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTheSeriesThatWasFedTheLongestTimeAgoMakesRoom(t *testing.T) {
	t.Parallel()
	m := series.NewMemory[string](10, 3)
	w := series.Last(noon, time.Minute, 5)
	for i, key := range []string{"a", "b", "c", "a", "d"} {
		m.Add(key, noon, float64(i))
	}
	for key, want := range map[string]int{"a": 1, "b": 0, "c": 1, "d": 1} {
		if got := m.Read(key, w); len(got) != want {
			t.Errorf("%s: %v", key, got)
		}
	}
}

func TestTimesBefore1970AreNotKept(t *testing.T) {
	t.Parallel()
	m := series.NewMemory[string](10, 3)
	m.Add("a", time.Unix(-61, 0), 1)
	if got := m.Read("a", series.Last(time.Unix(0, 0), time.Minute, 5)); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestMemoryIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	m := series.NewMemory[int](60, 8)
	w := series.Last(noon, time.Hour, 2)
	var work sync.WaitGroup
	for g := range 8 {
		work.Go(func() {
			for i := range 1000 {
				m.Add(g, noon.Add(time.Duration(-i%60)*time.Minute), 1)
				m.Read(i%9, w)
			}
		})
	}
	work.Wait()
	for g := range 8 {
		var count int64
		for _, p := range m.Read(g, w) {
			count += p.Count
		}
		if count != 1000 {
			t.Errorf("series %d has %d samples", g, count)
		}
	}
}
