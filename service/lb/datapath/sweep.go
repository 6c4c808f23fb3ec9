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

// sweepEvery is the time between two looks at all flows: a table of the default
// size takes some tens of milliseconds of one core.
const sweepEvery = 30 * time.Second

// Times of bpf/maps.h, in ticks of 2^26 ns.
const (
	tickShift     = 26
	udpIdle       = uint32(30 * time.Second >> tickShift)
	tcpClosed     = uint32(60 * time.Second >> tickShift)
	tcpUnanswered = uint32(30 * time.Second >> tickShift)
	tcpIdle       = uint32(2 * time.Hour >> tickShift)
)

// sweepResult is what looking at all flows told.
type sweepResult struct {
	flows, evictions uint64
	stored           uint64 // flows that were ever stored
	deleted          uint64 // flows that this process deleted
	lost             uint64 // stored and neither there nor deleted when it began
	begun            bool
}

// keepSweeping counts flows, and deletes those that nobody needs any more, until ctx ends.
// The kernel would evict them too, but only when their room is needed, and then
// perhaps others.
func (d *Datapath) keepSweeping(ctx context.Context) {
	for tick := time.NewTicker(sweepEvery); ; {
		if err := d.Sweep(); err != nil {
			d.log.Warn("flows cannot be counted", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
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
	before, err := d.storedFlows()
	if err != nil {
		return err
	}
	left4, gone4, err4 := sweepMap(d.objects.Flows4, func(k programTuple4, f programFlow) bool { return staleFlow(now, k.Protocol, f) })
	left6, gone6, err6 := sweepMap(d.objects.Flows6, func(k programTuple6, f programFlow) bool { return staleFlow(now, k.Protocol, f) })
	_, _, errR4 := sweepMap(d.objects.Replies4, func(k programTuple4, r programReply) bool { return staleReply(now, k.Protocol, r) })
	_, _, errR6 := sweepMap(d.objects.Replies6, func(k programTuple6, r programReply) bool { return staleReply(now, k.Protocol, r) })
	if err := errors.Join(err4, err6, errR4, errR6); err != nil {
		return err
	}
	after, err := d.storedFlows()
	if err != nil {
		return err
	}
	s := &d.swept
	s.flows, s.stored, s.deleted = left4+left6, after, s.deleted+gone4+gone6
	// Flows that came while they were counted may be among them or not. So that they are
	// never taken for evicted, the first count takes as many for lost as may be, and all
	// others as few.
	there := s.flows + s.deleted
	if !s.begun {
		s.begun, s.lost = true, after-min(after, there)
	}
	s.evictions = max(s.evictions, before-min(before, there+s.lost))
	return nil
}

// storedFlows is how many flows were ever put into the tables.
func (d *Datapath) storedFlows() (uint64, error) {
	n, err := sum(d.objects.Stored, 0, func(a, b uint64) uint64 { return a + b })
	if err != nil {
		return 0, fmt.Errorf("read how many flows were stored: %w", err)
	}
	return n, nil
}

// tables says how many flows there are, taking those that came since they were last
// counted to be still there, and how many were evicted until then.
func (d *Datapath) tables() (flows, evictions uint64, err error) {
	stored, err := d.storedFlows()
	if err != nil {
		return 0, 0, err
	}
	d.sweeping.Lock()
	defer d.sweeping.Unlock()
	if !d.swept.begun {
		return 0, 0, nil
	}
	room := 2 * uint64(d.options.Flows) //nolint:gosec // nobody asks for fewer than none
	return min(room, d.swept.flows+stored-d.swept.stored), d.swept.evictions, nil
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
	if Protocol(protocol) == UDP {
		return since > udpIdle
	}
	return f.Closing != 0 && since > tcpClosed || since > tcpIdle
}

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
