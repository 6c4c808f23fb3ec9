//go:build linux

package e2e

import (
	"strings"
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// Policies of VM management decide which of two guests another one hears, from its first packet on, and
// follow labels and a service that is killed.
func TestGuestsHearOnlyWhomTheNetworkPoliciesOfVMManagementSelect(t *testing.T) {
	t.Parallel()
	needRoot(t)
	lab := netlab.New()
	t.Cleanup(func() { _ = lab.Close() })
	node := newLabHost(t, lab, "node")
	for _, name := range []string{"iptables", "ip6tables"} {
		_ = node.Sysctl("net/bridge/bridge-nf-call-"+name, "0") // not every kernel has it
	}
	d := newHypervisor(t, node, "127.0.0.1:7070")
	d.start()
	d.withDemo(t)
	m := newVMManager(t, d.listen)
	m.host, m.client = node, d.client
	m.start()
	type object = map[string]any
	ok := func(method, path string, body any) []byte {
		t.Helper()
		status, raw := m.call(method, path, body)
		if status < 200 || status > 299 {
			t.Fatalf("%s %s: %d %s", method, path, status, raw)
		}
		return raw
	}
	names := []string{"db", "web", "other"}
	for _, name := range names {
		ok("POST", "/api/vms", object{
			"name": name, "image": "demo", "memory": 192, "network": object{"mode": "bridge"}, "labels": object{"role": name},
		})
	}
	web := object{"matchLabels": object{"role": "web"}}
	ok("POST", "/api/dataplane/cnp", object{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": object{"name": "db"}, "spec": object{
			"endpointSelector": object{"matchLabels": object{"role": "db"}},
			"ingress":          []object{{"fromEndpoints": []object{web}}},
			"egress": []object{
				{"toEntities": []string{"world", "host"}},
				{"icmps": []object{{"fields": []object{{"type": "EchoRequest"}}}}},
			},
		},
	})
	vm := func(name string) vmapi.VM {
		t.Helper()
		return hvAs[vmapi.VM](t, ok("GET", "/api/vms/"+name, object{}))
	}
	t.Cleanup(func() {
		if t.Failed() {
			_, raw := m.call("GET", "/api/vms", object{})
			t.Logf("the VMs: %s", raw)
		}
	})
	below := map[string]string{} // ids at the daemon
	for _, name := range names {
		ok("POST", "/api/vms/"+name+"/start", object{})
		within(t, patience, name+" runs", func() bool { return vm(name).State == "running" })
	}
	for _, below1 := range d.vms() {
		below[below1.Name] = below1.Id
		d.connected(below1.Id)
	}
	eventually(t, "the service knows the addresses", func() bool {
		return len(vm("db").Ips) == 1 && len(vm("web").Ips) == 1 && len(vm("other").Ips) == 1
	})
	address := vm("db").Ips[0]
	hears := func(name string) bool {
		_, code := d.sh(below[name], "ping -c 1 -w 2 "+address)
		return code == 0
	}
	applied := func() bool {
		s := hvAs[vmapi.DataplaneStatus](t, ok("GET", "/api/vms/db/dataplane/status", object{}))
		return s.Status == "applied" && s.Attached && s.Mode == "enforced"
	}
	eventually(t, "web is heard", func() bool { return hears("web") })
	if hears("other") {
		t.Error("another VM is heard")
	}
	if !applied() {
		t.Errorf("%s", ok("GET", "/api/vms/db/dataplane/status", object{}))
	}
	eventually(t, "both decisions are seen with names", func() bool {
		text := string(ok("GET", "/api/dataplane/observe", object{}))
		return strings.Contains(text, `"rule":"cnp/all:db/ingress/0"`) && strings.Contains(text, `"verdict":"denied"`) &&
			strings.Contains(text, `"vm":"other"`)
	})
	m.process.kill()
	if hears("other") {
		t.Error("without the service, another VM is heard")
	}
	m.start()
	ok("PATCH", "/api/vms/other", object{"labels": object{"role": "web"}})
	ok("PATCH", "/api/vms/web", object{"labels": object{"role": "other"}})
	eventually(t, "the other one is heard by its new label", func() bool { return hears("other") })
	eventually(t, "web is not heard any more", func() bool { return !hears("web") })
	ok("DELETE", "/api/dataplane/cnp/db", object{})
	eventually(t, "without a policy, all are heard", func() bool { return hears("web") && hears("other") })
	for _, name := range names {
		ok("DELETE", "/api/vms/"+name, object{})
	}
}
