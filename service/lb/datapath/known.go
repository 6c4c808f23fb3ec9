//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of the kernel's tables.
const (
	MaxVIPs = 4096
	// MaxMembers is the maximum number of pairs of a VIP and a backend. Place 0 means none.
	MaxMembers = 65535
)

// state is the content of the kernel's maps. It serves to write only differences.
type state struct {
	host      programHost
	vips      map[string]*knownVIP // by name
	ids       []bool               // whether a VIP has the ID at this index
	places    []programMember
	mtus      map[uint16]uint16       // by place: the MTU of the node's route to the backend
	origins   map[programOrigin]bool  // sources of the replies of NAT VIPs
	own       map[programAddress]bool // the node's own addresses
	entries   map[entry]programVip    // entries in which packets look up VIPs
	addresses map[programAddress]int  // number of VIPs with this address
}

type knownVIP struct {
	key     VIPKey
	id      uint32
	flags   uint32
	limit   uint32
	members map[BackendKey]uint16 // the place of each backend
	tabled  bool                  // this process has written its hash table
	table   []share               // the content of the hash table
	routed  bool                  // packets find it, under key
}

// share is a backend's share of a hash table.
type share struct {
	place  uint16
	weight uint16
	key    BackendKey
}

func newState() *state {
	return &state{
		vips:      map[string]*knownVIP{},
		ids:       make([]bool, MaxVIPs),
		mtus:      map[uint16]uint16{},
		origins:   map[programOrigin]bool{},
		places:    make([]programMember, MaxMembers+1),
		own:       map[programAddress]bool{},
		entries:   map[entry]programVip{},
		addresses: map[programAddress]int{},
	}
}

func (s *state) takeID() (uint32, error) {
	i := slices.Index(s.ids, false)
	if i < 0 {
		return 0, fault.New(fault.TooLarge, "there can be at most %d VIPs", MaxVIPs)
	}
	s.ids[i] = true
	return uint32(i), nil
}

// freePlaces returns a function that returns a free place at each call.
func (s *state) freePlaces() func() (uint16, error) {
	next := 1
	return func() (uint16, error) {
		for ; next <= MaxMembers; next++ {
			if s.places[next].State == 0 {
				next++
				return uint16(next - 1), nil
			}
		}
		return 0, fault.New(fault.TooLarge, "there can be at most %d pairs of a VIP and a backend", MaxMembers)
	}
}

// restore reads the state that an earlier process left in the maps.
func (d *Datapath) restore() error {
	s := newState()
	d.known, d.found = s, map[VIPKey]map[BackendKey]State{}
	byID, err := d.restoreVIPs()
	if err != nil {
		return err
	}
	if err := d.restoreOrigins(); err != nil {
		return fmt.Errorf("read the backends of NAT VIPs from the kernel: %w", err)
	}
	if err := d.restoreOwn(); err != nil {
		return fmt.Errorf("read the node's own addresses from the kernel: %w", err)
	}
	places := make([]uint32, MaxMembers+1)
	var cursor ebpf.MapBatchCursor
	if n, err := d.objects.Members.BatchLookup(&cursor, places, s.places, nil); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read the backends from the kernel: %w", err)
	} else if n != len(places) {
		return fmt.Errorf("read the backends from the kernel: %d of %d", n, len(places))
	}
	for place, m := range s.places {
		if m.State == 0 {
			continue
		}
		v := byID[m.Vip]
		if v == nil { // an earlier process ended between two steps
			if err := d.vacate(uint16(place)); err != nil {
				return err
			}
			continue
		}
		key := BackendKey{Address: addressOf(m.Address, m.Flags&memberIPv6 != 0), Port: wirePort(m.Port)}
		v.members[key] = uint16(place)
		d.found[v.key][key] = State(m.State)
	}
	return nil
}

// restoreVIPs reads the VIPs from the kernel and returns them by ID. The blocks of a range have the
// same ID and are adjacent.
func (d *Datapath) restoreVIPs() (map[uint32]*knownVIP, error) {
	entries, err := d.readEntries()
	if err != nil {
		return nil, fmt.Errorf("read the VIPs from the kernel: %w", err)
	}
	d.known.entries = entries
	byID := map[uint32]*knownVIP{}
	for e, v := range entries {
		key := e.vipKey()
		expectVIP(&d.known.host, e.ranged) // the new program balances before the first Apply
		known := byID[v.Id]
		if known == nil {
			byID[v.Id] = &knownVIP{key: key, id: v.Id, flags: v.Flags, members: map[BackendKey]uint16{}, routed: true}
			continue
		}
		known.key.Port, known.key.LastPort = min(known.key.Port, key.Port), max(known.key.LastPort, key.LastPort)
	}
	for id, known := range byID {
		d.known.vips[known.key.String()], d.known.ids[id] = known, true
		d.known.addresses[wireAddress(known.key.Address)]++
		d.found[known.key] = map[BackendKey]State{}
	}
	return byID, nil
}
