// Package placement chooses the host in a fleet for a new VM, as a pure function: among the healthy
// hosts that are not cordoned, have the requested labels and can run the backend, the one with most
// free capacity after placing the VM.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Resources are processors and memory.
type Resources struct {
	VCPUs     int
	MemoryMiB int
}

// Node is a host as the fleet knows it.
type Node struct {
	Name     string
	Healthy  bool
	Cordoned bool
	Labels   map[string]string
	Backends []string
	Total    Resources
	// Free is unallocated capacity. VMs that are being created count as allocated, so that a burst
	// is spread over several nodes.
	Free Resources
}

// Request is a VM to place.
type Request struct {
	Resources
	Backend  string            // empty or auto: any
	Selector map[string]string // labels that the node must have
}

// Choose returns the name of the node for the VM. Ties are broken by name. If no node fits, it
// fails with a conflict that lists the obstacles and the number of nodes with each.
func Choose(nodes []Node, r Request) (string, error) {
	var best *Node
	obstacles := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		if why := n.obstacle(r); why != "" {
			obstacles[why]++
			continue
		}
		if best == nil || better(n, best, r) {
			best = n
		}
	}
	if best == nil {
		return "", fault.New(fault.Conflict, "no node can take the VM: %s", told(obstacles)).WithCode("no_capacity")
	}
	return best.Name, nil
}

// obstacle returns why a node cannot get the VM, or "" if it can.
func (n *Node) obstacle(r Request) string {
	switch {
	case !n.Healthy:
		return "not healthy"
	case n.Cordoned:
		return "cordoned"
	case r.Backend != "" && r.Backend != "auto" && !slices.Contains(n.Backends, r.Backend):
		return "without the backend " + r.Backend
	case n.Free.VCPUs < r.VCPUs:
		return "with too few free processors"
	case n.Free.MemoryMiB < r.MemoryMiB:
		return "with too little free memory"
	}
	for key, value := range r.Selector {
		if got, has := n.Labels[key]; !has || got != value {
			return "without the labels"
		}
	}
	return ""
}

// better compares the capacity that would be left on two nodes: the smaller share of free
// processors or memory counts.
func better(a, b *Node, r Request) bool {
	return cmp.Or(cmp.Compare(b.left(r), a.left(r)), strings.Compare(a.Name, b.Name)) < 0
}

func (n *Node) left(r Request) float64 {
	return min(share(n.Free.VCPUs-r.VCPUs, n.Total.VCPUs), share(n.Free.MemoryMiB-r.MemoryMiB, n.Total.MemoryMiB))
}

func share(left, total int) float64 {
	if total <= 0 {
		return 0
	}
	return float64(left) / float64(total)
}

func told(obstacles map[string]int) string {
	if len(obstacles) == 0 {
		return "the fleet has none"
	}
	var parts []string
	for why, n := range obstacles {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
