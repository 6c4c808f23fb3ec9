//go:build linux

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Counters reads all counters. It returns an error if the kernel's maps cannot be read.
func (d *Datapath) Counters() (Counters, error) {
	flows, evictions, err := d.tables() // before taking mu, since Sweep takes its own lock first
	if err != nil {
		return Counters{}, err
	}
	lost, err := d.count(countLostReplies)
	if err != nil {
		return Counters{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := Counters{
		Flows: flows, Evictions: evictions, LostReplies: lost,
		VIPs:     make(map[VIPKey]VIPCounters, len(d.known.vips)),
		Backends: make(map[VIPKey]map[BackendKey]BackendCounters, len(d.known.vips)),
		Drops:    make(map[string]uint64, len(dropReasons)),
	}
	for _, v := range d.known.vips {
		key := v.key
		total, err := sum(d.objects.VipCounts, v.id, func(a, b VIPCounters) VIPCounters {
			a.Packets, a.Bytes, a.Flows = a.Packets+b.Packets, a.Bytes+b.Bytes, a.Flows+b.Flows
			a.DroppedRateLimited += b.DroppedRateLimited
			a.DroppedNoBackend += b.DroppedNoBackend
			a.Unserved += b.Unserved
			return a
		})
		if err != nil {
			return c, fmt.Errorf("read the counters of VIP %s: %w", key, err)
		}
		c.VIPs[key] = total
		backends := make(map[BackendKey]BackendCounters, len(v.members))
		for b, place := range v.members {
			backends[b], err = sum(d.objects.MemberCounts, uint32(place), func(a, b BackendCounters) BackendCounters {
				return BackendCounters{a.Packets + b.Packets, a.Bytes + b.Bytes}
			})
			if err != nil {
				return c, fmt.Errorf("read the counters of backend %s: %w", b, err)
			}
		}
		c.Backends[key] = backends
	}
	for i, name := range dropReasons {
		total, err := sum(d.objects.Drops, uint32(i), func(a, b uint64) uint64 { return a + b })
		if err != nil {
			return c, fmt.Errorf("read the counters of drops: %w", err)
		}
		c.Drops[name] = total
	}
	return c, nil
}

// sum adds up one counter over all CPUs. T must have the layout of the map's values.
func sum[T any](m *ebpf.Map, key uint32, add func(T, T) T) (total T, err error) {
	var each []T
	if err := m.Lookup(key, &each); err != nil {
		return total, err
	}
	for _, v := range each {
		total = add(total, v)
	}
	return total, nil
}
