//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

const (
	fleetNodes     = 10
	nodeProcessors = 20
)

// fleet is a registry and its nodes, each on a host of its own.
type fleet struct {
	registry *hvDaemon
	nodes    []*hvDaemon
	hosts    []*netlab.Host
}

// busyboxRoot makes a root file system for sandboxes.
func busyboxRoot(t testing.TB) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		require.Missing(t, "busybox-static is not installed")
	}
	if _, err := exec.LookPath("runsc"); err != nil {
		require.Missing(t, "runsc is not installed: sh bench/runsc/build.sh /usr/local/bin/runsc")
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "tmp", "proc", "dev", "run"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), raw, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	needRoot(t)
	root := busyboxRoot(t)
	lab := netlab.New()
	t.Cleanup(func() { _ = lab.Close() })
	sw, err := lab.Switch("sw")
	if err != nil {
		t.Fatal(err)
	}
	host := func(name, address string) *netlab.Host {
		t.Helper()
		h := newLabHost(t, lab, name)
		if err := netlab.Plug(sw, h, "eth0", netip.MustParsePrefix(address+"/24")); err != nil {
			t.Fatal(err)
		}
		return h
	}
	f := &fleet{}
	f.registry = newHypervisor(t, host("registry", "10.9.0.1"), "10.9.0.1:7070", "--heartbeat-interval", "1s")
	f.registry.start()
	var starting sync.WaitGroup
	for i := range fleetNodes {
		address := fmt.Sprintf("10.9.0.%d", 10+i)
		h := host(fmt.Sprintf("n%d", i), address)
		n := newHypervisor(
			t,
			h,
			address+":7070",
			"--heartbeat-interval",
			"1s",
			"--registry",
			"http://10.9.0.1:7070",
			"--node-name",
			fmt.Sprintf("n%d", i),
			"--node-vcpus",
			fmt.Sprint(nodeProcessors),
			"--node-memory-mib",
			"100000",
			"--node-labels",
			fmt.Sprintf("rack=%c", 'a'+i%2),
		)
		f.nodes, f.hosts = append(f.nodes, n), append(f.hosts, h)
		starting.Go(func() {
			n.start()
			n.finish(n.ok("POST", "/v1/images/catalog", map[string]any{"name": "box", "path": root}))
		})
	}
	starting.Wait()
	f.healthy(t, fleetNodes)
	return f
}

func (f *fleet) list(t testing.TB) []hypervisorapi.Node {
	t.Helper()
	return hvAs[[]hypervisorapi.Node](t, f.registry.ok("GET", "/fleet/nodes", nil))
}

// healthy waits until so many nodes are, and can run sandboxes.
func (f *fleet) healthy(t testing.TB, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d nodes are healthy", want), func() bool {
		n := 0
		for _, node := range f.list(t) {
			if node.Healthy && slices.Contains(node.Backends, "sandbox") {
				n++
			}
		}
		return n == want
	})
}

