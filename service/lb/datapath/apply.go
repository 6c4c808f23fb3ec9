//go:build linux

package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Flags defined in bpf/maps.h.
const (
	vipAffinity = 1
	vipLimited  = 2

	memberSNAT = 1
	memberIPv6 = 2
)

// Apply makes the kernel balance exactly these VIPs. It writes only differences, in an order in
// which every packet always has a backend: flows of unchanged VIPs and backends are not affected.
// If it fails partway, the next Apply continues from there.
//
// A VIP is identified by its name (see VIPKey.String). Its range of ports may grow and shrink.
func (d *Datapath) Apply(vips []VIP) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.expect(vips); err != nil {
		return err
	}
	err := d.putAll(vips)
	if fault.Is(err, fault.TooLarge) { // try again after removing other VIPs
		if err := d.removeOthers(vips); err != nil {
			return err
		}
		err = d.putAll(vips)
	}
	if err != nil {
		return err
	}
	if err := d.removeOthers(vips); err != nil {
		return err
	}
	if err := d.removeEntries(); err != nil {
		return err
	}
	return d.putOrigins(vips)
}

// together is how many VIPs are changed at once. Replacing hash tables makes the kernel wait for
// all CPUs, about 20 ms for any number of tables. Until then, both the old and the new tables take
// memory, 128 KiB each.
const together = 64

func (d *Datapath) putAll(vips []VIP) error {
	free := d.known.freePlaces()
	for some := range slices.Chunk(vips, together) {
		for i := range some {
			if err := d.enlist(&some[i], free); err != nil {
				return fmt.Errorf("VIP %s: %w", some[i].VIPKey, err)
			}
		}
		if err := d.retable(some); err != nil {
			return err
		}
		for i := range some {
			if err := d.finish(&some[i]); err != nil {
				return fmt.Errorf("VIP %s: %w", some[i].VIPKey, err)
			}
		}
	}
	return nil
}

// removeOthers removes all VIPs except these. First packets no longer find them, then it deletes
// them.
func (d *Datapath) removeOthers(vips []VIP) error {
	wanted := make(map[string]bool, len(vips))
	for _, v := range vips {
		wanted[v.String()] = true
	}
	var ids []uint32
	var names []string
	for name, known := range d.known.vips {
		if wanted[name] {
			continue
		}
		if err := d.clear(known); err != nil {
			return fmt.Errorf("remove VIP %s: %w", name, err)
		}
		ids, names = append(ids, known.id), append(names, name)
	}
	if err := d.dropTables(ids); err != nil {
		return fmt.Errorf("drop the hash tables of %d VIPs: %w", len(ids), err)
	}
	for i, name := range names {
		delete(d.known.vips, name)
		d.known.ids[ids[i]] = false
	}
	return nil
}

// expect enables the parts of the program that these VIPs need, before they are added.
func (d *Datapath) expect(vips []VIP) error {
	h := d.known.host
	for _, v := range vips {
		expectVIP(&h, v.IsRange())
	}
	if h == d.known.host {
		return nil
	}
	d.known.host = h
	return d.configureAll()
}

func expectVIP(h *programHost, ranged bool) {
	if ranged {
		h.Ranges = 1
	}
	// Replies of NAT backends, and of probes to other backends.
	h.Replies = 1
}

// enlist writes a VIP's backends to the kernel, except those that go down. The flows of these will
// be hashed again, so the hash table must be replaced first.
func (d *Datapath) enlist(v *VIP, free func() (uint16, error)) error {
	known := d.known.vips[v.String()]
	if known == nil {
		id, err := d.known.takeID()
		if err != nil {
			return err
		}
		known = &knownVIP{id: id, members: map[BackendKey]uint16{}}
		d.known.vips[v.String()] = known
		if err := d.objects.VipCounts.Put(id, zeroPerCPU[programVipCounters]()); err != nil {
			return err
		}
		if err := d.objects.Budgets.Put(id, programBudget{Room: d.quota()}); err != nil {
			return err
		}
	}
	for _, b := range v.Backends {
		place, has := known.members[b.BackendKey]
		if has && b.State == Down {
			continue
		}
		if !has {
			var err error
			if place, err = free(); err != nil {
				return err
			}
			if err := d.objects.MemberCounts.Put(uint32(place), zeroPerCPU[programMemberCounters]()); err != nil {
				return err
			}
		}
		if err := d.putBackend(place, v, known, b); err != nil {
			return err
		}
		known.members[b.BackendKey] = place
	}
	return d.limit(known, v.NewFlowsPerSecond)
}

