//go:build linux

package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Follow adapts the datapath to changes of the interfaces since the last call. It attaches the
// program again if an interface was recreated or the program was removed, and updates the program's
// Ethernet addresses, MTUs and the node's own addresses. It returns an error while an interface is
// missing, and while the clients' interface is down or has no carrier. Flows continue in all cases.
func (d *Datapath) Follow() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{d.followOwn()}
	for _, p := range d.ports {
		errs = append(errs, d.followPort(p))
	}
	return errors.Join(errs...)
}

func (d *Datapath) followPort(p *port) error {
	now, err := findDevice(d.node, p.name)
	if err != nil {
		return err
	}
	before := p.device
	p.device = now
	attached, err := p.isAttached()
	switch {
	case err != nil:
		return err
	case !attached:
		if err := d.attachAgain(p); err != nil {
			return err
		}
		d.log.Warn("the program was no longer on the interface, and is attached again", "interface", p.name)
	case now.mac != before.mac || now.mtu != before.mtu:
		if err := d.configure(p, d.mode == Native); err != nil {
			p.device = before // so that the next call tries again
			return err
		}
		d.log.Info("the interface has changed", "interface", p.name, "mac", now.mac, "mtu", now.mtu)
	}
	if p != d.ports[0] {
		return nil
	}
	if err := d.followProbes(now.index != before.index); err != nil {
		return err
	}
	if now.impassable != "" {
		return fault.New(fault.Unavailable, "%s, so no packets of clients arrive", now.impassable)
	}
	return nil
}

// isAttached reports whether the program is attached to the interface in its present form.
func (p *port) isAttached() (bool, error) {
	if p.link == nil {
		return false, nil
	}
	info, err := p.link.Info()
	if err != nil {
		return false, fmt.Errorf("look at the XDP program on %s: %w", p.name, err)
	}
	return info.XDP() != nil && int(info.XDP().Ifindex) == p.device.index, nil
}

func (d *Datapath) attachAgain(p *port) error {
	if p.link != nil {
		if err := p.link.Close(); err != nil {
			return err
		}
		p.link = nil // until it is attached again
	}
	return d.attachPort(p, d.mode == Native)
}

// followProbes discards the network of health checks if it belongs to another interface, or has an
// address that the node no longer has. The next check creates a new one.
func (d *Datapath) followProbes(moved bool) error {
	if d.probing == nil {
		return nil
	}
	if !moved {
		node, err := d.node.Netlink().LinkByIndex(d.ports[0].device.index)
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
