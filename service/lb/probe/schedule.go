package probe

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// entry is one wanted check with what is known of it.
type entry struct {
	Check
	health  health
	due     time.Time // of the next probe
	place   int       // in the schedule, for container/heap
	slow    bool      // the last probe was not answered in time
	removed bool
}

// schedule is a heap of the entries that wait for their time, soonest first.
type schedule []*entry

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push and Pop are for container/heap only.
func (s *schedule) Push(x any) {
	e := x.(*entry)
	e.place = len(*s)
	*s = append(*s, e)
}

// Pop takes the last element.
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

// next takes the soonest entry if its time has come.
func (s *schedule) next(now time.Time) *entry {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*entry)
}

// wait is the time until the soonest entry, an hour if there is none.
func (s schedule) wait(now time.Time) time.Duration {
	if len(s) == 0 {
		return time.Hour
	}
	return max(0, s[0].due.Sub(now))
}

// spread is the time over which new checks begin: a file with many backends, read at
// once, starts them one by one.
const spread = 200 * time.Millisecond

// firstDelay is the time from a new check to its first probe.
func firstDelay(interval time.Duration) time.Duration {
	return rand.N(min(interval, spread))
}

// nextDelay is the time from the start of a probe to that of the next: the interval,
// give or take a tenth, so that probes do not fall into step.
func nextDelay(interval time.Duration) time.Duration {
	return interval - interval/10 + rand.N(interval/5+1)
}

// lane is a number of places for probes under way, and the line before them.
type lane struct {
	places  int
	busy    int
	waiting []*entry
}

// enter says whether e found a place; otherwise it stands in line.
func (l *lane) enter(e *entry) bool {
	if l.busy == l.places {
		l.waiting = append(l.waiting, e)
		return false
	}
	l.busy++
	return true
}

// leave gives a place back, or to the first in line, which it returns.
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
