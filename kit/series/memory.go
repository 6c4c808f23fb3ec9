package series

import (
	"container/list"
	"sync"
	"time"
)

// Memory keeps the last minutes of a limited number of series in memory. It is safe for concurrent
// use. Each series takes 32 bytes per minute.
type Memory[K comparable] struct {
	minutes, maxSeries int

	mu     sync.Mutex
	series map[K]*ring
	fed    *list.List // of K; the series with the newest sample first
}

// ring has a slot for each of the last minutes.
type ring struct {
	place   *list.Element
	buckets []bucket
}

// bucket is one minute. A count of zero means that it is empty.
type bucket struct {
	minute int32 // since 1970: enough until the year 6053
	count  int32
	sum    float64
	min    float64
	max    float64
}

// NewMemory returns a Memory that keeps the last minutes of at most maxSeries series. Beyond that,
// it drops the series whose last sample is the oldest.
func NewMemory[K comparable](minutes, maxSeries int) *Memory[K] {
	return &Memory[K]{minutes: minutes, maxSeries: maxSeries, series: map[K]*ring{}, fed: list.New()}
}

// Add adds a sample to a series. It drops samples that are older than the kept minutes.
func (m *Memory[K]) Add(key K, at time.Time, value float64) {
	if at.Unix() < 0 {
		return // a clock that was never set
	}
	minute := int32(at.Unix() / 60) //nolint:gosec // see bucket
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.series[key]
	if r == nil {
		if len(m.series) >= m.maxSeries {
			last := m.fed.Back()
			delete(m.series, m.fed.Remove(last).(K))
		}
		r = &ring{place: m.fed.PushFront(key), buckets: make([]bucket, m.minutes)}
		m.series[key] = r
	}
	m.fed.MoveToFront(r.place)
	b := &r.buckets[int(minute)%m.minutes]
	switch {
	case b.count == 0 || b.minute < minute:
		*b = bucket{minute: minute, count: 1, sum: value, min: value, max: value}
	case b.minute == minute:
		b.count, b.sum = b.count+1, b.sum+value
		b.min, b.max = min(b.min, value), max(b.max, value)
	}
}

// Read returns the kept points of a series in a window.
func (m *Memory[K]) Read(key K, w Window) []Point { return w.Downsample(m.points(key)) }

// points returns the kept minutes of a series, in no order. A minute that is too old may still be
// in its slot if nothing was measured since; it is skipped.
func (m *Memory[K]) points(key K) []Point {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.series[key]
	if r == nil {
		return nil
	}
	newest := int32(0)
	for _, b := range r.buckets {
		newest = max(newest, b.minute)
	}
	points := make([]Point, 0, len(r.buckets))
	for _, b := range r.buckets {
		if b.count > 0 && int(newest-b.minute) < m.minutes {
			points = append(points, Point{
				Time: time.Unix(int64(b.minute)*60, 0).UTC(), Count: int64(b.count), Sum: b.sum, Min: b.min, Max: b.max,
			})
		}
	}
	return points
}
