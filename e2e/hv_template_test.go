//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// A template's memory holds its hardware address, and frames with that are dropped at the bridge.
func TestVMsOfATemplateAreReachedAtTheirOwnAddressesOnTheBridge(t *testing.T) {
	t.Parallel()
	needRoot(t)
	lab := netlab.New()
	t.Cleanup(func() { _ = lab.Close() })
	node := newLabHost(t, lab, "node")
	d := newHypervisor(t, node, "127.0.0.1:7070")
	d.start()
	d.withDemo(t)
	op := d.finish(d.ok("POST", "/v1/templates", map[string]any{"name": "warm", "image": "demo", "memory_mib": 192}))
	if op.State != "succeeded" {
		t.Fatalf("%+v", op)
	}
	var vms []hypervisorapi.VM
	for i := range 2 {
		vm := hvAs[hypervisorapi.VM](t, d.ok("POST", "/v1/vms", map[string]any{
			"name": fmt.Sprint("vm", i), "image": "demo", "memory_mib": 192, "start": true,
			"network": map[string]any{"mode": "bridge"},
		}))
		d.connected(vm.Id)
		vm = hvAs[hypervisorapi.VM](t, d.ok("GET", "/v1/vms/"+vm.Id, nil))
		if vm.Template == nil || len(vm.Ips) != 1 {
			t.Fatalf("it booted, or has no address: %+v", vm)
		}
		vms = append(vms, vm)
	}
	for _, vm := range vms {
		eventually(t, "the guest has its lease", func() bool {
			text, _ := d.sh(vm.Id, "ip -4 addr show dev eth0; cat /sys/class/net/eth0/address")
			return strings.Contains(text, vm.Ips[0]+"/16") && strings.Contains(text, vm.Mac)
		})
	}
	eventually(t, "the guests reach each other", func() bool {
		_, one := d.sh(vms[0].Id, "ping -c 1 -w 5 "+vms[1].Ips[0])
		_, two := d.sh(vms[1].Id, "ping -c 1 -w 5 "+vms[0].Ips[0])
		return one == 0 && two == 0
	})
	for _, vm := range vms {
		d.ok("DELETE", "/v1/vms/"+vm.Id, nil)
	}
}
