//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// followOwn writes the node's own addresses, of all its interfaces, to the kernel.
func (d *Datapath) followOwn() error {
	all, err := d.node.Netlink().AddrList(nil, netlink.FAMILY_ALL)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil // an event for the change follows
	}
	if err != nil {
		return fmt.Errorf("list the node's own addresses: %w", err)
	}
	wanted := make(map[programAddress]bool, len(all))
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			wanted[wireAddress(ip.Unmap())] = true
		}
	}
	for a := range wanted {
		if d.known.own[a] {
			continue
		}
		if err := d.objects.Own.Put(a, uint32(1)); err != nil {
			return fmt.Errorf("tell the program the node's own addresses: %w", err)
		}
		d.known.own[a] = true
	}
	for a := range d.known.own {
		if wanted[a] {
			continue
		}
		if err := d.objects.Own.Delete(a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("tell the program the node's own addresses: %w", err)
		}
		delete(d.known.own, a)
	}
	return nil
}

// restoreOwn reads the node's own addresses that an earlier process wrote.
func (d *Datapath) restoreOwn() error {
	var a programAddress
	var one uint32
	all := d.objects.Own.Iterate()
	for all.Next(&a, &one) {
		d.known.own[a] = true
	}
	return all.Err()
}
