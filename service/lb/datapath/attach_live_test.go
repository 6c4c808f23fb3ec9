//go:build linux

package datapath_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/datapath/decap"
)

// converse proves that both protocols of both families work, small and large.
func (n *network) converse(d *datapath.Datapath, mode datapath.Mode, change ...func(*datapath.VIP)) {
	n.t.Helper()
	var vips []datapath.VIP
	for _, six := range []bool{false, true} {
		for _, p := range []datapath.Protocol{datapath.TCP, datapath.UDP} {
			v := n.vip(p, mode, 80, six, six)
			for _, c := range change {
				c(&v)
			}
			vips = append(vips, v)
		}
	}
	n.must(d.Apply(vips))
	for _, six := range []bool{false, true} {
		for range 5 {
			c, err := n.dial(datapath.TCP, vipAt(six, 80))
			n.must(err)
			_, err = ask(c, 300_000, 300_000)
			n.must(err)
			n.must(c.Close())
		}
		u, err := n.dial(datapath.UDP, vipAt(six, 80))
		n.must(err)
		for _, size := range []int{10, 1400, 4000} { // the last in fragments
			if _, err = askUDP(u, size); err != nil {
				c, _ := d.Counters()
				n.t.Fatalf("UDP of %d bytes: %v; drops %v", size, err, c.Drops)
			}
		}
	}
}

func TestNativeModeWorksOnAVeth(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR, datapath.DSRGRE} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			n.nativePeers()
			n.routeBack()
			if mode.Tunnels() {
				n.decapsulate()
			}
			n.listen(datapath.TCP, 80)
			n.listen(datapath.UDP, 80)
			d := n.open(func(o *datapath.Options) { o.Mode = datapath.Auto })
			if d.AttachedMode() != datapath.Native {
				t.Fatalf("attached as %s", d.AttachedMode())
			}
			n.converse(d, mode)
		})
	}
}

func TestNativeModeSendsBackWithXDPTXWhereThePeerTakesIt(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.nativePeers()
	n.listen(datapath.TCP, 80)
	n.listen(datapath.UDP, 80)
	var detach func() error
	n.must(n.sw.Do(func() (err error) { detach, err = decap.AttachPass("p-node"); return err }))
	t.Cleanup(func() { n.must(detach()) })
	d := n.open(func(o *datapath.Options) { o.Mode, o.Transmit = datapath.Native, datapath.TransmitBack })
	n.converse(d, datapath.DSR)
}

func TestAutoFallsBackToGenericWhereTheDriverCannot(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	// A bridge has no native XDP.
	n.must(n.node.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br9"}}))
	d := n.open(func(o *datapath.Options) { o.Mode, o.Interface = datapath.Auto, "br9" })
	if d.AttachedMode() != datapath.Generic {
		t.Errorf("attached as %s", d.AttachedMode())
	}
	n.must(d.Close())
	n.must(n.node.Do(func() error { _, err := datapath.Detach(n.dir, "br9"); return err }))
	err := n.node.Do(func() error {
		_, err := datapath.Open(
			t.Context(), datapath.Options{Mode: datapath.Native, Interface: "br9", Dir: n.dir, Log: n.log},
		)
		return err
	})
	if err == nil {
		t.Error("native mode on a bridge was said to work")
	}
	n.must(n.node.Do(func() error { _, err := datapath.Detach(n.dir, "br9"); return err }))
}

func TestANewSourceBringsRepliesBackWhateverTheRoutesAre(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2) // backends reply to the client directly
	n.listen(datapath.TCP, 80)
	n.listen(datapath.UDP, 80)
	n.converse(n.open(), datapath.NAT, func(v *datapath.VIP) { v.SNAT = true })
}

func TestChecksumsAreRightWithOffloadsOn(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			n.routeBack()
			for _, h := range append([]*netlab.Host{n.client, n.node}, n.backends[0].Host, n.backends[1].Host) {
				n.must(h.TX(device, true))
			}
			n.listen(datapath.TCP, 80)
			n.listen(datapath.UDP, 80)
			n.converse(n.open(), mode)
		})
	}
}

func TestPacketsTooBigForATunnelsPathShrink(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.routeBack()
	n.listen(datapath.TCP, 80)
	n.decapsulate()
	d := n.open()
	for _, six := range []bool{false, true} {
		v := n.vip(datapath.TCP, datapath.DSRIPIP, 80, six, six)
		v.Backends[0].Hop.MTU = 1400
		n.must(d.Apply([]datapath.VIP{v}))
		c, err := n.dial(datapath.TCP, vipAt(six, 80))
		n.must(err)
		_, err = ask(c, 1<<20, 1<<20)
		n.must(err)
	}
	counters, err := d.Counters()
	n.must(err)
	if counters.Drops["too_big"] == 0 {
		t.Error("nothing was too big")
	}
}

func TestDetachLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	d := n.open()
	n.must(d.Apply([]datapath.VIP{n.vip(datapath.TCP, datapath.DSR, 80, false, false)}))
	_, _ = d.DialProbe(t.Context(), datapath.VIPKey{}, datapath.BackendKey{}, 1) // makes the namespace of checks
	n.must(d.Close())
	if !n.attached() {
		t.Fatal("the program went with the process")
	}
	folder := n.pins()
	var had bool
	n.must(n.node.Do(func() (err error) { had, err = datapath.Detach(n.dir, device); return err }))
	if !had || n.attached() {
		t.Errorf("detached %v, attached %v", had, n.attached())
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", folder, err)
	}
	links, err := n.node.Netlink().LinkList()
	n.must(err)
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "lbprobe") {
			t.Errorf("device %s is left", l.Attrs().Name)
		}
	}
	n.must(n.node.Do(func() (err error) { had, err = datapath.Detach(n.dir, device); return err }))
	if had {
		t.Error("there was something to detach again")
	}
}

func (n *network) attached() bool {
	n.t.Helper()
	l, err := n.node.Netlink().LinkByName(device)
	n.must(err)
	return l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
}

// pins is the folder of the node's pinned maps.
func (n *network) pins() string {
	n.t.Helper()
	var ns string
	n.must(n.node.Do(func() (err error) { ns, err = os.Readlink("/proc/thread-self/ns/net"); return err }))
	return filepath.Join(n.dir, "mainstay-lb", device+"@"+strings.Trim(strings.TrimPrefix(ns, "net:"), "[]"))
}

func TestARestartKeepsConnectionsInMidTransfer(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 3)
			n.routeBack()
			n.listen(datapath.TCP, 80)
			d := n.open()
			v := n.vip(datapath.TCP, mode, 80, false, false)
			n.must(d.Apply([]datapath.VIP{v}))
			type connection struct {
				net.Conn
				name string
			}
			var all []connection
			for range 10 {
				c, err := n.dial(datapath.TCP, vipAt(false, 80))
				n.must(err)
				name, err := ask(c, 10, 10)
				n.must(err)
				all = append(all, connection{c, name})
			}
			transfers := make(chan error, len(all))
			for _, c := range all {
				go func() {
					name, err := ask(c, 4<<20, 4<<20)
					if err == nil && name != c.name {
						err = fmt.Errorf("went from %s to %s", c.name, name)
					}
					transfers <- err
				}()
			}
			for range 5 {
				n.must(d.Close())
				d = n.open()
				if got := d.States()[v.VIPKey]; len(got) != 3 || got[v.Backends[0].BackendKey] != datapath.Healthy {
					t.Errorf("found %v", d.States())
				}
				n.must(d.Apply([]datapath.VIP{v}))
			}
			for range all {
				n.must(<-transfers)
			}
			counters, err := d.Counters()
			n.must(err)
			if vc := counters.VIPs[v.VIPKey]; vc.Flows != 10 {
				t.Errorf("counters did not outlive the restarts: %+v", vc)
			}
		})
	}
}

func TestANewProcessBalancesBeforeItAppliesAnything(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.routeBack()
	n.listen(datapath.TCP, 80)
	d := n.open()
	exact, ranged := n.vip(datapath.TCP, datapath.NAT, 80, false, false), n.vip(
		datapath.TCP, datapath.DSR, 80, true, true,
	)
	ranged.Port, ranged.LastPort = 79, 80
	ranged.Backends[0].Port = 0
	n.must(d.Apply([]datapath.VIP{exact, ranged}))
	for _, six := range []bool{false, true} {
		c, err := n.dial(datapath.TCP, vipAt(six, 80))
		n.must(err)
		_, err = ask(c, 10, 10)
		n.must(err)
		n.must(d.Close())
		d = n.open()
		_, err = ask(c, 100_000, 100_000)
		n.must(err)
	}
}

func TestAnInterfaceHasOneBalancingProcess(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	d := n.open()
	err := n.node.Do(func() error {
		_, err := datapath.Open(
			t.Context(),
			datapath.Options{Interface: device, Mode: datapath.Generic, Dir: n.dir, Log: slog.New(slog.DiscardHandler)},
		)
		return err
	})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second one: %v", err)
	}
	err = n.node.Do(func() error { _, err := datapath.Detach(n.dir, device); return err })
	if !fault.Is(err, fault.Unavailable) || !n.attached() {
		t.Errorf("detached meanwhile: %v", err)
	}
	n.must(d.Close())
	n.open()
}

func TestTheProgramFollowsTheInterface(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.listen(datapath.TCP, 80)
	d := n.open()
	n.must(d.Apply([]datapath.VIP{n.vip(datapath.TCP, datapath.NAT, 80, false, false)}))
	n.must(d.Follow())
	mac := d.Mac()
	mac[5]++
	l, err := n.node.Netlink().LinkByName(device)
	n.must(err)
	n.must(n.node.Netlink().LinkSetHardwareAddr(l, mac[:]))
	n.must(d.Follow())
	if d.Mac() != mac {
		t.Errorf("frames are expected for %s", d.Mac())
	}
	n.must(n.node.Netlink().LinkDel(l))
	if err := d.Follow(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without an interface: %v", err)
	}
	other, err := netlab.NewHost("other")
	n.must(err)
	t.Cleanup(func() { n.must(other.Close()) })
	n.must(netlab.Join(n.node, device, other, device))
	for range 2 {
		n.must(d.Follow())
		if !n.attached() {
			t.Error("not attached")
		}
	}
}

