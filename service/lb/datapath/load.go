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
// process where there are any.
func (d *Datapath) load() error {
	// Needed before Linux 5.11, harmless later; loading says it better if it matters.
	if err := rlimit.RemoveMemlock(); err != nil {
		d.log.Debug("the limit of locked memory stays", "error", err)
	}
	err := d.loadPrograms()
	if err == nil {
		return nil
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		return fault.Wrap(fault.Unavailable, verifier, "this kernel does not accept the BPF program: %v", verifier)
	}
	return fmt.Errorf("load the BPF program: %w", err)
}

// loadPrograms loads the program once for each interface: all share the maps, but each has
// settings of its own.
func (d *Datapath) loadPrograms() error {
	spec, err := loadProgram()
	if err != nil {
		return err
	}
	for _, name := range []string{programMapFlows4, programMapFlows6, programMapReplies4, programMapReplies6} {
		spec.Maps[name].MaxEntries = uint32(d.options.Flows)
	}
	d.table = spec.Maps[programMapTables].InnerMap
	shared, err := d.openMaps(spec)
	defer func() {
		for _, m := range shared {
			_ = m.Close() // the programs have their own
		}
	}()
	if err != nil {
		return err
	}
	if err := spec.Copy().LoadAndAssign(&d.objects, &ebpf.CollectionOptions{MapReplacements: shared}); err != nil {
		return err
	}
	d.ports[0].program, d.ports[0].settings = d.objects.Balance, d.objects.Settings
	for _, p := range d.ports[1:] {
		var objects struct {
			Balance  *ebpf.Program  `ebpf:"balance"`
			Settings *ebpf.Variable `ebpf:"settings"`
		}
		if err := spec.Copy().LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: shared}); err != nil {
			return err
		}
		p.program, p.settings = objects.Balance, objects.Settings
	}
	return nil
}

// sharedMaps are the names of the maps that all programs share, and that outlive a process.
func sharedMaps() []string {
	return []string{
		programMapAddresses, programMapBudgets, programMapClients, programMapCounts, programMapDrops,
		programMapFlows4, programMapFlows6, programMapFragments, programMapLimits, programMapMemberCounts,
		programMapMembers, programMapOrigins, programMapOwn, programMapPaths, programMapProbePorts,
		programMapRanges4, programMapRanges6, programMapReplies4, programMapReplies6, programMapSources,
		programMapTables, programMapVipCounts, programMapVips4, programMapVips6,
	}
}
