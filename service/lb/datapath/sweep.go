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
	// sweepEvery is the time between two sweeps of the flow tables. A sweep of tables of the
	// default size takes some tens of milliseconds on one core.
	sweepEvery = 30 * time.Second
	// tendEvery is the time between two rounds of cheap work. While a VIP has little room left, as
	// in an attack, each round includes a sweep.
	tendEvery = time.Second
)

// Timeouts of bpf/maps.h, in ticks of 2^26 ns.
const (
	tickShift     = 26
	udpIdle       = uint32(30 * time.Second >> tickShift)
	tcpClosed     = uint32(60 * time.Second >> tickShift)
	tcpUnanswered = uint32(30 * time.Second >> tickShift)
	tcpIdle       = uint32(2 * time.Hour >> tickShift)
)

// tableCount is the result of the sweeps of one family's flow table.
type tableCount struct {
	flows, evictions uint64
	stored           uint64 // flows that have been stored in total
	deleted          uint64 // flows that this process has deleted
	pushed           uint64 // of those, the ones deleted to make room
	lost             uint64 // flows stored but neither present nor deleted at the first sweep
	begun            bool
}

// swept records a sweep. before and after are the numbers of flows that had been stored at its
// start and at its end, left is the number of flows that it found, and gone is the number that it
// deleted.
//
// A sweep may or may not see flows that are stored while it runs. They must not count as evicted.
// So the first sweep assumes the maximum number of lost flows, and later ones assume the minimum.
func (c *tableCount) swept(before, after, left, gone uint64) {
	c.flows, c.stored, c.deleted = left, after, c.deleted+gone
	there := c.flows + c.deleted
	if !c.begun {
		c.begun, c.lost = true, after-min(after, there)
	}
	c.evictions = max(c.evictions, before-min(before, there+c.lost))
}

// now returns the number of flows, at most room. It assumes that all flows stored since the last
// sweep are still there.
func (c *tableCount) now(stored, room uint64) uint64 { return min(room, c.flows+stored-c.stored) }

// keepTending sweeps the flow tables, and updates the path MTUs of tunnel endpoints, until ctx
// ends. The kernel would evict stale flows too, but only when it needs their room, and it might
// evict others instead.
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

// Sweep counts the flows, deletes stale ones, and enforces the quotas of VIPs. An open Datapath
// calls it every half a minute.
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

// sweepFlows sweeps the flow table of one family.
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

// Counters of enum count of bpf/maps.h.
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

// tables returns the number of flows, assuming that those stored since the last sweep are still
// there, and the number of flows evicted until then.
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

// ticks computes now_ticks of bpf/maps.h.
func ticks() (uint32, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, err
	}
	return uint32(now.Nano() >> tickShift), nil
}

// idle returns how long ago something was seen, in ticks. It returns 0 if the kernel saw it after
// now was read.
func idle(now, seen uint32) uint32 { return uint32(max(0, int32(now-seen))) } //nolint:gosec // ticks wrap

// staleFlow reports whether a flow has expired.
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

// staleReply implements is_stale of bpf/nat.h.
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

// sweepMap deletes the stale entries of a map, and returns how many it left and how many it
// deleted.
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
