package monitor

import (
	"math"
	"time"
)

// Use is how much a cluster used on a day.
type Use struct {
	Day  time.Time
	Used int64 // bytes
	Raw  int64 // bytes that it can hold
}

// Growth is a straight line through the use of several days.
type Growth struct {
	Days     int     // that are known
	PerDay   float64 // bytes
	Error    float64 // of PerDay, in 95 of 100 cases; 0 with fewer than three days: it is not known
	FullAt   time.Time
	Earliest time.Time // with the largest growth within the error
}

const (
	day = 24 * time.Hour
	// forecastDays is how many days a forecast looks back, and horizon how far it looks ahead.
	forecastDays = 30
	horizon      = 10 * 365 * day
	// leastDays is how many days say anything about the next ones.
	leastDays = 3
)

// student are the quantiles 0.975 of Student's distribution for 1, 2, 3 and so on degrees of freedom.
var student = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
	2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
}

// forecast draws a line through the use of at most 30 days, in order of time, by least squares. With fewer than three
// days it says nothing about when the cluster is full.
func forecast(uses []Use) Growth {
	if len(uses) > forecastDays {
		uses = uses[len(uses)-forecastDays:]
	}
	g := Growth{Days: len(uses)}
	if len(uses) < leastDays {
		return g
	}
	first, n := uses[0].Day, float64(len(uses))
	at := func(u Use) float64 { return u.Day.Sub(first).Hours() / 24 }
	var meanX, meanY float64
	for _, u := range uses {
		meanX += at(u) / n
		meanY += float64(u.Used) / n
	}
	var xx, xy float64
	for _, u := range uses {
		xx += (at(u) - meanX) * (at(u) - meanX)
		xy += (at(u) - meanX) * (float64(u.Used) - meanY)
	}
	g.PerDay = xy / xx
	var off float64
	for _, u := range uses {
		d := float64(u.Used) - meanY - g.PerDay*(at(u)-meanX)
		off += d * d
	}
	free := len(uses) - 2
	g.Error = student[free-1] * math.Sqrt(off/float64(free)/xx)
	last := uses[len(uses)-1]
	g.FullAt, g.Earliest = fullAt(last, g.PerDay), fullAt(last, g.PerDay+g.Error)
	return g
}

// fullAt returns when a cluster is full if it grows by so many bytes a day. Zero: not within ten years.
func fullAt(last Use, perDay float64) time.Time {
	left := float64(max(0, last.Raw-last.Used))
	if perDay <= 0 || left/perDay > horizon.Hours()/24 {
		return time.Time{}
	}
	return last.Day.Add(time.Duration(left / perDay * float64(day)))
}