func TestAnInterfaceOfClientsThatIsDownIsAnErrorUntilItIsUp(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	d := n.open()
	for _, c := range []struct {
		host   *netlab.Host
		device string
		why    string
	}{
		{n.node, device, "interface eth0 is down"},
		{n.sw, "p-node", "interface eth0 has no carrier"},
	} {
		n.must(d.Follow())
		n.must(c.host.Down(c.device))
		if err := d.Follow(); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %s", err, c.why)
		}
		n.must(c.host.Up(c.device))
	}
	n.must(d.Follow())
}

func TestAnInterfaceOfBackendsThatIsDownIsNoError(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.must(netlab.Join(n.node, "eth1", n.client, "eth1"))
	d := n.open(func(o *datapath.Options) { o.More = []string{"eth1"} })
	n.must(n.node.Down("eth1"))
	n.must(d.Follow()) // its backends are down, those on others are not
}

func TestAMapOfAnotherSizeIsMadeAnewAndTrafficGoesOn(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.listen(datapath.TCP, 80)
	d := n.open()
	v := n.vip(datapath.TCP, datapath.DSR, 80, false, false)
	n.must(d.Apply([]datapath.VIP{v}))
	c, err := n.dial(datapath.TCP, vipAt(false, 80))
	n.must(err)
	_, err = ask(c, 10, 10)
	n.must(err)
	n.must(d.Close())
	d = n.open(func(o *datapath.Options) { o.Flows = 4096 })
	n.must(d.Apply([]datapath.VIP{v}))
	_, err = ask(c, 100_000, 10) // one backend: the hash leads to it too
	n.must(err)
}

func TestAnInterfaceThatWasMadeAnewIsAttachedAgain(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	d := n.open()
	n.must(d.Close())
	l, err := n.node.Netlink().LinkByName(device)
	n.must(err)
	n.must(n.node.Netlink().LinkDel(l))
	other, err := netlab.NewHost("other")
	n.must(err)
	t.Cleanup(func() { n.must(other.Close()) })
	n.must(netlab.Join(n.node, device, other, device))
	n.open()
	if !n.attached() {
		t.Error("not attached")
	}
}

func TestAnotherProgramOnTheInterfaceIsNotReplaced(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	var detach func() error
	n.must(n.node.Do(func() (err error) { detach, err = decap.Attach(device); return err }))
	t.Cleanup(func() { n.must(detach()) })
	err := n.node.Do(func() error {
		_, err := datapath.Open(
			t.Context(), datapath.Options{Mode: datapath.Generic, Interface: device, Dir: n.dir, Log: n.log},
		)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "another XDP program") {
		t.Error(err)
	}
	n.must(n.node.Do(func() error { _, err := datapath.Detach(n.dir, device); return err }))
}

func TestAThousandConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 3)
	n.routeBack()
	n.listen(datapath.TCP, 80)
	d := n.open()
	n.must(d.Apply([]datapath.VIP{n.vip(datapath.TCP, datapath.NAT, 80, false, false)}))
	const connections = 1000
	var all []net.Conn
	for range connections {
		c, err := n.dial(datapath.TCP, vipAt(false, 80))
		n.must(err)
		all = append(all, c)
	}
	done := make(chan error, connections)
	for _, c := range all {
		go func() { _, err := ask(c, 5000, 5000); done <- err }()
	}
	for range all {
		n.must(<-done)
	}
}

func TestPacketsOfAConnectionFromSeveralCPUsReachOneBackend(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 3)
	n.listen(datapath.TCP, 80)
	d := n.open()
	v := n.vip(datapath.TCP, datapath.DSR, 80, false, false)
	n.must(d.Apply([]datapath.VIP{v}))
	for range 10 {
		c, err := n.dial(datapath.TCP, vipAt(false, 80))
		n.must(err)
		home := ""
		// The hash table changes after the first packet: only the flow table, which all
		// CPUs share, keeps the connection where it is.
		for i := range 20 {
			var name, sum string
			n.must(onCPU(i, func() error { _, err := c.Write([]byte("0 0\n")); return err }))
			_, err := fmt.Fscanf(c, "%s %s\n", &name, &sum)
			n.must(err)
			if home == "" {
				home = name
				for j := range v.Backends {
					if n.backends[j].Name == home {
						v.Backends[j].State = datapath.Draining
					}
				}
				n.must(d.Apply([]datapath.VIP{v}))
			}
			if name != home {
				t.Fatalf("went from %s to %s", home, name)
			}
		}
		for j := range v.Backends {
			v.Backends[j].State = datapath.Healthy
		}
		n.must(d.Apply([]datapath.VIP{v}))
	}
}
