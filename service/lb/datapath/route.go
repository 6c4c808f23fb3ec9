//go:build linux

package datapath

import (
	"errors"

	"github.com/cilium/ebpf"
)

// Length in bits of a full key of a range, before the variable bits of the port are subtracted.
const (
	rangePrefix4 = 64
	rangePrefix6 = 160
)

// entry is an entry of the maps in which packets look up VIPs: one port, or a block of a range.
type entry struct {
	address  programAddress
	six      bool
	ranged   bool
	block    Block
	protocol Protocol
}

// entriesOf returns the entries of a VIP.
func entriesOf(key VIPKey) []entry {
	e := entry{address: wireAddress(key.Address), six: key.Address.Is6(), protocol: key.Protocol}
	if !key.IsRange() {
		e.block.First = key.Port
		return []entry{e}
	}
	e.ranged = true
	var all []entry
	for _, e.block = range Blocks(key.Port, key.LastPort) {
		all = append(all, e)
	}
	return all
}

func (e entry) vipKey() VIPKey {
	return VIPKey{
		Address:  addressOf(e.address, e.six),
		Port:     e.block.First,
		LastPort: e.block.Last(),
		Protocol: e.protocol,
	}
}

// in returns the map of the entry, and its key there.
func (e entry) in(o *programObjects) (*ebpf.Map, any) {
	port, protocol := wirePort(e.block.First), uint8(e.protocol)
	switch {
	case e.ranged && e.six:
		return o.Ranges6, programRangeKey6{
			Prefix:   uint32(rangePrefix6 - e.block.Bits),
			Address:  e.address,
			Protocol: protocol,
			Port:     port,
		}
	case e.ranged:
		return o.Ranges4, programRangeKey4{
			Prefix:   uint32(rangePrefix4 - e.block.Bits),
			Address:  e.address.Word[0],
			Protocol: protocol,
			Port:     port,
		}
	case e.six:
		return o.Vips6, programVipKey6{Address: e.address, Port: port, Protocol: protocol}
	}
	return o.Vips4, programVipKey4{Address: e.address.Word[0], Port: port, Protocol: protocol}
}

// readEntries reads all entries from the kernel.
func (d *Datapath) readEntries() (map[entry]programVip, error) {
	found := map[entry]programVip{}
	var v programVip
	var k4 programVipKey4
	exact4 := d.objects.Vips4.Iterate()
	for exact4.Next(&k4, &v) {
		address, block := programAddress{Word: [4]uint32{k4.Address}}, Block{First: wirePort(k4.Port)}
		found[entry{address: address, block: block, protocol: Protocol(k4.Protocol)}] = v
	}
	var k6 programVipKey6
	exact6 := d.objects.Vips6.Iterate()
	for exact6.Next(&k6, &v) {
		block := Block{First: wirePort(k6.Port)}
		found[entry{address: k6.Address, six: true, block: block, protocol: Protocol(k6.Protocol)}] = v
	}
	var r4 programRangeKey4
	ranges4 := d.objects.Ranges4.Iterate()
	for ranges4.Next(&r4, &v) {
		b := Block{First: wirePort(r4.Port), Bits: rangePrefix4 - int(r4.Prefix)}
		address := programAddress{Word: [4]uint32{r4.Address}}
		found[entry{address: address, ranged: true, block: b, protocol: Protocol(r4.Protocol)}] = v
	}
	var r6 programRangeKey6
	ranges6 := d.objects.Ranges6.Iterate()
	for ranges6.Next(&r6, &v) {
		b := Block{First: wirePort(r6.Port), Bits: rangePrefix6 - int(r6.Prefix)}
		found[entry{address: r6.Address, six: true, ranged: true, block: b, protocol: Protocol(r6.Protocol)}] = v
	}
	return found, errors.Join(exact4.Err(), exact6.Err(), ranges4.Err(), ranges6.Err())
}

// route adds the entries with which packets find a VIP under a key. It leaves obsolete entries to
// removeEntries.
func (d *Datapath) route(known *knownVIP, key VIPKey, flags uint32) error {
	if known.routed && known.key == key && known.flags == flags {
		return nil
	}
	if !known.routed {
		if err := d.addAddress(key); err != nil {
			return err
		}
		known.routed = true
	}
	value := programVip{Id: known.id, Flags: flags}
	for _, e := range entriesOf(key) {
		m, k := e.in(&d.objects)
		if err := m.Put(k, value); err != nil {
			return err
		}
		d.known.entries[e] = value
	}
	known.key, known.flags = key, flags
	return nil
}

func (d *Datapath) addAddress(key VIPKey) error {
	address := wireAddress(key.Address)
	if d.known.addresses[address] == 0 {
		if err := d.objects.Addresses.Put(address, uint32(1)); err != nil {
			return err
		}
	}
	d.known.addresses[address]++
	return nil
}

// unroute removes all entries of a VIP.
func (d *Datapath) unroute(known *knownVIP) error {
	if !known.routed {
		return nil
	}
	for e, v := range d.known.entries {
		if v.Id == known.id {
			if err := d.removeEntry(e); err != nil {
				return err
			}
		}
	}
	address := wireAddress(known.key.Address)
	if d.known.addresses[address] == 1 {
		if err := d.objects.Addresses.Delete(address); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	d.known.addresses[address]--
	known.routed = false
	return nil
}

// removeEntries removes the entries that no VIP has any more.
func (d *Datapath) removeEntries() error {
	wanted := make(map[entry]bool, len(d.known.entries))
	for _, known := range d.known.vips {
		for _, e := range entriesOf(known.key) {
			wanted[e] = true
		}
	}
	for e := range d.known.entries {
		if !wanted[e] {
			if err := d.removeEntry(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Datapath) removeEntry(e entry) error {
	m, k := e.in(&d.objects)
	if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	delete(d.known.entries, e)
	return nil
}
