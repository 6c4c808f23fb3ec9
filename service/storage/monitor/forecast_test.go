package monitor

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// grown returns the use of so many days that grows by so much a day, plus what noise returns.
func grown(days int, perDay float64, noise func() float64) (all []Use) {
	first := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range days {
		all = append(all, Use{Day: first.AddDate(0, 0, i), Used: int64(1000 + perDay*float64(i) + noise()), Raw: 10_000})
	}
	return all
}

func none() float64 { return 0 }

func TestAForecastContinuesALine(t *testing.T) {
	t.Parallel()
	uses := grown(10, 100, none)
	g := forecast(uses)
	// 1,900 are used on the tenth day, so 8,100 are left: 81 days.
	if want := uses[9].Day.AddDate(0, 0, 81); g.Days != 10 || math.Abs(g.PerDay-100) > 1e-6 || g.Error > 1e-6 ||
		g.FullAt.Sub(want).Abs() > time.Minute || g.Earliest.Sub(want).Abs() > time.Minute {
		t.Errorf("%+v", g)
	}
}

func TestAForecastSaysNothingOfWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, uses := range map[string][]Use{
		"no day": nil, "one day": grown(1, 100, none), "two days": grown(2, 100, none),
		"no growth": grown(10, 0, none), "less use": grown(10, -50, none), "more than ten years": grown(10, 1, none),
	} {
		if g := forecast(uses); !g.FullAt.IsZero() || g.Days != len(uses) {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

func TestAForecastLooksBackThirtyDays(t *testing.T) {
	t.Parallel()
	uses := append(grown(60, 5000, none)[:30:30], grown(60, 10, none)[30:]...)
	if g := forecast(uses); g.Days != 30 || math.Abs(g.PerDay-10) > 1e-6 {
		t.Errorf("%+v", g)
	}
}

// The error is that of Student's distribution: it holds the truth in 95 of 100 cases.
func TestTheErrorOfAForecastHoldsTheTruth(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	held, rounds := 0, 2000
	for range rounds {
		g := forecast(grown(10, 100, func() float64 { return random.NormFloat64() * 200 }))
		if math.Abs(g.PerDay-100) <= g.Error {
			held++
		}
	}
	if part := float64(held) / float64(rounds); part < 0.93 || part > 0.97 {
		t.Errorf("the truth was within the error in %.1f %% of the cases", part*100)
	}
}
