//go:build linux

package datapath

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
)

// pathLasts is how long a path MTU that a router reported for a tunnel endpoint is used (the
// default of net.ipv4.route.mtu_expires). No message says that a path's MTU has grown again.
const pathLasts = 10 * time.Minute

// FollowPaths lowers the MTU of the paths to tunnel endpoints to what routers reported, and raises
// it again when a report is older than ten minutes. An open datapath calls it every second.
func (d *Datapath) FollowPaths() error {
	// The lock is held while the map is read. Otherwise a slow reader could apply what it read before
	// a fast one did, and bring back an MTU that had already been raised.
	d.mu.Lock()
	defer d.mu.Unlock()
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

// mtuTo returns the size of the largest packet that reaches the tunnel endpoint end. mtu is the MTU
// of the node's route.
func (d *Datapath) mtuTo(end programAddress, mtu uint16) uint16 {
	if learned, ok := d.paths[end]; ok && learned < mtu {
		return learned
	}
	return mtu
}
