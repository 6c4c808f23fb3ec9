//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// The maps outlive the process. Another version of it, or another setting, may therefore find maps
// of another size or with shorter values. Such a map is replaced: a new one is filled from it while
// the old program still balances, and takes its place together with the new program:
//
//	open    creates the new map and copies all entries of the old one
//	attach  pins it as NAME-next and copies the entries that were added since; replaces the
//	        program, and copies the few that were added in between; renames NAME-next to NAME
//
// A process that is killed in between leaves NAME-next. The next process uses it if the attached
// program does, and otherwise removes it.
//
// Between versions, values may grow at their end; in old values, the new part counts as zero. A map
// whose keys differ cannot be carried over.

// replaced is a map that is being replaced by another.
type replaced struct {
	name     string
	old, new *ebpf.Map
}

// nextPin is the suffix of maps that are not in place yet. The file system does not allow dots.
const nextPin = "-next"

// openMaps opens the maps that an earlier process left, and creates those that do not exist or do
// not fit.
func (d *Datapath) openMaps(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	maps := map[string]*ebpf.Map{}
	if d.pins != "" {
		if err := d.finishNext(); err != nil {
			return maps, err
		}
	}
	for _, name := range sharedMaps() {
		m, err := d.openMap(name, spec.Maps[name])
		if err != nil {
			return maps, fmt.Errorf("map %s: %w", name, err)
		}
		maps[name] = m
	}
	return maps, nil
}

func (d *Datapath) openMap(name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if d.pins == "" {
		return ebpf.NewMap(spec)
	}
	path := filepath.Join(d.pins, name)
	old, err := ebpf.LoadPinnedMap(path, nil)
	if err == nil {
		unfit := spec.Compatible(old)
		if unfit == nil {
			return old, nil
		}
		d.log.Info(
			"a map of the kernel is of another version or size; it is made anew, and what it holds is carried over",
			"map", name, "reason", unfit,
		)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return m, m.Pin(path)
	}
	own, err := m.Clone()
	if err != nil {
		return m, err
	}
	d.replaced = append(d.replaced, replaced{name, old, own})
	if err := carry(old, m, ebpf.UpdateAny); err != nil {
		return m, fmt.Errorf(
			"carry over what it holds: %w; \"mainstay serve lb --config FILE --detach\" removes all that an earlier version left, and ends its connections",
			err,
		)
	}
	return m, nil
}

// finishNext completes or undoes the replacements that a killed process left unfinished.
func (d *Datapath) finishNext() error {
	entries, err := os.ReadDir(d.pins)
	if err != nil {
		return err
	}
	var used []ebpf.MapID
	for _, e := range entries {
		name, next := strings.CutSuffix(e.Name(), nextPin)
		if !next || !slices.Contains(sharedMaps(), name) { // the name of an interface may end like this too
			continue
		}
		if used == nil {
			if used, err = mapsOfProgram(filepath.Join(d.pins, linkPin)); err != nil {
				return err
			}
		}
		path := filepath.Join(d.pins, e.Name())
		id, err := idOfPinned(path)
		if err != nil {
			return err
		}
		if slices.Contains(used, id) {
			err = os.Rename(path, filepath.Join(d.pins, name))
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func idOfPinned(path string) (ebpf.MapID, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

// mapsOfProgram returns the maps of the program that a pinned link runs. If there is no link, the
// result is empty but not nil.
func mapsOfProgram(path string) ([]ebpf.MapID, error) {
	none := []ebpf.MapID{}
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return nil, err
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return none, nil //nolint:nilerr // a link that was detached has none
	}
	defer program.Close()
	about, err := program.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := about.MapIDs()
	return append(none, ids...), nil
}

// stageReplaced pins the new maps next to the old ones, and copies the entries that were added
// since they were filled.
func (d *Datapath) stageReplaced() error {
	for _, r := range d.replaced {
		if err := r.new.Pin(filepath.Join(d.pins, r.name+nextPin)); err != nil {
			return err
		}
	}
	return d.carryFlows(ebpf.UpdateAny)
}

// commitReplaced renames the new maps to the names of the old ones. The new program must be
// attached.
func (d *Datapath) commitReplaced() error {
	// Entries that the new program has written are newer than the old program's.
	errs := []error{d.carryFlows(ebpf.UpdateNoExist)}
	for _, r := range d.replaced {
		path := filepath.Join(d.pins, r.name)
		errs = append(errs, os.Rename(path+nextPin, path))
	}
	return errors.Join(append(errs, d.closeReplaced())...)
}

func (d *Datapath) closeReplaced() error {
	var errs []error
	for _, r := range d.replaced {
		errs = append(errs, r.old.Close(), r.new.Close())
	}
	d.replaced = nil
	return errors.Join(errs...)
}

// carryFlows copies the entries that packets create.
func (d *Datapath) carryFlows(how ebpf.MapUpdateFlags) error {
	for _, r := range d.replaced {
		if r.old.Type() != ebpf.LRUHash {
			continue
		}
		if err := carry(r.old, r.new, how); err != nil {
			return fmt.Errorf("carry over what map %s holds: %w", r.name, err)
		}
	}
	return nil
}

// carry copies all entries of a map to another, whose values may be longer.
func carry(from, to *ebpf.Map, how ebpf.MapUpdateFlags) error {
	if from.KeySize() != to.KeySize() || from.ValueSize() > to.ValueSize() || from.Type() != to.Type() {
		return errors.New("its keys or values are of a kind that is not known")
	}
	switch from.Type() {
	case ebpf.PerCPUArray:
		return carryPerCPU(from, to)
	case ebpf.ArrayOfMaps:
		return errors.New("tables of tables cannot be carried over")
	}
	keys, values := slab(from.KeySize(), carryBatch), slab(from.ValueSize(), carryBatch)
	longer := slab(to.ValueSize(), carryBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := from.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return err
		}
		for i := range n {
			reflect.Copy(longer.Index(i), values.Index(i))
		}
		if err := put(to, keys, longer, n, how); err != nil {
			return err
		}
		if end {
			return nil
		}
	}
}

// carryBatch is how many entries are copied at once. It must be at least the length of the longest
// bucket of the kernel's hash tables.
const carryBatch = 4096

// put writes n entries. Batch updates always replace existing entries, so other updates write one
// entry at a time.
func put(to *ebpf.Map, keys, values reflect.Value, n int, how ebpf.MapUpdateFlags) error {
	if n == 0 {
		return nil
	}
	if how == ebpf.UpdateAny {
		_, err := to.BatchUpdate(keys.Slice(0, n).Interface(), values.Slice(0, n).Interface(), nil)
		return err
	}
	for i := range n {
		err := to.Update(keys.Index(i).Interface(), values.Index(i).Interface(), how)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return err
		}
	}
	return nil
}

// slab returns a slice of n byte arrays, which the library passes to and from the kernel unchanged.
func slab(size uint32, n int) reflect.Value {
	return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]())), n, n)
}

func carryPerCPU(from, to *ebpf.Map) error {
	cpus := ebpf.MustPossibleCPU()
	values, longer := slab(from.ValueSize(), cpus), slab(to.ValueSize(), cpus)
	for i := range min(from.MaxEntries(), to.MaxEntries()) {
		into := reflect.New(values.Type())
		into.Elem().Set(values)
		if err := from.Lookup(i, into.Interface()); err != nil {
			return err
		}
		for cpu := range cpus {
			reflect.Copy(longer.Index(cpu), into.Elem().Index(cpu))
		}
		if err := to.Put(i, longer.Interface()); err != nil {
			return err
		}
	}
	return nil
}
