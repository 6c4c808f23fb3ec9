package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
)

func node(name string, change ...func(*placement.Node)) placement.Node {
	n := placement.Node{Name: name, Healthy: true, Labels: map[string]string{"zone": "a"}, Backends: []string{"qemu"},
		Total: placement.Resources{VCPUs: 8, MemoryMiB: 8192}, Free: placement.Resources{VCPUs: 8, MemoryMiB: 8192}}
	for _, c := range change {
		c(&n)
	}
	return n
}

var small = placement.Request{Resources: placement.Resources{VCPUs: 1, MemoryMiB: 512}}

func TestTheNodeWithMostRoomLeftIsChosen(t *testing.T) {
	t.Parallel()
	half := func(n *placement.Node) { n.Free.VCPUs = 4 }
	huge := func(n *placement.Node) {
		n.Total, n.Free = placement.Resources{64, 65536}, placement.Resources{16, 65536}
	} // a quarter of its processors
	for want, nodes := range map[string][]placement.Node{
		"b": {node("a", half), node("b")},
		"a": {node("b"), node("a")}, // as good: by name
		"c": {node("c", half), node("d", huge)},
	} {
		if got, err := placement.Choose(nodes, small); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestWhatIsInTheWayIsTold(t *testing.T) {
	t.Parallel()
	nodes := []placement.Node{
		node("a", func(n *placement.Node) { n.Healthy = false }),
		node("b", func(n *placement.Node) { n.Cordoned = true }),
		node("c", func(n *placement.Node) { n.Free.VCPUs = 0 }),
		node("d", func(n *placement.Node) { n.Free.MemoryMiB = 511 }),
		node("e", func(n *placement.Node) { n.Labels = nil }),
		node("f", func(n *placement.Node) { n.Backends = nil }),
		node("g", func(n *placement.Node) { n.Cordoned = true }),
	}
	r := small
	r.Backend, r.Selector = "qemu", map[string]string{"zone": "a"}
	_, err := placement.Choose(nodes, r)
	want := "no node can take the VM: 1 not healthy, 1 with too few free processors, 1 with too little free memory, 1 without the backend qemu, 1 without the labels, 2 cordoned"
	if !fault.Is(err, fault.Conflict) || err.Error() != want {
		t.Errorf("%v", err)
	}
	if _, err := placement.Choose(nil, r); err == nil || !strings.Contains(err.Error(), "the fleet has none") {
		t.Errorf("%v", err)
	}
}

// A burst whose VMs are counted at once is spread, and never puts more on a node than it has.
func TestABurstIsSpreadAndNothingIsOverloaded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var nodes []placement.Node
		for i := range 1 + random.IntN(8) {
			total := placement.Resources{VCPUs: 1 + random.IntN(32), MemoryMiB: 512 * (1 + random.IntN(64))}
			nodes = append(nodes, node(fmt.Sprint("n", i), func(n *placement.Node) { n.Total, n.Free = total, total }))
		}
		for {
			r := placement.Request{
				Resources: placement.Resources{VCPUs: 1 + random.IntN(4), MemoryMiB: 256 * (1 + random.IntN(8))},
			}
			name, err := placement.Choose(nodes, r)
			if err != nil {
				if slices.ContainsFunc(
					nodes,
					func(n placement.Node) bool { return n.Free.VCPUs >= r.VCPUs && n.Free.MemoryMiB >= r.MemoryMiB },
				) {
					t.Fatalf("there is room for %+v: %v", r, err)
				}
				break
			}
			i := slices.IndexFunc(nodes, func(n placement.Node) bool { return n.Name == name })
			if nodes[i].Free.VCPUs -= r.VCPUs; nodes[i].Free.VCPUs < 0 {
				t.Fatalf("%s has %d processors left", name, nodes[i].Free.VCPUs)
			}
			if nodes[i].Free.MemoryMiB -= r.MemoryMiB; nodes[i].Free.MemoryMiB < 0 {
				t.Fatalf("%s has %d MiB left", name, nodes[i].Free.MemoryMiB)
			}
		}
	}
	// Equal nodes get equal shares.
	nodes, got := []placement.Node{node("a"), node("b"), node("c"), node("d")}, map[string]int{}
	for range 16 {
		name, err := placement.Choose(nodes, small)
		if err != nil {
			t.Fatal(err)
		}
		got[name]++
		i := slices.IndexFunc(nodes, func(n placement.Node) bool { return n.Name == name })
		nodes[i].Free.VCPUs--
		nodes[i].Free.MemoryMiB -= 512
	}
	if fmt.Sprint(got) != "map[a:4 b:4 c:4 d:4]" {
		t.Errorf("%v", got)
	}
}
