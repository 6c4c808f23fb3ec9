// Package depend puts workloads into the order in which they start: those first that others depend on.
//
// # Invariants
//
//   - The order depends on the names and the dependencies only, not on the order in which they are given.
//   - A cycle is named by its members, in the order in which they depend on each other.
//   - What a workload depends on and is not there is told, and does not keep the others from being ordered.
package depend

import (
	"maps"
	"slices"
)

// Graph has what each workload depends on, by its name.
type Graph map[string][]string

// Plan is the order in which workloads start. They stop in the opposite one.
type Plan struct {
	// Waves are the workloads that can start at the same time, once those of the waves before have.
	Waves [][]string
	// Cycle has workloads that depend on each other: each on the next, and the last on the first. With one, Waves has only
	// what depends on no cycle.
	Cycle []string
	// Missing are the names that workloads depend on and that the graph does not have, by the workloads.
	Missing map[string][]string
}

// Order returns the waves as one list.
func (p *Plan) Order() []string { return slices.Concat(p.Waves...) }

// Plan orders the workloads.
func (g Graph) Plan() *Plan {
	p := &Plan{Missing: map[string][]string{}}
	waits := map[string]map[string]bool{} // what each still waits for
	followers := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		waits[name] = map[string]bool{}
		for _, on := range g[name] {
			switch _, known := g[on]; {
			case !known:
				if !slices.Contains(p.Missing[name], on) {
					p.Missing[name] = append(p.Missing[name], on)
				}
			case !waits[name][on]:
				waits[name][on] = true
				followers[on] = append(followers[on], name)
			}
		}
		slices.Sort(p.Missing[name])
	}
	var wave []string
	for name, on := range waits {
		if len(on) == 0 {
			wave = append(wave, name)
		}
	}
	for len(wave) > 0 {
		slices.Sort(wave)
		p.Waves = append(p.Waves, wave)
		var next []string
		for _, name := range wave {
			delete(waits, name)
			for _, f := range followers[name] {
				if delete(waits[f], name); len(waits[f]) == 0 {
					next = append(next, f)
				}
			}
		}
		wave = next
	}
	if len(waits) > 0 {
		p.Cycle = cycle(waits)
	}
	return p
}

// cycle returns one among workloads that all wait for one of them.
func cycle(waits map[string]map[string]bool) []string {
	name := slices.Min(slices.Collect(maps.Keys(waits)))
	at := map[string]int{} // where a name is on the way
	for way := []string{}; ; {
		if first, seen := at[name]; seen {
			return fromLeast(way[first:])
		}
		at[name] = len(way)
		way = append(way, name)
		name = slices.Min(slices.Collect(maps.Keys(waits[name])))
	}
}

// fromLeast turns a cycle so that it begins with its least name.
func fromLeast(c []string) []string {
	i := slices.Index(c, slices.Min(c))
	return slices.Concat(c[i:], c[:i])
}

// Dependents returns all workloads that depend on one, directly or through others, in the order of their names.
func (g Graph) Dependents(of string) []string {
	followers := map[string][]string{}
	for name, on := range g {
		for _, o := range on {
			followers[o] = append(followers[o], name)
		}
	}
	found := map[string]bool{}
	for next := followers[of]; len(next) > 0; {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if found[name] || name == of {
			continue
		}
		found[name] = true
		next = append(slices.Clone(next), followers[name]...)
	}
	return slices.Sorted(maps.Keys(found))
}
