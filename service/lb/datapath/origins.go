//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// putOrigins writes the sources of the replies of NAT VIPs to the kernel, so that the program can
// count replies without a flow.
func (d *Datapath) putOrigins(vips []VIP) error {
	wanted := map[programOrigin]bool{}
	for i := range vips {
		if vips[i].Mode != NAT {
			continue
		}
		for _, b := range vips[i].Backends {
			o := programOrigin{Address: wireAddress(b.Address), Port: wirePort(b.Port), Protocol: uint8(vips[i].Protocol)}
			wanted[o] = true
		}
	}
	for o := range d.known.origins {
		if wanted[o] {
			continue
		}
		if err := d.objects.Origins.Delete(o); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(d.known.origins, o)
	}
	for o := range wanted {
		if d.known.origins[o] {
			continue
		}
		if err := d.objects.Origins.Put(o, uint32(1)); err != nil {
			return err
		}
		d.known.origins[o] = true
	}
	if ports := d.originPorts(); ports != d.known.host.OriginPorts {
		d.known.host.OriginPorts = ports
		return d.configureAll()
	}
	return nil
}

// originPorts returns the low six bits of the ports that replies come from as a set of 64 bits. All
// bits are set if there is a range.
func (d *Datapath) originPorts() (ports uint64) {
	for o := range d.known.origins {
		if o.Port == 0 {
			return math.MaxUint64 // a range
		}
		ports |= 1 << (wirePort(o.Port) & 63)
	}
	return ports
}

// restoreOrigins reads the sources of replies that an earlier process wrote.
func (d *Datapath) restoreOrigins() error {
	var o programOrigin
	var one uint32
	all := d.objects.Origins.Iterate()
	for all.Next(&o, &one) {
		d.known.origins[o] = true
	}
	d.known.host.OriginPorts = d.originPorts()
	return all.Err()
}

// provideSources writes the addresses that SNAT uses to the kernel.
func (d *Datapath) provideSources() error {
	var n [2]int // of IPv4 and IPv6
	for _, a := range d.options.Sources {
		family := 0
		if a.Is6() {
			family = 1
		}
		if n[family] == MaxSources {
			return fault.New(fault.Invalid, "there can be at most %d source addresses of an IP family", MaxSources)
		}
		if err := d.putSource(family, n[family], a); err != nil {
			return err
		}
		n[family]++
	}
	d.known.host.Sources4, d.known.host.Sources6 = uint8(n[0]), uint8(n[1])
	for family := range n {
		for i := n[family]; i < MaxSources; i++ {
			if err := d.putSource(family, i, netip.Addr{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Datapath) putSource(family, i int, a netip.Addr) error {
	if err := d.objects.Sources.Put(uint32(family*MaxSources+i), wireAddress(a)); err != nil { //nolint:gosec // small
		return fmt.Errorf("tell the program the sources of SNAT: %w", err)
	}
	return nil
}