func TestAFleetOfTenPlacesABurstWithoutExceedingACapAndOutlivesPartitionLossAndRestart(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	// Two hundred creates at once for two hundred processors.
	const burst = fleetNodes * nodeProcessors
	var mu sync.Mutex
	made := map[string]string{} // id -> node
	var work sync.WaitGroup
	slots := make(chan struct{}, 50)
	for i := range burst {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			body := map[string]any{"name": fmt.Sprintf("vm-%d", i), "image": "box", "memory_mib": 64}
			status, raw := f.registry.call("POST", "/fleet/vms", body)
			// Room that may be counted twice is given out once heartbeats have told; the registry waits for
			// them for a while, and then asks to be asked again.
			for deadline := time.Now().Add(time.Minute); status == 409 && bytes.Contains(raw, []byte("no_capacity")) && time.Now().Before(deadline); {
				status, raw = f.registry.call("POST", "/fleet/vms", body)
			}
			if status != 201 {
				t.Errorf("create %d: %d %s", i, status, raw)
				return
			}
			vm := hvAs[hypervisorapi.FleetVM](t, raw)
			mu.Lock()
			made[vm.Id] = vm.Node
			mu.Unlock()
		})
	}
	work.Wait()
	perNode := map[string]int{}
	for _, node := range made {
		perNode[node]++
	}
	for node, n := range perNode {
		if n > nodeProcessors {
			t.Errorf("%s has %d VMs for its %d processors", node, n, nodeProcessors)
		}
	}
	all := hvAs[hypervisorapi.FleetVMs](t, f.registry.ok("GET", "/fleet/vms", nil))
	if len(all.Items) != burst || len(made) != burst || len(all.UnreachableNodes) != 0 {
		t.Fatalf("%d made, %d listed, unreachable %v", len(made), len(all.Items), all.UnreachableNodes)
	}
	if status, raw := f.registry.call(
		"POST", "/fleet/vms", map[string]any{"name": "more", "image": "box", "memory_mib": 64},
	); status != 409 {
		t.Errorf("beyond what the fleet has: %d %s", status, raw)
	}
	// Some of them really run.
	for id, node := range made {
		if node != "n3" {
			continue
		}
		n := f.nodes[3]
		n.ok("POST", "/v1/vms/"+id+"/start", nil)
		n.connected(id)
		n.ok("POST", "/v1/vms/"+id+"/stop", map[string]any{"force": true})
		break
	}
	for id, node := range made {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if status, raw := f.registry.call("DELETE", "/fleet/vms/"+node+"/"+id, nil); status != 204 {
				t.Errorf("delete: %d %s", status, raw)
			}
		})
	}
	work.Wait()

	// A cordon keeps new VMs away unless the node is named, and outlives the registry.
	f.registry.ok("POST", "/fleet/nodes/n0/cordon", nil)
	f.registry.process.kill()
	f.registry.start()
	f.healthy(t, fleetNodes)
	eventually(t, "the nodes have room again", func() bool {
		c := hvAs[hypervisorapi.Capacity](t, f.registry.ok("GET", "/fleet/capacity", nil))
		return c.FreeVcpus == burst && c.HealthyNodes == fleetNodes
	})
	place := func(name string, more map[string]any) (int, hypervisorapi.FleetVM, string) {
		t.Helper()
		spec := map[string]any{"name": name, "image": "box", "memory_mib": 64, "vcpus": 2}
		for k, v := range more {
			spec[k] = v
		}
		status, raw := f.registry.call("POST", "/fleet/vms", spec)
		if status != 201 {
			return status, hypervisorapi.FleetVM{}, string(raw)
		}
		return status, hvAs[hypervisorapi.FleetVM](t, raw), ""
	}
	for i := range 12 {
		if status, vm, why := place(fmt.Sprintf("c-%d", i), nil); status != 201 || vm.Node == "n0" {
			t.Errorf("%d %s on %s", status, why, vm.Node)
		}
	}
	if status, vm, why := place("named", map[string]any{"node": "n0"}); status != 201 || vm.Node != "n0" {
		t.Errorf("%d %s on %s", status, why, vm.Node)
	}
	if status, vm, why := place(
		"labelled", map[string]any{"node_selector": map[string]string{"rack": "b"}},
	); status != 201 ||
		vm.Node[1]%2 != 1 {
		t.Errorf("%d %s on %s", status, why, vm.Node)
	}
	if status, _, why := place(
		"nowhere", map[string]any{"node_selector": map[string]string{"rack": "z"}},
	); status != 409 {
		t.Errorf("%d %s", status, why)
	}
	if status, _, why := place("unknown", map[string]any{"node": "nope"}); status != 400 {
		t.Errorf("%d %s", status, why)
	}
	f.registry.ok("POST", "/fleet/nodes/n0/uncordon", nil)

	// One is cut off, one is killed: lists name both, soon, and nothing is placed there.
	if err := f.hosts[1].Down("eth0"); err != nil {
		t.Fatal(err)
	}
	f.nodes[2].process.kill()
	f.healthy(t, fleetNodes-2)
	began := time.Now()
	all = hvAs[hypervisorapi.FleetVMs](t, f.registry.ok("GET", "/fleet/vms", nil))
	if len(all.UnreachableNodes) != 2 || all.UnreachableNodes[0].Node != "n1" || all.UnreachableNodes[1].Node != "n2" ||
		time.Since(began) > 10*time.Second {
		t.Errorf("after %s: unreachable %+v", time.Since(began), all.UnreachableNodes)
	}
	for i := range 12 {
		if status, vm, why := place(fmt.Sprintf("p-%d", i), nil); status != 201 || vm.Node == "n1" || vm.Node == "n2" {
			t.Errorf("%d %s on %s", status, why, vm.Node)
		}
	}
	for _, name := range []string{"n1", "n2"} {
		if status, raw := f.registry.call("GET", "/fleet/nodes/"+name+"/vms", nil); status != 502 {
			t.Errorf("%s: %d %s", name, status, raw)
		}
		if status, _, why := place("to-"+name, map[string]any{"node": name}); status != 502 {
			t.Errorf("%d %s", status, why)
		}
	}
	// They come back with what they had.
	if err := f.hosts[1].Up("eth0"); err != nil {
		t.Fatal(err)
	}
	f.nodes[2].start()
	f.healthy(t, fleetNodes)
	all = hvAs[hypervisorapi.FleetVMs](t, f.registry.ok("GET", "/fleet/vms", nil))
	if len(all.UnreachableNodes) != 0 || len(all.Items) != 12+2+12 {
		t.Errorf("%d VMs, unreachable %+v", len(all.Items), all.UnreachableNodes)
	}
}
