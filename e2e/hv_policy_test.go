//go:build linux

package e2e

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

func TestAGuestsTrafficObeysItsNetworkPolicyWhateverHappensToTheDaemon(t *testing.T) {
	t.Parallel()
	needRoot(t)
	lab := netlab.New()
	t.Cleanup(func() { _ = lab.Close() })
	node, outside := newLabHost(t, lab, "node"), newLabHost(t, lab, "outside")
	if err := netlab.Join(node, "up0", outside, "in0"); err != nil {
		t.Fatal(err)
	}
	for device, h := range map[string]*netlab.Host{"up0": node, "in0": outside} {
		address := map[string]string{"up0": "192.0.2.1/24", "in0": "192.0.2.9/24"}[device]
		if err := h.Address(device, netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range []string{"80", "443"} {
		if err := outside.Do(func() error {
			l, err := net.Listen("tcp4", "192.0.2.9:"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() { // a client that gets an end has reached it
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					_ = c.Close()
				}
			}()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"iptables", "ip6tables"} {
		_ = node.Sysctl("net/bridge/bridge-nf-call-"+name, "0") // not every kernel has it
	}
	d := newHypervisor(t, node, "127.0.0.1:7070")
	d.start()
	d.withDemo(t)
	vm := hvAs[hypervisorapi.VM](t, d.ok("POST", "/v1/vms", map[string]any{
		"name": "one", "image": "demo", "memory_mib": 192, "network": map[string]any{"mode": "bridge"},
	}))
	type object = map[string]any
	put := func(port int) hypervisorapi.NetworkPolicyState {
		t.Helper()
		return hvAs[hypervisorapi.NetworkPolicyState](t, d.ok("PUT", "/v1/vms/"+vm.Id+"/network-policy", object{"policy": object{
			"ingress": object{"default": "deny", "rules": []object{}},
			"egress": object{"default": "deny", "rules": []object{{
				"name": "web", "action": "allow", "peers": []object{{"cidr": "192.0.2.0/24"}},
				"ports": []object{{"protocol": "tcp", "port": port}},
			}}},
		}}))
	}
	if p := put(80); p.Mode != hypervisorapi.NetworkPolicyStateModeEnforced || p.Attached {
		t.Errorf("before the start: %+v", p)
	}
	d.ok("POST", "/v1/vms/"+vm.Id+"/start", nil)
	d.connected(vm.Id)
	reaches := func(port string) bool {
		_, code := d.sh(vm.Id, "nc -w 3 192.0.2.9 "+port+" </dev/null")
		return code == 0
	}
	check := func(when, open, closed string) {
		t.Helper()
		eventually(t, when+": the guest reaches port "+open, func() bool { return reaches(open) })
		if reaches(closed) {
			t.Errorf("%s: the guest reaches port %s", when, closed)
		}
	}
	check("from the start", "80", "443")
	if text, code := d.sh(vm.Id, "ping -c 1 -w 2 10.87.0.1"); code == 0 {
		t.Errorf("a ping passes: %s", text)
	}
	eventually(t, "both decisions are recorded", func() bool {
		text := string(d.ok("GET", "/v1/vms/"+vm.Id+"/flows", nil))
		return strings.Contains(text, `"rule":"web"`) && strings.Contains(text, `"verdict":"denied"`)
	})
	put(443)
	check("after a change", "443", "80")
	d.process.kill()
	d.start()
	d.connected(vm.Id)
	check("after kill -9 of the daemon", "443", "80")
	p := hvAs[hypervisorapi.NetworkPolicyState](t, d.ok("GET", "/v1/vms/"+vm.Id+"/network-policy", nil))
	if !p.Attached || p.Revision != 2 || p.Since == nil || len(p.Counters) != 1 || p.Counters[0].Packets == 0 ||
		p.Defaults.Egress.Denied.Packets == 0 {
		t.Errorf("%+v", p)
	}
	d.ok("DELETE", "/v1/vms/"+vm.Id+"/network-policy", nil)
	eventually(t, "without a policy all passes", func() bool { return reaches("80") && reaches("443") })
	d.ok("DELETE", "/v1/vms/"+vm.Id, nil)
}
