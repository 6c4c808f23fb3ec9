package simulator

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule returns sites when they are due, earliest first.
type schedule struct {
	now func() time.Time

	mu    sync.Mutex
	sites byDue
	woken chan struct{} // a site became the first
}

func newSchedule(now func() time.Time) *schedule {
	return &schedule{now: now, woken: make(chan struct{}, 1)}
}

// put schedules a site for its due time.
func (s *schedule) put(site *site) {
	s.mu.Lock()
	heap.Push(&s.sites, site)
	first := s.sites[0] == site
	s.mu.Unlock()
	if first {
		select {
		case s.woken <- struct{}{}:
		default: // the dispatcher will check anyway
		}
	}
}

// run passes on sites as they become due, until ctx ends.
func (s *schedule) run(ctx context.Context, work chan<- *site) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		site, wait := s.take()
		if site != nil {
			select {
			case work <- site:
				continue
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.woken:
		case <-ctx.Done():
			return
		}
	}
}

// take removes the first site if it is due. Otherwise it returns how long to wait.
func (s *schedule) take() (*site, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sites) == 0 {
		return nil, time.Hour
	}
	if wait := s.sites[0].due.Sub(s.now()); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&s.sites).(*site), 0
}

// byDue is a heap of sites (container/heap).
type byDue []*site

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byDue) Push(x any) { *h = append(*h, x.(*site)) }

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}
