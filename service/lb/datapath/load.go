//go:build linux

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// load loads the program and its maps into the kernel. It uses the maps of an earlier process if
// there are any.
func (d *Datapath) load() error {
	// Kernels before 5.11 need this. On later ones, it does no harm. If it matters, loading fails
	// with a better error.
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

// loadPrograms loads the program once for each interface. All copies share the maps, but each has
// its own settings.
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
			_ = m.Close() // the programs have their own references
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

// sharedMaps returns the names of the maps that all programs share and that outlive a process.
func sharedMaps() []string {
	return []string{
		programMapAddresses, programMapBudgets, programMapClients, programMapCounts, programMapDrops,
		programMapFlows4, programMapFlows6, programMapFragments, programMapLimits, programMapMemberCounts,
		programMapMembers, programMapOrigins, programMapOwn, programMapPaths, programMapProbePorts,
		programMapRanges4, programMapRanges6, programMapReplies4, programMapReplies6, programMapSources,
		programMapTables, programMapVipCounts, programMapVips4, programMapVips6,
	}
}
