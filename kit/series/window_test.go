package series_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/series"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestTheStepIsTheShortestRoundLengthThatFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		span   time.Duration
		points int
		want   string
	}{
		{time.Hour, 61, "1m0s 60"},
		{time.Hour, 60, "1m0s 60"},
		{time.Hour, 59, "5m0s 12"},
		{time.Hour, 2, "30m0s 2"},
		{6 * time.Hour, 100, "5m0s 72"},
		{24 * time.Hour, 96, "15m0s 96"},
		{24 * time.Hour, 24, "1h0m0s 24"},
		{7 * 24 * time.Hour, 60, "3h0m0s 56"},
		{30 * 24 * time.Hour, 60, "12h0m0s 60"},
		{365 * 24 * time.Hour, 500, "24h0m0s 366"}, // noon to noon
		{10 * 365 * 24 * time.Hour, 2, "140160h0m0s 2"},
	} {
		w, err := series.NewWindow(noon.Add(-c.span), noon, c.points)
		if got := fmt.Sprint(w.Step, " ", w.Points()); got != c.want || err != nil {
			t.Errorf("%s in %d points: %s, %v, want %s", c.span, c.points, got, err, c.want)
		}
	}
}

func TestAWindowCoversItsSpanInAlignedStepsWithinItsPoints(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		until := time.UnixMicro(rnd.Int64N(4e15))
		since := until.Add(-time.Duration(1 + rnd.Int64N(int64(series.MaxSpan))>>rnd.IntN(40)))
		points := series.MinPoints + rnd.IntN(series.MaxPoints-series.MinPoints)
		w, err := series.NewWindow(since, until, points)
		if err != nil {
			t.Fatal(err)
		}
		aligned := w.From.UnixMicro()%w.Step.Microseconds() == 0 && w.To.UnixMicro()%w.Step.Microseconds() == 0
		tight := since.Sub(w.From) < w.Step && w.To.Sub(until) < w.Step
		if !aligned || !tight || w.From.After(since) || w.To.Before(until) || w.Points() > points {
			t.Fatalf("%s to %s in %d points: %+v", since, until, points, w)
		}
	}
}

func TestAWindowThatMakesNoSenseIsRefusedByTheNameOfItsParameter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		since  time.Time
		points int
		field  string
	}{
		{noon.Add(-time.Hour), 1, "points"},
		{noon.Add(-time.Hour), series.MaxPoints + 1, "points"},
		{noon, 60, "since"},
		{noon.Add(time.Hour), 60, "since"},
		{noon.AddDate(-11, 0, 0), 60, "since"},
		{time.Time{}, 60, "since"},
	} {
		_, err := series.NewWindow(c.since, noon, c.points)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestTheLastStepsEndWithThePresentOne(t *testing.T) {
	t.Parallel()
	w := series.Last(noon.Add(30*time.Second), time.Minute, 60)
	if !w.From.Equal(noon.Add(-59*time.Minute)) || !w.To.Equal(noon.Add(time.Minute)) || w.Points() != 60 {
		t.Errorf("%+v", w)
	}
}

func point(minute int, samples ...float64) series.Point {
	p := series.Point{Time: noon.Add(time.Duration(minute) * time.Minute)}
	for _, v := range samples {
		if p.Count++; p.Count == 1 {
			p.Min, p.Max = v, v
		}
		p.Sum, p.Min, p.Max = p.Sum+v, min(p.Min, v), max(p.Max, v)
	}
	return p
}

// text formats points as "minutes after noon: count sum min avg max".
func text(points []series.Point) (out []string) {
	for _, p := range points {
		out = append(out, fmt.Sprintf(
			"%g: %d %g %g %g %g", p.Time.Sub(noon).Minutes(), p.Count, p.Sum, p.Min, p.Avg(), p.Max,
		))
	}
	return out
}

func TestDownsamplingAddsUpEachStepAndInventsNone(t *testing.T) {
	t.Parallel()
	w := series.Window{From: noon, To: noon.Add(20 * time.Minute), Step: 5 * time.Minute}
	got := text(w.Downsample([]series.Point{
		point(16, 4), point(4, 1, -3), point(0, 5), point(-1, 100), point(20, 100), {Time: noon.Add(7 * time.Minute)},
	}))
	if want := "[0: 3 3 -3 1 5 15: 1 4 4 4 4]"; fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := w.Downsample(nil); got == nil || len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}

func TestFillingTurnsMissingStepsToZeroAndKeepsTheOthers(t *testing.T) {
	t.Parallel()
	w := series.Window{From: noon, To: noon.Add(20 * time.Minute), Step: 5 * time.Minute}
	got := text(w.Fill(w.Downsample([]series.Point{point(6, 2), point(8, 3)})))
	if want := "[0: 0 0 0 0 0 5: 2 5 2 2.5 3 10: 0 0 0 0 0 15: 0 0 0 0 0]"; fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestACounterThatWentBackBeganAgainAtZero(t *testing.T) {
	t.Parallel()
	var total uint64
	samples := []uint64{100, 130, 130, 7, 10, 0, 1 << 62}
	for i := 1; i < len(samples); i++ {
		total += series.Increase(samples[i-1], samples[i])
	}
	if want := uint64(30 + 0 + 7 + 3 + 0 + 1<<62); total != want {
		t.Errorf("%d, want %d", total, want)
	}
	if got := series.Increase(2.5, 1.5); got != 1.5 {
		t.Error(got)
	}
}
