//go:build linux

package datapath

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
)

// pathLasts is how long a router's word counts that a packet was too big for the way to a tunnel's
// end (as net.ipv4.route.mtu_expires). Ways get better again, and nobody tells.
const pathLasts = 10 * time.Minute

// FollowPaths lowers the MTU of the ways to tunnels' ends as routers said, and raises it again when
// that is long ago. Open does it every second.
func (d *Datapath) FollowPaths() error {
	now, err := ticks()
	if err != nil {
		return err
	}
	learned := map[programAddress]uint16{}
	var end programAddress
	var p programPath
	all := d.objects.Paths.Iterate()
	for all.Next(&end, &p) {
		if idle(now, p.Seen) < uint32(pathLasts>>tickShift) {
			learned[end] = uint16(min(p.Mtu, 65535)) //nolint:gosec // bounded
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(learned) == 0 && len(d.paths) == 0 {
		return nil
	}
	d.paths = learned
	for place := range d.known.places {
		m := d.known.places[place]
		if State(m.State) == 0 || !Mode(m.Mode).Tunnels() || m.Interface == 0 {
			continue
		}
		m.Mtu = d.mtuTo(m.Address, d.known.mtus[uint16(place)]) //nolint:gosec // at most MaxMembers
		if err := d.member(uint16(place), m); err != nil {      //nolint:gosec // at most MaxMembers
			return err
		}
	}
	return nil
}

// mtuTo is the longest packet that gets to a tunnel's end, of which the node's routes say mtu.
func (d *Datapath) mtuTo(end programAddress, mtu uint16) uint16 {
	if learned, ok := d.paths[end]; ok && learned < mtu {
		return learned
	}
	return mtu
}
