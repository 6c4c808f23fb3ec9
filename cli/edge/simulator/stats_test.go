package simulator

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentilesAreAtMostAnEighthTooHigh(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h histogram
		n := 1 + rnd.IntN(300)
		values := make([]int64, n)
		for i := range values {
			values[i] = rnd.Int64N(1 << (1 + rnd.IntN(25)))
			h.add(time.Duration(values[i]) * time.Microsecond)
		}
		slices.Sort(values)
		sum := h.sum()
		for p, got := range map[int]float64{50: sum.P50, 99: sum.P99} {
			exact := float64(values[(n*p+99)/100-1]) / 1000
			if got < exact || got > exact*1.125+0.001 {
				t.Fatalf("%d values, percentile %d: %g, exactly %g", n, p, got, exact)
			}
		}
		if sum.Count != int64(n) || sum.Max != float64(values[n-1])/1000 {
			t.Fatalf("%+v", sum)
		}
	}
}
