//go:build linux

package datapath

import "github.com/mainstay-infra/mainstay/service/lb/maglev"

// flowHash computes flow_hash of bpf/select.h.
func flowHash(f Flow, affinity bool) uint32 {
	words := 1
	if f.Client.Addr().Is6() {
		words = 4
	}
	client, vip := wireAddress(f.Client.Addr()), wireAddress(f.VIP.Addr())
	hash := uint32(0x9e3779b1)
	for _, w := range client.Word[:words] {
		hash = mix(hash, w)
	}
	for _, w := range vip.Word[:words] {
		hash = mix(hash, w)
	}
	if affinity {
		return mix(hash, uint32(f.Protocol))
	}
	return mix(hash, (uint32(wirePort(f.Client.Port()))<<16|uint32(wirePort(f.VIP.Port())))+uint32(f.Protocol))
}

func mix(hash, word uint32) uint32 {
	hash ^= word
	hash *= 0x85ebca6b
	hash ^= hash >> 13
	hash *= 0xc2b2ae35
	return hash ^ hash>>16
}

// slotOf computes slot_of of bpf/select.h.
func slotOf(hash uint32) int { return int(uint64(hash) * maglev.Slots >> 32) }
