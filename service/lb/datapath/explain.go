//go:build linux

package datapath

import (
	"errors"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/maglev"
)

// Explain returns the backend that the next packet of a flow would get. For a new flow, and for a
// SYN, that is Hashed or, with affinity, the client's earlier backend.
func (d *Datapath) Explain(f Flow) (Explanation, error) {
	if f.Client.Addr().Is4() != f.VIP.Addr().Is4() {
		return Explanation{}, fault.InvalidField("client", "must be of the VIP's IP family")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key, known := d.find(f.VIP, f.Protocol)
	if known == nil {
		return Explanation{Reason: NoVIP}, nil
	}
	e := Explanation{VIP: key, Slots: maglev.Slots, Slot: slotOf(flowHash(f, known.flags&vipAffinity != 0))}
	hashed, err := d.hashed(known, e.Slot)
	if err != nil {
		return e, err
	}
	if e.Hashed, err = d.backendAt(known, hashed); err != nil {
		return e, err
	}
	if e.Backend, err = d.backendOfFlow(known, f); err != nil || e.Backend != (BackendKey{}) {
		e.Reason = ByFlow
		return e, err
	}
	if e.Backend, err = d.backendOfClient(known, f.Client.Addr()); err != nil || e.Backend != (BackendKey{}) {
		e.Reason = ByAffinity
		return e, err
	}
	e.Backend, e.Reason = e.Hashed, ByHash
	if e.Hashed == (BackendKey{}) {
		e.Reason = NoBackend
	}
	return e, nil
}

// find returns the VIP that a packet is for. A VIP with exactly its port takes precedence over a
// range.
func (d *Datapath) find(to netip.AddrPort, protocol Protocol) (VIPKey, *knownVIP) {
	exact := VIPKey{Address: to.Addr(), Port: to.Port(), LastPort: to.Port(), Protocol: protocol}
	if v := d.known.vips[exact.String()]; v != nil && v.routed {
		return v.key, v
	}
	for _, v := range d.known.vips {
		if k := v.key; v.routed && k.Address == to.Addr() && k.Protocol == protocol && k.Port <= to.Port() &&
			to.Port() <= k.LastPort {
			return k, v
		}
	}
	return VIPKey{}, nil
}

func (d *Datapath) hashed(known *knownVIP, slot int) (uint16, error) {
	var id ebpf.MapID
	if err := d.objects.Tables.Lookup(known.id, &id); errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	table, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0, err
	}
	defer table.Close()
	content := make([]uint16, maglev.Slots+1)
	if err := table.Lookup(uint32(0), &content); err != nil {
		return 0, err
	}
	return content[slot], nil
}

// backendAt returns the backend at a place, or a zero key for place 0.
func (d *Datapath) backendAt(known *knownVIP, place uint16) (BackendKey, error) {
	if place == 0 {
		return BackendKey{}, nil
	}
	for key, at := range known.members {
		if at == place {
			return key, nil
		}
	}
	return BackendKey{}, nil
}

func (d *Datapath) backendOfFlow(known *knownVIP, f Flow) (BackendKey, error) {
	var flow programFlow
	var err error
	if f.Client.Addr().Is4() {
		err = d.objects.Flows4.Lookup(tuple4(f.Protocol, f.Client, f.VIP), &flow)
	} else {
		err = d.objects.Flows6.Lookup(tuple6(f.Protocol, f.Client, f.VIP), &flow)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return BackendKey{}, nil
	}
	if err != nil {
		return BackendKey{}, err
	}
	now, err := ticks()
	if err != nil {
		return BackendKey{}, err
	}
	m := d.known.places[flow.Member]
	if m.Epoch != flow.Epoch || State(m.State) == Down || f.Protocol == UDP && now-flow.Seen > udpIdle {
		return BackendKey{}, nil // it would be hashed again
	}
	return d.backendAt(known, flow.Member)
}

func (d *Datapath) backendOfClient(known *knownVIP, client netip.Addr) (BackendKey, error) {
	if known.flags&vipAffinity == 0 {
		return BackendKey{}, nil
	}
	var last programClient
	err := d.objects.Clients.Lookup(programClientKey{Client: wireAddress(client), Vip: known.id}, &last)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return BackendKey{}, nil
	}
	if err != nil {
		return BackendKey{}, err
	}
	m := d.known.places[last.Member]
	if m.Epoch != last.Epoch || State(m.State) != Healthy {
		return BackendKey{}, nil
	}
	return d.backendAt(known, uint16(last.Member))
}
