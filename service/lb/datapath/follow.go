//go:build linux

package datapath

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Follow keeps up with what happened to the interface since it was last called: it
// attaches the program again if the interface was made anew or the program taken off,
// and tells it of another Ethernet address or MTU. An interface that is gone is an
// error until it is back. Flows go on in every case.
func (d *Datapath) Follow() error {
	now, err := findDevice(d.node, d.options.Interface)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.device
	d.device = now
	attached, err := d.isAttached()
	switch {
	case err != nil:
		return err
	case !attached:
		if err := d.attachAgain(); err != nil {
			return err
		}
		d.log.Warn("the program was no longer on the interface, and is attached again", "interface", d.options.Interface)
	case now.mac != before.mac || now.mtu != before.mtu:
		if err := d.setHost(d.mode == Native); err != nil {
			d.device = before // so that the next call tries again
			return err
		}
		d.log.Info("the interface has changed", "interface", d.options.Interface, "mac", now.mac, "mtu", now.mtu)
	}
	return d.followProbes(now.index != before.index)
}

// isAttached says whether the program is on the interface as it is now.
func (d *Datapath) isAttached() (bool, error) {
	if d.link == nil {
		return false, nil
	}
	info, err := d.link.Info()
	if err != nil {
		return false, fmt.Errorf("look at the XDP program on %s: %w", d.options.Interface, err)
	}
	return info.XDP() != nil && int(info.XDP().Ifindex) == d.device.index, nil
}

func (d *Datapath) attachAgain() error {
	if d.link != nil {
		if err := d.link.Close(); err != nil {
			return err
		}
		d.link = nil // until attach succeeds
	}
	return d.attach()
}

// followProbes makes the network of checks anew with the next check, if it was of
// another interface, or has an address that the node no longer has.
func (d *Datapath) followProbes(moved bool) error {
	if d.probing == nil {
		return nil
	}
	if !moved {
		node, err := d.node.Netlink().LinkByIndex(d.device.index)
		if err != nil {
			return err
		}
		all, err := d.node.Netlink().AddrList(node, netlink.FAMILY_ALL)
		if err != nil || !d.probing.strayed(all) {
			return err
		}
	}
	p := d.probing
	d.probing = nil
	return p.Close()
}
