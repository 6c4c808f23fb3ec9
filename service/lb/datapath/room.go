//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
)

// Quotas of the flow tables. Anyone can start flows, and a full table evicts the flows that have
// been idle longest, no matter which VIP they belong to. To keep one VIP from evicting the flows of
// others, each VIP has a quota of half of the table if there are several. The program subtracts
// every entry that it adds from the VIP's remaining room. Sweep counts the entries and resets the
// room. If a VIP comes close to its quota, Sweep deletes those of its flows that matter least.
// Flows beyond the quota are forwarded by the hash alone in the dsr modes, and dropped in mode nat.

// tight determines when a VIP has little room: less than quota/tight. Then sweeps run every second
// and delete flows.
const tight = 4

// quota returns how many flows a VIP may have.
func (d *Datapath) quota() int64 {
	if len(d.known.vips) > 1 {
		return int64(d.options.Flows) / 2
	}
	return math.MaxInt64
}

// census counts the flows of each VIP.
type census struct {
	owner []uint32 // ID of the VIP at each place
	count []int64  // by ID
	quota int64
}

func (d *Datapath) newCensus() *census {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &census{owner: make([]uint32, len(d.known.places)), count: make([]int64, MaxVIPs), quota: d.quota()}
	for i := range d.known.places {
		c.owner[i] = d.known.places[i].Vip
	}
	return c
}

// unless counts a flow unless it is stale. It returns stale.
func (c *census) unless(stale bool, f programFlow) bool {
	if !stale {
		c.count[c.owner[f.Member]]++
	}
	return stale
}

// excess returns the VIPs that must lose flows, and how many.
func (c *census) excess() map[uint32]*excess {
	over := map[uint32]*excess{}
	for id, n := range c.count {
		if room := c.quota - n; room < c.quota/tight {
			over[uint32(id)] = &excess{surplus: c.quota/tight - room} //nolint:gosec // at most MaxVIPs
		}
	}
	return over
}

// excess selects the flows that a VIP loses.
type excess struct {
	surplus int64               // number of flows to delete; after choose, how many of them have rank from
	ranks   [lastRank + 1]int64 // number of flows by rank
	from    int                 // all flows of higher ranks are deleted
}

// lastRank is the rank of the flows that matter least.
const lastRank = 4096

// rank returns how little a flow matters. Flows whose client has not sent anything since its SYN
// rank highest; among flows of the same kind, the rank is the idle time in seconds.
func rank(now uint32, f programFlow) int {
	seconds := int(idle(now, f.Seen) >> 4) // approximately
	if f.Flags&flowNew != 0 {
		return lastRank/2 + min(seconds, lastRank/2)
	}
	return min(seconds, lastRank/2-1)
}

// choose determines which ranks are deleted. Flows with a packet within the last second are kept.
func (e *excess) choose() {
	for e.from = lastRank; e.from > 0 && e.surplus >= e.ranks[e.from]; e.from-- {
		e.surplus -= e.ranks[e.from]
	}
}

// takes reports whether a flow of this rank is deleted, and counts it.
func (e *excess) takes(rank int) bool {
	if rank != e.from || rank == 0 || e.surplus == 0 {
		return rank > e.from
	}
	e.surplus--
	return true
}

// makeRoom deletes flows of VIPs that are close to their quotas, and returns how many.
func makeRoom[K comparable](m *ebpf.Map, now uint32, c *census) (gone uint64, err error) {
	over := c.excess()
	if len(over) == 0 {
		return 0, nil
	}
	_, _, err = sweepMap(m, func(_ K, f programFlow) bool {
		if e := over[c.owner[f.Member]]; e != nil {
			e.ranks[rank(now, f)]++
		}
		return false
	})
	if err != nil {
		return 0, err
	}
	for _, e := range over {
		e.choose()
	}
	_, gone, err = sweepMap(m, func(_ K, f programFlow) bool {
		id := c.owner[f.Member]
		e := over[id]
		if e == nil || !e.takes(rank(now, f)) {
			return false
		}
		c.count[id]--
		return true
	})
	return gone, err
}

// budgets reads the remaining room of all VIPs, by ID.
func (d *Datapath) budgets() ([]programBudget, error) {
	ids, all := make([]uint32, MaxVIPs), make([]programBudget, MaxVIPs)
	var cursor ebpf.MapBatchCursor
	if _, err := d.objects.Budgets.BatchLookup(&cursor, ids, all, nil); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read the room of VIPs: %w", err)
	}
	return all, nil
}

// giveRoom sets how many flows each VIP may add until the next sweep.
func (d *Datapath) giveRoom(c *census) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known.vips) == 0 {
		return nil
	}
	all, err := d.budgets()
	if err != nil {
		return err
	}
	var ids []uint32
	var given []programBudget
	for _, v := range d.known.vips {
		b := all[v.id]
		if b.Room = d.quota(); b.Room != math.MaxInt64 {
			b.Room -= c.count[v.id]
		}
		ids, given = append(ids, v.id), append(given, b)
	}
	_, err = d.objects.Budgets.BatchUpdate(ids, given, nil)
	return err
}

// isTight reports whether any VIP has little room left.
func (d *Datapath) isTight() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.budgets()
	if err != nil {
		return true // Sweep reports the error
	}
	for _, v := range d.known.vips {
		if all[v.id].Room < d.quota()/tight {
			return true
		}
	}
	return false
}
