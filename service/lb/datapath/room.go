//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
)

// Room in the flow tables. Anybody can begin flows, and a full table evicts the flows that were idle
// longest, whosever they are. So that one VIP does not cost others theirs, it has a quota if there
// are others: half of the table. The program counts down what is left of it with every entry that it
// adds; Sweep counts, and tops up. A VIP that has come near its quota loses the flows of its own that
// matter least. What a burst brings beyond the quota until then is forwarded by the hash alone in
// the dsr modes, and dropped in mode nat.

// tight is the part of its quota below which the room of a VIP makes Sweep hurry and make some.
const tight = 4

// quota is how many flows a VIP may have.
func (d *Datapath) quota() int64 {
	if len(d.known.vips) > 1 {
		return int64(d.options.Flows) / 2
	}
	return math.MaxInt64
}

// census counts the flows of each VIP.
type census struct {
	owner []uint32 // id of the VIP of each place
	count []int64  // by id
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

// unless counts a flow unless it is stale, which it returns.
func (c *census) unless(stale bool, f programFlow) bool {
	if !stale {
		c.count[c.owner[f.Member]]++
	}
	return stale
}

// excess are the VIPs that must lose flows, and how many.
func (c *census) excess() map[uint32]*excess {
	over := map[uint32]*excess{}
	for id, n := range c.count {
		if room := c.quota - n; room < c.quota/tight {
			over[uint32(id)] = &excess{surplus: c.quota/tight - room} //nolint:gosec // at most MaxVIPs
		}
	}
	return over
}

// excess chooses the flows that a VIP loses.
type excess struct {
	surplus int64               // how many shall go; what choose leaves of it is for flows of rank from
	ranks   [lastRank + 1]int64 // how many flows have each rank
	from    int                 // flows of greater ranks go, all of them
}

// lastRank is that of the flow that matters least.
const lastRank = 4096

// rank says how little a flow matters: those whose client has not come back since its SYN come last,
// and before them those that were idle longest, in seconds.
func rank(now uint32, f programFlow) int {
	seconds := int(idle(now, f.Seen) >> 4) // near enough
	if f.Flags&flowNew != 0 {
		return lastRank/2 + min(seconds, lastRank/2)
	}
	return min(seconds, lastRank/2-1)
}

// choose settles which ranks go. Flows that had a packet within the last second stay.
func (e *excess) choose() {
	for e.from = lastRank; e.from > 0 && e.surplus >= e.ranks[e.from]; e.from-- {
		e.surplus -= e.ranks[e.from]
	}
}

// takes says whether a flow goes.
func (e *excess) takes(rank int) bool {
	if rank != e.from || rank == 0 || e.surplus == 0 {
		return rank > e.from
	}
	e.surplus--
	return true
}

// makeRoom deletes flows of VIPs that have come near their quotas, and returns how many.
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

// budgets reads what is left to each VIP, by id.
func (d *Datapath) budgets() ([]programBudget, error) {
	ids, all := make([]uint32, MaxVIPs), make([]programBudget, MaxVIPs)
	var cursor ebpf.MapBatchCursor
	if _, err := d.objects.Budgets.BatchLookup(&cursor, ids, all, nil); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read the room of VIPs: %w", err)
	}
	return all, nil
}

// giveRoom tells the program how many flows each VIP may add until the next count.
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

// isTight says whether a VIP has little room left.
func (d *Datapath) isTight() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.budgets()
	if err != nil {
		return true // Sweep tells
	}
	for _, v := range d.known.vips {
		if all[v.id].Room < d.quota()/tight {
			return true
		}
	}
	return false
}
