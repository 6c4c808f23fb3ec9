package series

import (
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of requests.
const (
	MinPoints = 2
	MaxPoints = 1000
	// MaxSpan is the longest span of a window.
	MaxSpan = 10 * 366 * 24 * time.Hour
)

const day = 24 * time.Hour

// steps are the possible lengths of a step. Each is a multiple of a minute, and most are multiples
// of the previous one, so that points of a finer result add up to those of a coarser one.
var steps = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 7 * day, 30 * day, 365 * day,
}

// Window is the span of a result, from From (inclusive) to To (exclusive). Both are multiples of
// Step.
type Window struct {
	From, To time.Time
	Step     time.Duration
}

// NewWindow returns the window from since to until with the shortest step that needs at most points
// points. Invalid values are faults that name since or points, like the query parameters.
func NewWindow(since, until time.Time, points int) (Window, error) {
	if points < MinPoints || points > MaxPoints {
		return Window{}, fault.InvalidField("points", "must be between %d and %d, not %d", MinPoints, MaxPoints, points)
	}
	if !since.Before(until) {
		return Window{}, fault.InvalidField("since", "must be before %s", until.UTC().Format(time.RFC3339))
	}
	if until.Sub(since) > MaxSpan {
		return Window{}, fault.InvalidField("since", "is more than ten years back")
	}
	for _, step := range steps {
		if w := window(since, until, step); w.Points() <= points {
			return w, nil
		}
	}
	// Up to ten years with few points.
	step := steps[len(steps)-1]
	for window(since, until, step).Points() > points {
		step *= 2
	}
	return window(since, until, step), nil
}

// Last returns the window of the given number of steps that ends with the current one.
func Last(now time.Time, step time.Duration, points int) Window {
	to := floor(now, step).Add(step)
	return Window{From: to.Add(-time.Duration(points) * step), To: to, Step: step}
}

// window returns the window with the given step that covers a span.
func window(since, until time.Time, step time.Duration) Window {
	to := floor(until, step)
	if to.Before(until) {
		to = to.Add(step)
	}
	return Window{From: floor(since, step), To: to, Step: step}
}

// floor rounds t down to a multiple of step since 1970. (Time.Truncate counts from the year 1.)
func floor(t time.Time, step time.Duration) time.Time {
	past := time.Duration(t.UnixNano()) % step
	if past < 0 {
		past += step
	}
	return t.Add(-past).UTC()
}

// Points returns the maximum number of points in the window.
func (w Window) Points() int { return int(w.To.Sub(w.From) / w.Step) }

// Point aggregates the samples of one step.
type Point struct {
	Time  time.Time // when the step begins
	Count int64     // samples
	Sum   float64   // of the samples; for increments, the total of the step
	Min   float64
	Max   float64
}

// Avg returns the mean of the samples, 0 if there are none.
func (p Point) Avg() float64 {
	if p.Count == 0 {
		return 0
	}
	return p.Sum / float64(p.Count)
}

// add adds the samples of q to p.
func (p *Point) add(q Point) {
	if p.Count == 0 {
		p.Min, p.Max = q.Min, q.Max
	}
	p.Count, p.Sum = p.Count+q.Count, p.Sum+q.Sum
	p.Min, p.Max = min(p.Min, q.Min), max(p.Max, q.Max)
}

// Downsample aggregates points, whose steps must not be longer than the window's, into the steps of
// the window, in ascending order of time. Points outside the window and points without samples are
// omitted.
func (w Window) Downsample(points []Point) []Point {
	by := make(map[time.Time]*Point, w.Points())
	for _, p := range points {
		if p.Count == 0 || p.Time.Before(w.From) || !p.Time.Before(w.To) {
			continue
		}
		at := floor(p.Time, w.Step)
		if by[at] == nil {
			by[at] = &Point{Time: at}
		}
		by[at].add(p)
	}
	out := make([]Point, 0, len(by))
	for _, p := range by {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Point) int { return a.Time.Compare(b.Time) })
	return out
}

// Fill adds a zero point for each step that is missing in points, which must come from Downsample.
// It is for counts that would exist if anything had happened.
func (w Window) Fill(points []Point) []Point {
	filled := make([]Point, 0, w.Points())
	for at := w.From; at.Before(w.To); at = at.Add(w.Step) {
		if len(points) > 0 && points[0].Time.Equal(at) {
			filled, points = append(filled, points[0]), points[1:]
			continue
		}
		filled = append(filled, Point{Time: at})
	}
	return filled
}

// Increase returns how much a counter increased between two samples. A counter that decreased has
// restarted at zero, as in Prometheus' increase, so its whole value is new.
func Increase[N uint64 | int64 | float64](before, now N) N {
	if now < before {
		return now
	}
	return now - before
}
