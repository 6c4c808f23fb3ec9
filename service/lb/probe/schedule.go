package probe

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// entry is the state of one wanted check.
type entry struct {
	Check
	health  health
	due     time.Time // of the next probe
	place   int       // index in the schedule, for container/heap
	slow    bool      // the last probe timed out
	removed bool
}

// schedule is a heap of the entries that wait for their next probe, soonest first.
type schedule []*entry

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	e := x.(*entry)
	e.place = len(*s)
	*s = append(*s, e)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	e.place = -1
	return e
}

func (s *schedule) add(e *entry) { heap.Push(s, e) }

func (s *schedule) remove(e *entry) {
	if e.place >= 0 {
		heap.Remove(s, e.place)
	}
}

// next removes and returns the soonest entry if it is due, or else returns nil.
func (s *schedule) next(now time.Time) *entry {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*entry)
}

// wait returns the time until the soonest entry is due, or an hour if there is none.
func (s schedule) wait(now time.Time) time.Duration {
	if len(s) == 0 {
		return time.Hour
	}
	return max(0, s[0].due.Sub(now))
}

// spread is the time over which the first probes of new checks are spread, so that many new
// backends are not all probed at once.
const spread = 200 * time.Millisecond

// firstDelay returns the time from adding a check to its first probe.
func firstDelay(interval time.Duration) time.Duration {
	return rand.N(min(interval, spread))
}

// nextDelay returns the time from the start of a probe to the start of the next: the interval, plus
// or minus a tenth, so that probes do not synchronize.
func nextDelay(interval time.Duration) time.Duration {
	return interval - interval/10 + rand.N(interval/5+1)
}

// lane is a number of places for probes in flight, and the queue for them.
type lane struct {
	places  int
	busy    int
	waiting []*entry
}

// enter takes a place for e and returns true, or queues e and returns false.
func (l *lane) enter(e *entry) bool {
	if l.busy == l.places {
		l.waiting = append(l.waiting, e)
		return false
	}
	l.busy++
	return true
}

// leave frees a place. If an entry is queued, leave gives it the place and returns it.
func (l *lane) leave() *entry {
	for len(l.waiting) > 0 {
		e := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		if !e.removed {
			return e
		}
	}
	l.busy--
	return nil
}
