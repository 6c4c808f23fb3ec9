//go:build linux

package datapath

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// Verdicts of an XDP program.
const (
	Aborted  = 0
	Drop     = 1
	Pass     = 2
	TX       = 3
	Redirect = 4
)

// Run gives one frame to the program, as if it had come in on the namespace's
// loopback device, and returns the verdict and the frame as the program left it.
func (d *Datapath) Run(frame []byte) (verdict uint32, out []byte, err error) {
	ro := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+512)}
	verdict, err = d.objects.Balance.Run(ro)
	if err != nil {
		return 0, nil, fmt.Errorf("run the program with %d bytes: %w", len(frame), err)
	}
	return verdict, ro.DataOut, nil
}

// Mac is the address that frames for the program have.
func (d *Datapath) Mac() MAC { return d.device.mac }

// FlowTable is how many flows there are in the kernel now.
func (d *Datapath) FlowTable() (n int, err error) {
	left, _, err := sweepMap(d.objects.Flows4, func(programTuple4, programFlow) bool { return false })
	return int(left), err
}

// DropReasons are all names of reasons.
func DropReasons() []string { return dropReasons[:] }

// DropCount is the length of the kernel's array of them.
func (d *Datapath) DropCount() int { return int(d.objects.Drops.MaxEntries()) }

// PinnedMaps are the names of the maps that outlive a process.
func PinnedMaps() []string { return pinnedMaps() }

// AgeFlow makes a flow look as if its last packet came so long ago.
func (d *Datapath) AgeFlow(f Flow, by time.Duration) error {
	key := tuple4(f.Protocol, f.Client, f.VIP)
	var flow programFlow
	if err := d.objects.Flows4.Lookup(key, &flow); err != nil {
		return err
	}
	flow.Seen -= uint32(by >> tickShift)
	return d.objects.Flows4.Put(key, flow)
}

// AgeReply does the same for what a backend's replies are found by.
func (d *Datapath) AgeReply(p Protocol, backend, seen netip.AddrPort, by time.Duration) error {
	key := tuple4(p, backend, seen)
	var reply programReply
	if err := d.objects.Replies4.Lookup(key, &reply); err != nil {
		return err
	}
	reply.Seen -= uint32(by >> tickShift)
	return d.objects.Replies4.Put(key, reply)
}

// Repeat runs the program on one frame so many times, each on what the last one
// left, and returns how long one takes.
func (d *Datapath) Repeat(frame []byte, times uint32) (verdict uint32, each time.Duration, err error) {
	return d.objects.Balance.Benchmark(frame, int(times), nil)
}
