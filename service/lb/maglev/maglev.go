// Package maglev spreads flows over backends by consistent hashing, as Google's
// Maglev does (Eisenbud et al., NSDI 2016, section 3.4), with weights.
//
// A table has a prime number of slots. Every backend has its own order of all slots,
// made from its name alone; in turns, each takes the first slot of its order that is
// still free. A backend has turns in proportion to its weight.
//
// Invariants:
//
//   - The table depends on the set of backends and weights only, not on their order
//     nor on what was before, so that all nodes of a network agree on it.
//   - Every slot has a backend, unless there is none.
//   - A backend's share of the slots is its share of the weight, but for one slot.
//   - When a backend goes, few slots change hands beside its own.
package maglev

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// Slots is the size of a table: a prime, much greater than the number of backends.
const Slots = 65537

// Backend is one that takes part.
type Backend struct {
	Name   string // what it is known by on every node
	Weight int    // more than 0
}

// Table returns for each slot the position of its backend in backends, whose names
// must differ. It is nil if there are no backends.
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
	var taken [Slots/64 + 1]uint64 // bits, which fit the nearest cache
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

// taker is a backend while the table is filled.
type taker struct {
	position     int
	name         string
	weight       int
	credit       int    // of weight, not yet spent on turns
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
