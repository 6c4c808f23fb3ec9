//go:build linux

package e2e

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Missing(t, "network namespaces take root")
	}
}

func TestGuestsGetAddressesReachEachOtherAndOutsideAndCannotPretendToBeAnother(t *testing.T) {
	t.Parallel()
	needRoot(t)
	lab := netlab.New()
	t.Cleanup(func() { _ = lab.Close() })
	node, outside := newLabHost(t, lab, "node"), newLabHost(t, lab, "outside")
	if err := netlab.Join(node, "up0", outside, "in0"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []struct {
		host            *netlab.Host
		device, address string
	}{{node, "up0", "192.0.2.1/24"}, {outside, "in0", "192.0.2.9/24"}} {
		if err := h.host.Address(h.device, netip.MustParsePrefix(h.address)); err != nil {
			t.Fatal(err)
		}
	}
	if err := node.Route(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("192.0.2.9")); err != nil {
		t.Fatal(err)
	}
	d := newHypervisor(t, node, "127.0.0.1:7070")
	d.start()
	d.withDemo(t)
	var vms []hypervisorapi.VM
	for _, spec := range []map[string]any{
		{"name": "one", "network": map[string]any{"mode": "bridge"}},
		{"name": "two", "network": map[string]any{"mode": "bridge", "ip": "10.87.5.5"}},
	} {
		spec["image"], spec["memory_mib"], spec["start"] = "demo", 192, true
		vms = append(vms, hvAs[hypervisorapi.VM](t, d.ok("POST", "/v1/vms", spec)))
	}
	for i := range vms {
		d.connected(vms[i].Id)
		vms[i] = hvAs[hypervisorapi.VM](t, d.ok("GET", "/v1/vms/"+vms[i].Id, nil))
		if len(vms[i].Ips) != 1 {
			t.Fatalf("the daemon knows no address: %+v", vms[i])
		}
		eventually(t, "the guest has its lease", func() bool {
			text, _ := d.sh(vms[i].Id, "ip -4 addr show dev eth0; cat /sys/class/net/eth0/address")
			return strings.Contains(text, vms[i].Ips[0]+"/16") && strings.Contains(text, vms[i].Mac)
		})
	}
	if vms[1].Ips[0] != "10.87.5.5" {
		t.Errorf("the wish for 10.87.5.5 became %v", vms[1].Ips)
	}
	ping := func(from hypervisorapi.VM, to string) bool {
		_, code := d.sh(from.Id, "ping -c 1 -w 5 "+to)
		return code == 0
	}
	// A new port of the bridge forwards after a moment.
	eventually(
		t, "the guests reach each other",
		func() bool { return ping(vms[0], vms[1].Ips[0]) && ping(vms[1], vms[0].Ips[0]) },
	)
	eventually(t, "a guest reaches outside", func() bool { return ping(vms[0], "192.0.2.9") })
	metrics := hvAs[hypervisorapi.VMMetrics](t, d.ok("GET", "/v1/vms/"+vms[0].Id+"/metrics", nil))
	if metrics.CpuSeconds == 0 {
		t.Errorf("%+v", metrics)
	}
	// With another's address, nobody answers; with its own again, they do.
	own := vms[0].Ips[0]
	if text, code := d.sh(
		vms[0].Id, "ip addr flush dev eth0; ip addr add 10.87.77.7/16 dev eth0; ping -c 2 -w 4 "+vms[1].Ips[0],
	); code == 0 {
		t.Errorf("a guest with an address that is not its own is heard: %s", text)
	}
	if text, code := d.sh(
		vms[0].Id,
		"ip addr flush dev eth0; ip addr add "+own+"/16 dev eth0; ip link set eth0 down; ip link set eth0 address 52:54:00:99:99:99; ip link set eth0 up; ping -c 2 -w 4 "+vms[1].Ips[0],
	); code == 0 {
		t.Errorf("a guest with a MAC that is not its own is heard: %s", text)
	}
	d.sh(vms[0].Id, "ip link set eth0 down; ip link set eth0 address "+vms[0].Mac+"; ip link set eth0 up")
	eventually(t, "the guest is heard again", func() bool { return ping(vms[0], vms[1].Ips[0]) })
	// The address is the VM's for its life, through a stop and a restart of the daemon.
	d.ok("POST", "/v1/vms/"+vms[0].Id+"/stop", map[string]any{"force": true})
	d.process.kill()
	d.start()
	d.ok("POST", "/v1/vms/"+vms[0].Id+"/start", nil)
	if again := hvAs[hypervisorapi.VM](t, d.ok("GET", "/v1/vms/"+vms[0].Id, nil)); len(again.Ips) != 1 ||
		again.Ips[0] != own {
		t.Errorf("%v, was %s", again.Ips, own)
	}
	eventually(
		t, "the one that went on is still reached",
		func() bool { d.connected(vms[0].Id); return ping(vms[0], vms[1].Ips[0]) },
	)
	// A daemon that is killed before it has noted a VM's device finds it all the same.
	pid := *hvAs[hypervisorapi.VM](t, d.ok("GET", "/v1/vms/"+vms[0].Id, nil)).Pid
	d.process.kill()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	forgetTap(t, d.data, vms[0].Id)
	d.start()
	if vm := hvAs[hypervisorapi.VM](
		t, d.ok("GET", "/v1/vms/"+vms[0].Id, nil),
	); vm.State != hypervisorapi.StateStopped ||
		taps(t, node, d.data) != 1 {
		t.Errorf("the VM is %s, and there are %d taps for the one that runs", vm.State, taps(t, node, d.data))
	}
	for _, vm := range vms {
		d.ok("DELETE", "/v1/vms/"+vm.Id, nil)
	}
	if n := taps(t, node, d.data); n != 0 {
		t.Errorf("%d taps are left", n)
	}
}

// forgetTap makes a VM's row as it is before the VM has come up.
func forgetTap(t testing.TB, data, vm string) {
	t.Helper()
	state, err := db.Open(t.Context(), db.Config{Path: filepath.Join(data, "state", "hypervisor.db")})
	if err != nil {
		t.Fatal(err)
	}
	err = state.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE vms SET tap = '' WHERE id = ?", vm)
		return err
	})
	if err = errors.Join(err, state.Close()); err != nil {
		t.Fatal(err)
	}
}

// newLabHost is a host of a lab whose loopback is up.
func newLabHost(t testing.TB, lab *netlab.Lab, name string) *netlab.Host {
	t.Helper()
	h, err := lab.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Up("lo"); err != nil {
		t.Fatal(err)
	}
	return h
}

// taps counts the devices of a daemon's VMs on a host, on which other daemons may have theirs.
func taps(t testing.TB, h *netlab.Host, data string) (n int) {
	t.Helper()
	links, err := h.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, network.TapPrefix(data)) {
			n++
		}
	}
	return n
}