// finish marks backends as down and removes others, now that no new flows reach them. Then it
// routes packets to the VIP.
func (d *Datapath) finish(v *VIP) error {
	known := d.known.vips[v.String()]
	keep := make(map[BackendKey]bool, len(v.Backends))
	for _, b := range v.Backends {
		keep[b.BackendKey] = true
		if b.State != Down {
			continue
		}
		if err := d.putBackend(known.members[b.BackendKey], v, known, b); err != nil {
			return err
		}
	}
	for key, place := range known.members {
		if !keep[key] {
			if err := d.vacate(place); err != nil {
				return err
			}
			delete(known.members, key)
		}
	}
	return d.route(known, v.VIPKey, flagsOf(v))
}

func flagsOf(v *VIP) (flags uint32) {
	if v.ClientAffinity {
		flags |= vipAffinity
	}
	if v.NewFlowsPerSecond > 0 {
		flags |= vipLimited
	}
	return flags
}

// zeroPerCPU returns the value that resets a counter on every CPU.
func zeroPerCPU[T any]() []T { return make([]T, ebpf.MustPossibleCPU()) }

// putBackend writes a backend to its place in the maps.
func (d *Datapath) putBackend(place uint16, v *VIP, known *knownVIP, b Backend) error {
	m := d.memberOf(v, known, b)
	if v.Mode.Tunnels() {
		d.known.mtus[place] = m.Mtu
		m.Mtu = d.mtuTo(m.Address, m.Mtu)
	}
	return d.member(place, m)
}

// memberOf returns the map value of a backend, without the epoch.
func (d *Datapath) memberOf(v *VIP, known *knownVIP, b Backend) programMember {
	m := programMember{
		State: uint8(b.State), Mode: uint8(v.Mode), Vip: known.id, Port: wirePort(b.Port),
		Address: wireAddress(b.Address),
	}
	if b.Address.Is6() {
		m.Flags |= memberIPv6
	}
	if v.SNAT {
		m.Flags |= memberSNAT
	}
	hop := b.Hop
	source := hop.Local
	if v.Mode.Tunnels() {
		source = d.tunnelSource(b.Address)
	}
	if (v.SNAT || v.Mode.Tunnels()) && !source.IsValid() {
		return m // no route to it yet: the interface stays 0
	}
	m.Source = wireAddress(source)
	if hop.Known() {
		m.Interface, m.Mtu = uint32(hop.Interface), uint16(min(hop.MTU, 65535))
		m.SourceMac, m.DestinationMac = hop.Source, hop.Destination
	}
	return m
}

func (d *Datapath) tunnelSource(backend netip.Addr) netip.Addr {
	if backend.Is6() {
		return d.options.TunnelSource6
	}
	return d.options.TunnelSource
}

// member writes a backend if it has changed. The epoch increases when the backend is new, when it
// goes down, and when its flows cannot continue unchanged.
func (d *Datapath) member(place uint16, m programMember) error {
	old := d.known.places[place]
	m.Epoch = old.Epoch
	down := State(m.State) == Down && State(old.State) != Down
	if old.State == 0 || down || m.Mode != old.Mode || m.Flags != old.Flags ||
		m.Flags&memberSNAT != 0 && m.Source != old.Source && old.Source != (programAddress{}) {
		m.Epoch++
	}
	if m == old {
		return nil
	}
	if err := d.objects.Members.Put(uint32(place), m); err != nil {
		return err
	}
	d.known.places[place] = m
	return nil
}

// vacate frees a place.
func (d *Datapath) vacate(place uint16) error {
	m := programMember{Epoch: d.known.places[place].Epoch + 1}
	if err := d.objects.Members.Put(uint32(place), m); err != nil {
		return err
	}
	d.known.places[place] = m
	return nil
}

// limit sets the limit on new flows. The token bucket starts full.
func (d *Datapath) limit(known *knownVIP, flowsPerSecond uint32) error {
	if known.limit == flowsPerSecond {
		return nil
	}
	const tokensPerFlow = 1_000_000_000
	if err := d.objects.Limits.Put(
		known.id, programLimit{FlowsPerSecond: flowsPerSecond, Tokens: uint64(flowsPerSecond) * tokensPerFlow},
	); err != nil {
		return err
	}
	known.limit = flowsPerSecond
	return nil
}

// clear removes a VIP's entries and backends.
func (d *Datapath) clear(known *knownVIP) error {
	if err := d.unroute(known); err != nil {
		return err
	}
	for backend, place := range known.members {
		if err := d.vacate(place); err != nil {
			return err
		}
		delete(known.members, backend)
	}
	return nil
}
