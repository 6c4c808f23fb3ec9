//go:build linux

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// load puts the program and its maps into the kernel, with the maps of an earlier
// process where they fit.
func (d *Datapath) load() error {
	// Needed before Linux 5.11, harmless later; loading says it better if it matters.
	if err := rlimit.RemoveMemlock(); err != nil {
		d.log.Debug("the limit of locked memory stays", "error", err)
	}
	err := d.loadWith(d.pins)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		d.log.Warn("the kernel's maps are of another version or size; they are made anew, and all flows are hashed again", "reason", err)
		if err := removeMapPins(d.pins); err != nil {
			return err
		}
		err = d.loadWith(d.pins)
	}
	if err == nil {
		return nil
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		return fault.Wrap(fault.Unavailable, verifier, "this kernel does not accept the BPF program: %v", verifier)
	}
	return fmt.Errorf("load the BPF program: %w", err)
}

func (d *Datapath) loadWith(pins string) error {
	spec, err := loadProgram()
	if err != nil {
		return err
	}
	for _, name := range []string{programMapFlows4, programMapFlows6, programMapReplies4, programMapReplies6} {
		spec.Maps[name].MaxEntries = uint32(d.options.Flows)
	}
	// The settings belong to one program, everything else to the traffic.
	var options ebpf.CollectionOptions
	if pins != "" {
		options.Maps.PinPath = pins
		for _, name := range pinnedMaps() {
			spec.Maps[name].Pinning = ebpf.PinByName
		}
	}
	d.table = spec.Maps[programMapTables].InnerMap
	return spec.LoadAndAssign(&d.objects, &options)
}

// pinnedMaps are the names of the maps that outlive a process.
func pinnedMaps() []string {
	return []string{
		programMapAddresses, programMapClients, programMapDrops, programMapFlows4, programMapFlows6, programMapFragments,
		programMapLimits, programMapMemberCounts, programMapMembers, programMapProbePorts, programMapRanges4, programMapRanges6,
		programMapReplies4, programMapReplies6, programMapStored, programMapTables, programMapVipCounts, programMapVips4, programMapVips6,
	}
}
