package datapath

import (
	"fmt"

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
