//go:build linux

package datapath

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	// sweepEvery is the time between two looks at all flows: a table of the default
	// size takes some tens of milliseconds of one core.
	sweepEvery = 30 * time.Second
	// tendEvery is the time between two looks at what takes little, and at all flows while
	// a VIP has little room left, as in an attack.
	tendEvery = time.Second
)

// Times of bpf/maps.h, in ticks of 2^26 ns.
const (
	tickShift     = 26
	udpIdle       = uint32(30 * time.Second >> tickShift)
	tcpClosed     = uint32(60 * time.Second >> tickShift)
	tcpUnanswered = uint32(30 * time.Second >> tickShift)
	tcpIdle       = uint32(2 * time.Hour >> tickShift)
)

// tableCount is what looking at all flows of one family told.
type tableCount struct {
	flows, evictions uint64
	stored           uint64 // flows that were ever stored
	deleted          uint64 // flows that this process deleted
	pushed           uint64 // those of them that had to make room
	lost             uint64 // stored and neither there nor deleted when it began
	begun            bool
}

// swept takes note of a count: before and after it so many flows had been stored, it
// found left and deleted gone.
//
// Flows that came while they were counted may be among them or not. So that they are
// never taken for evicted, the first count takes as many for lost as may be, and all
// others as few.
func (c *tableCount) swept(before, after, left, gone uint64) {
	c.flows, c.stored, c.deleted = left, after, c.deleted+gone
	there := c.flows + c.deleted
	if !c.begun {
		c.begun, c.lost = true, after-min(after, there)
	}
	c.evictions = max(c.evictions, before-min(before, there+c.lost))
}

// now is how many flows there are, those that came since the count taken to be there still.
func (c *tableCount) now(stored, room uint64) uint64 { return min(room, c.flows+stored-c.stored) }

// keepTending counts flows, deletes those that nobody needs any more, and follows what packets tell
// of ways to tunnels' ends, until ctx ends. The kernel would evict flows too, but only when their
// room is needed, and then perhaps others.
func (d *Datapath) keepTending(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	last := time.Time{}
	for {
		if time.Since(last) >= sweepEvery || d.isTight() {
			last = time.Now()
			if err := d.Sweep(); err != nil {
				d.log.Warn("flows cannot be counted", "error", err)
			}
		}
		if err := d.FollowPaths(); err != nil {
			d.log.Warn("the ways to tunnels' ends cannot be followed", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sweep does one round of what Open does every half a minute.
func (d *Datapath) Sweep() error {
	d.sweeping.Lock()
	defer d.sweeping.Unlock()
	now, err := ticks()
	if err != nil {
		return err
	}
	c := d.newCensus()
	err4 := sweepFlows(
		d, &d.counted[0], countStored4, d.objects.Flows4, now, c, func(k programTuple4) uint8 { return k.Protocol },
	)
	err6 := sweepFlows(
		d, &d.counted[1], countStored6, d.objects.Flows6, now, c, func(k programTuple6) uint8 { return k.Protocol },
	)
	_, _, errR4 := sweepMap(
		d.objects.Replies4, func(k programTuple4, r programReply) bool { return staleReply(now, k.Protocol, r) },
	)
	_, _, errR6 := sweepMap(
		d.objects.Replies6, func(k programTuple6, r programReply) bool { return staleReply(now, k.Protocol, r) },
	)
	return errors.Join(err4, err6, errR4, errR6, d.giveRoom(c))
}

// sweepFlows does it for the flows of one family.
func sweepFlows[K comparable](
	d *Datapath, t *tableCount, stored uint32, m *ebpf.Map, now uint32, c *census, protocol func(K) uint8,
) error {
	before, err := d.count(stored)
	if err != nil {
		return err
	}
	left, gone, err := sweepMap(m, func(k K, f programFlow) bool { return c.unless(staleFlow(now, protocol(k), f), f) })
	if err != nil {
		return err
	}
	after, err := d.count(stored)
	if err != nil {
		return err
	}
	pushed, err := makeRoom[K](m, now, c)
	t.swept(before, after, left, gone)
	t.flows, t.deleted, t.pushed = t.flows-min(t.flows, pushed), t.deleted+pushed, t.pushed+pushed
	return err
}

// Counts of enum count of bpf/maps.h.
const (
	countStored4 uint32 = iota
	countStored6
	countLostReplies
)

// count reads one of the program's own counters.
func (d *Datapath) count(what uint32) (uint64, error) {
	n, err := sum(d.objects.Counts, what, func(a, b uint64) uint64 { return a + b })
	if err != nil {
		return 0, fmt.Errorf("read what the program counts: %w", err)
	}
	return n, nil
}

// tables says how many flows there are, taking those that came since they were last
// counted to be still there, and how many were evicted until then.
func (d *Datapath) tables() (flows, evictions uint64, err error) {
	d.sweeping.Lock()
	defer d.sweeping.Unlock()
	for i, what := range []uint32{countStored4, countStored6} {
		stored, err := d.count(what)
		if err != nil {
			return 0, 0, err
		}
		if c := &d.counted[i]; c.begun {
			flows += c.now(stored, uint64(d.options.Flows)) //nolint:gosec // nobody asks for fewer than none
			evictions += c.evictions + c.pushed
		}
	}
	return flows, evictions, nil
}

// ticks is now_ticks of bpf/maps.h.
func ticks() (uint32, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, err
	}
	return uint32(now.Nano() >> tickShift), nil
}

// idle is how long ago something was seen, in ticks. The kernel may have seen it after
// now was read.
func idle(now, seen uint32) uint32 { return uint32(max(0, int32(now-seen))) } //nolint:gosec // ticks wrap

// staleFlow says whether nobody needs a flow any more.
func staleFlow(now uint32, protocol uint8, f programFlow) bool {
	since := idle(now, f.Seen)
	switch {
	case Protocol(protocol) == UDP:
		return since > udpIdle
	case f.Flags&flowClosing != 0:
		return since > tcpClosed
	case f.Flags&flowNew != 0:
		return since > tcpUnanswered
	}
	return since > tcpIdle
}

// Flags of bpf/maps.h.
const (
	flowClosing = 1
	flowNew     = 2
)

// staleReply is is_stale of bpf/nat.h.
func staleReply(now uint32, protocol uint8, r programReply) bool {
	since := idle(now, r.Seen)
	switch {
	case Protocol(protocol) == UDP:
		return since > udpIdle
	case r.Closing != 0:
		return since > tcpClosed
	case r.Answered == 0:
		return since > tcpUnanswered
	}
	return since > tcpIdle
}

const sweepBatch = 4096

// sweepMap deletes the stale entries of a map, and returns how many are left and
// how many went.
func sweepMap[K comparable, V any](m *ebpf.Map, stale func(K, V) bool) (left, gone uint64, err error) {
	keys, values := make([]K, sweepBatch), make([]V, sweepBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return left, gone, err
		}
		for i := range n {
			if !stale(keys[i], values[i]) {
				left++
				continue
			}
			if err := m.Delete(keys[i]); err == nil {
				gone++
			} else if !errors.Is(err, ebpf.ErrKeyNotExist) {
				return left, gone, err
			}
		}
		if end {
			return left, gone, nil
		}
	}
}
