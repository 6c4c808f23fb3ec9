// Package maglev distributes flows over backends by consistent hashing, as Google's Maglev does
// (Eisenbud et al., NSDI 2016, section 3.4), with weights.
//
// A table has a prime number of slots. Each backend has its own order of all slots, which depends
// only on its name. The backends take turns, and in each turn a backend takes the first free slot
// of its order. The number of turns of a backend is proportional to its weight.
//
// Invariants:
//
//   - The table depends only on the set of backends and weights, not on their order or on earlier
//     tables, so all nodes of a network compute the same one.
//   - Every slot has a backend, unless there are no backends.
//   - A backend's share of the slots equals its share of the weight, to within one slot.
//   - When a backend is removed, few slots change besides its own.
package maglev

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// Slots is the size of a table: a prime, much greater than the number of backends.
const Slots = 65537

// Backend is a backend with its weight.
type Backend struct {
	Name   string // the same on every node
	Weight int    // more than 0
}

// Table returns the index in backends of each slot's backend. The names of the backends must
// differ. Table returns nil if there are no backends.
func Table(backends []Backend) []uint16 {
	if len(backends) == 0 {
		return nil
	}
	takers := make([]taker, len(backends))
	heaviest := 0
	for i, b := range backends {
		takers[i] = newTaker(i, b)
		heaviest = max(heaviest, b.Weight)
	}
	slices.SortFunc(takers, func(a, b taker) int { return strings.Compare(a.name, b.name) })

	table := make([]uint16, Slots)
	var taken [Slots/64 + 1]uint64 // bits, which fit the L1 cache
	for left := Slots; left > 0; {
		for i := range takers {
			t := &takers[i]
			if t.credit += t.weight; t.credit < heaviest {
				continue // its turn comes in a later round
			}
			t.credit -= heaviest
			slot := t.next()
			for taken[slot/64]>>(slot%64)&1 != 0 {
				slot = t.next()
			}
			taken[slot/64] |= 1 << (slot % 64)
			table[slot] = uint16(t.position)
			if left--; left == 0 {
				break
			}
		}
	}
	return table
}

// taker is the state of a backend while the table is filled.
type taker struct {
	position     int
	name         string
	weight       int
	credit       int    // weight that is not yet spent on turns
	slot, stride uint32 // its order of slots: slot, slot+stride, slot+2*stride, ...
}

func newTaker(position int, b Backend) taker {
	sum := sha256.Sum256([]byte(b.Name))
	return taker{
		position: position, name: b.Name, weight: b.Weight,
		slot:   uint32(binary.BigEndian.Uint64(sum[:]) % Slots),
		stride: uint32(binary.BigEndian.Uint64(sum[8:])%(Slots-1)) + 1,
	}
}

func (t *taker) next() uint32 {
	slot := t.slot
	if t.slot += t.stride; t.slot >= Slots {
		t.slot -= Slots
	}
	return slot
}
