package lb

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// settled runs test in a bubble of its own with a controller that has settled.
func settled(t *testing.T, text string, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t).start(text)
		synctest.Wait()
		test(b)
	})
}

func (b *bench) want(states ...string) {
	b.Helper()
	synctest.Wait()
	if got := b.states(); !slices.Equal(got, states) {
		b.Errorf("the kernel has\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(states, "\n  "))
	}
}

const oneVIP = "interface: eth0\nvips: [{address: 192.0.2.1, port: 80, backends: [{address: 10.0.0.1}, {address: 10.0.0.2}]}]"

func TestANewBackendIsDownUntilItsFirstProbe(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 down", "192.0.2.1:80:tcp 10.0.0.2:80 down")
		b.found("192.0.2.1:80:tcp", "10.0.0.2:80", true)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 down", "192.0.2.1:80:tcp 10.0.0.2:80 healthy")
		if got := b.routes(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
			t.Errorf("announced %v", got)
		}
		b.found("192.0.2.1:80:tcp", "10.0.0.2:80", false)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 down", "192.0.2.1:80:tcp 10.0.0.2:80 down")
		if len(b.routes()) != 0 {
			t.Errorf("announced %v", b.routes())
		}
	})
}

func TestAnOperatorsAndAnOrchestratorsDrainsAreApart(t *testing.T) {
	t.Parallel()
	settled(
		t,
		"interface: eth0\nvips: [{address: 192.0.2.1, port: 80, healthCheck: {type: none}, backends: [{address: 10.0.0.1}]}]",
		func(b *bench) {
			const row = "192.0.2.1:80:tcp 10.0.0.1:80 "
			key := datapath.BackendKey{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}
			b.want(row + "healthy")
			if err := b.drain(b.Context(), 1, true); err != nil {
				t.Fatal(err)
			}
			b.want(row + "draining")
			b.setOrchestratorDrains("k8s", []datapath.BackendKey{key})
			if err := b.drain(b.Context(), 1, false); err != nil {
				t.Fatal(err)
			}
			b.want(row + "draining")
			b.setOrchestratorDrains("other", []datapath.BackendKey{{Address: key.Address}})
			b.setOrchestratorDrains("k8s", nil)
			b.want(row + "draining")
			b.setOrchestratorDrains("other", nil)
			b.want(row + "healthy")
			if len(b.routes()) != 1 {
				t.Errorf("announced %v", b.routes())
			}
		},
	)
}

func TestADrainIsInTheKernelWhenItIsAnswered(t *testing.T) {
	t.Parallel()
	settled(
		t,
		"interface: eth0\nvips: [{address: 192.0.2.1, port: 80, healthCheck: {type: none}, backends: [{address: 10.0.0.1}]}]",
		func(b *bench) {
			if err := b.drain(b.Context(), 1, true); err != nil {
				t.Fatal(err)
			}
			if got := b.states(); !slices.Equal(got, []string{"192.0.2.1:80:tcp 10.0.0.1:80 draining"}) {
				t.Errorf("%v", got)
			}
			b.plane.set(func() { b.plane.applyErr = errors.New("no room") })
			if err := b.drain(b.Context(), 1, false); !fault.Is(err, fault.Unavailable) ||
				!strings.Contains(err.Error(), "no room") {
				t.Errorf("%v", err)
			}
			if reason := b.notReady(); !strings.Contains(reason, "could not be applied: no room") {
				t.Error(reason)
			}
			if n := testutil.ToFloat64(b.metrics.applyErrors); n < 1 {
				t.Errorf("%v errors counted", n)
			}
			b.plane.set(func() { b.plane.applyErr = nil })
			time.Sleep(retryEvery) // in a bubble: it costs nothing
			b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy")
			if reason := b.notReady(); reason != "" {
				t.Error(reason)
			}
		},
	)
}

func TestNothingIsAppliedWhenNothingChanged(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		for range 3 {
			b.plane.set(func() {})
			time.Sleep(retryEvery)
		}
		b.load(oneVIP)
		synctest.Wait()
		if _, applies := b.kernel(); applies != 1 {
			t.Errorf("applied %d times", applies)
		}
	})
}

func TestWeightsAreOverriddenPerVIP(t *testing.T) {
	t.Parallel()
	settled(t, twoVIPs, func(b *bench) {
		weights := func() (out []uint16) {
			vips, _ := b.kernel()
			for _, v := range vips[:2] {
				out = append(out, v.Backends[0].Weight) // backend 1 in both
			}
			return out
		}
		for _, step := range []struct {
			weight uint16
			vip    string
			want   []uint16
		}{{7, "", []uint16{7, 7}}, {9, "192.0.2.1:81:tcp", []uint16{7, 9}}, {0, "192.0.2.1:80:tcp", []uint16{5, 9}}, {0, "", []uint16{5, 1}}} {
			if err := b.setWeight(b.Context(), 1, step.weight, step.vip); err != nil {
				t.Fatal(err)
			}
			if got := weights(); !slices.Equal(got, step.want) {
				t.Errorf("%+v: %v", step, got)
			}
		}
		for vip, code := range map[string]string{"192.0.2.2:53:udp": "vip_not_found", "192.0.2.9:1:tcp": "vip_not_found", "nonsense": "invalid"} {
			if err := b.setWeight(b.Context(), 1, 3, vip); err == nil || fault.From(err).PublicCode() != code {
				t.Errorf("%s: %v", vip, err)
			}
		}
		if err := b.setWeight(b.Context(), 99, 3, ""); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
	})
}

func TestAReloadKeepsWhatIsKnownOfBackendsThatStay(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", true)
		b.found("192.0.2.1:80:tcp", "10.0.0.2:80", true)
		for _, id := range []int{1, 2} {
			if err := b.drain(b.Context(), id, true); err != nil {
				t.Fatal(err)
			}
		}
		b.load(
			"interface: eth0\nvips: [{address: 192.0.2.1, port: 80, healthCheck: {interval: 9s}, backends: [{address: 10.0.0.2}, {address: 10.0.0.3}]}]",
		)
		b.want("192.0.2.1:80:tcp 10.0.0.2:80 draining", "192.0.2.1:80:tcp 10.0.0.3:80 down")
		if b.in.drained[1] || len(b.in.drained) != 1 {
			t.Errorf("drains %v", b.in.drained)
		}
		for id, check := range b.prober.known() {
			if known := check.Initial != nil; known != (id.Backend.Address == netip.MustParseAddr("10.0.0.2")) {
				t.Errorf("%v begins with %v", id, check.Initial)
			}
		}
		// The one that went and comes back is new: down, not drained, with another id.
		b.load(oneVIP)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 down", "192.0.2.1:80:tcp 10.0.0.2:80 draining")
		if id := b.in.ids[datapath.BackendKey{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}]; id != 4 {
			t.Errorf("id %d", id)
		}
	})
}

func TestABackendThatWasNotCheckedStaysHealthyUntilItIs(t *testing.T) {
	t.Parallel()
	settled(t, strings.Replace(oneVIP, "port: 80,", "port: 80, healthCheck: {type: none},", 1), func(b *bench) {
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy", "192.0.2.1:80:tcp 10.0.0.2:80 healthy")
		b.load(oneVIP)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy", "192.0.2.1:80:tcp 10.0.0.2:80 healthy")
		for id, check := range b.prober.known() {
			if check.Initial == nil || !*check.Initial {
				t.Errorf("%v begins with %v", id, check.Initial)
			}
		}
	})
}

func TestWhatNeedsARestartIsRefused(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		for change, want := range map[string]string{
			"interface: eth1": "interface: is eth0 now and would be eth1; this takes a restart", "xdpMode: native": "xdpMode: is generic now", "apiListen: ':1'": "apiListen: is 127.0.0.1:9870 now",
			"tunnelSource: 10.0.0.9": "tunnelSource: is not given now and would be 10.0.0.9", "tunnelSource6: fd00::9": "tunnelSource6: is not given now",
		} {
			text := change + "\nvips: []"
			if !strings.HasPrefix(change, "interface") {
				text = "interface: eth0\n" + text
			}
			if err := b.adopt(parsed(t, text), false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", change, err)
			}
		}
		if err := b.adopt(parsed(t, "interface: eth0\napiListen: ':1'"), true); err != nil {
			t.Errorf("an address that a setting overrides: %v", err)
		}
	})
	settled(t, "interface: eth0", func(b *bench) {
		if len(b.opened) != 0 || b.notReady() != "" {
			t.Errorf("a node without VIPs attached: %v, %q", b.opened, b.notReady())
		}
		b.load(strings.Replace(oneVIP, "eth0", "eth1", 1)) // nothing is attached yet
		synctest.Wait()
		if len(b.opened) != 1 || b.opened[0].Interfaces[0] != "eth1" {
			t.Errorf("%v", b.opened)
		}
	})
}

func TestAMachineThatCannotBalanceIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.plane.openErr = errors.New("operation not permitted")
		b.start(oneVIP)
		synctest.Wait()
		if b.notReady() != "operation not permitted" || len(b.prober.known()) != 2 {
			t.Errorf("%q", b.notReady())
		}
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", true)
		if err := b.drain(b.Context(), 2, true); err != nil {
			t.Errorf("a drain is taken all the same: %v", err)
		}
		if _, err := b.explain(datapath.Flow{}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
		if len(b.routes()) != 0 {
			t.Errorf("announced %v", b.routes())
		}
		b.plane.set(func() { b.plane.openErr = nil })
		time.Sleep(retryEvery)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy", "192.0.2.1:80:tcp 10.0.0.2:80 down")
		if b.notReady() != "" || len(b.routes()) != 1 {
			t.Errorf("%q, announced %v", b.notReady(), b.routes())
		}
		b.plane.set(func() { b.plane.countersErr = errors.New("bad map") })
		if reason := b.notReady(); reason != "the kernel's maps cannot be read: bad map" {
			t.Error(reason)
		}
	})
}

func TestBalancingGoesOnAfterAPanic(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", true)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy", "192.0.2.1:80:tcp 10.0.0.2:80 down")
		b.plane.set(func() { b.plane.applyErr = errBreaks })
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", false)
		synctest.Wait() // it has panicked, and the kernel has what it had
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy", "192.0.2.1:80:tcp 10.0.0.2:80 down")
		b.plane.set(func() { b.plane.applyErr = nil })
		time.Sleep(retryEvery)
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 down", "192.0.2.1:80:tcp 10.0.0.2:80 down")
	})
}

func TestAnInterfaceThatIsGoneIsToldAndNotAnnounced(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", true)
		for _, gone := range []error{errors.New("there is no interface eth0"), nil} {
			b.plane.set(func() { b.plane.followErr = gone })
			b.plane.links <- struct{}{} // the kernel tells at once: no time passes
			synctest.Wait()
			if (b.notReady() == "") != (gone == nil) || (len(b.routes()) == 1) != (gone == nil) {
				t.Errorf("%v: %q, announced %v", gone, b.notReady(), b.routes())
			}
		}
	})
}

func TestAnInterfaceThatIsDownFromTheBeginningIsNeverAnnounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.plane.followErr = errors.New("interface eth0 has no carrier")
		b.start(oneVIP)
		synctest.Wait()
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", true)
		synctest.Wait()
		if b.notReady() != "interface eth0 has no carrier" || len(b.routes()) != 0 {
			t.Errorf("%q, announced %v", b.notReady(), b.routes())
		}
	})
}

func TestARestartGoesOnWithWhatTheKernelKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		vip := datapath.VIPKey{
			Address:  netip.MustParseAddr("192.0.2.1"),
			Port:     80,
			LastPort: 80,
			Protocol: datapath.TCP,
		}
		one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		b.plane.states = map[datapath.VIPKey]map[datapath.BackendKey]datapath.State{vip: {
			{Address: one, Port: 80}: datapath.Draining,
			{Address: two, Port: 80}: datapath.Down,
			{Address: two, Port: 9}:  datapath.Healthy,
		}}
		b.plane.hops = map[netip.Addr]datapath.NextHop{}
		b.start(oneVIP)
		synctest.Wait()
		if _, applies := b.kernel(); applies != 0 {
			t.Fatal("applied before the way to a backend with flows is known")
		}
		known := datapath.NextHop{Interface: 1, Destination: datapath.MAC{2}}
		b.plane.set(func() { b.plane.hops[one] = known })
		// The drain was in memory and is gone.
		b.want("192.0.2.1:80:tcp 10.0.0.1:80 healthy", "192.0.2.1:80:tcp 10.0.0.2:80 down")
		for id, check := range b.prober.known() {
			if check.Initial == nil || *check.Initial != (id.Backend.Address == one) {
				t.Errorf("%v begins with %v", id, check.Initial)
			}
		}
		b.plane.set(func() { b.plane.hops[two] = known })
		synctest.Wait()
		if vips, _ := b.kernel(); vips[0].Backends[1].Hop != known {
			t.Errorf("a way found later is not applied: %+v", vips)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a backend that cannot be found holds nothing up for long
		b := newBench(t)
		b.plane.states = map[datapath.VIPKey]map[datapath.BackendKey]datapath.State{
			{Address: netip.MustParseAddr("192.0.2.1"), Port: 80, LastPort: 80, Protocol: datapath.TCP}: {
				{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}: datapath.Healthy,
			},
		}
		b.plane.hops = map[netip.Addr]datapath.NextHop{}
		b.start(oneVIP)
		time.Sleep(takeoverWait)
		synctest.Wait()
		if _, applies := b.kernel(); applies != 1 {
			t.Errorf("applied %d times", applies)
		}
	})
}

func TestRoutersAreToldOfARestartOnlyIfTheKernelWentOnBalancing(t *testing.T) {
	t.Parallel()
	const document = oneVIP + "\nbgp: {localASN: 1, routerID: 10.0.0.1, peers: [{address: 10.0.0.9, asn: 2}]}\n"
	for _, balancing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			if balancing {
				vip := datapath.VIPKey{
					Address:  netip.MustParseAddr("192.0.2.1"),
					Port:     80,
					LastPort: 80,
					Protocol: datapath.TCP,
				}
				b.plane.states = map[datapath.VIPKey]map[datapath.BackendKey]datapath.State{
					vip: {{Address: netip.MustParseAddr("10.0.0.1"), Port: 80}: datapath.Healthy},
				}
			}
			b.start(document)
			synctest.Wait()
			told := func() bgp.Config {
				b.speaker.mu.Lock()
				defer b.speaker.mu.Unlock()
				return *b.speaker.cfg
			}
			if got := told(); got.Restarting != balancing || got.GracefulRestart != 30*time.Second {
				t.Errorf("with a kernel that balances (%v) the speaker was told %+v", balancing, got)
			}
			if routes := b.routes(); (len(routes) == 1) != balancing {
				t.Errorf("announced when the sessions begin: %v", routes)
			}
			b.load(strings.Replace(document, "asn: 2", "asn: 3", 1))
			synctest.Wait()
			if told().Restarting {
				t.Error("a peer that is added later is told of a restart")
			}
		})
	}
}

func TestChecksInTheDSRModesGoThroughThePlane(t *testing.T) {
	t.Parallel()
	settled(
		t,
		"interface: eth0\nvips: [{address: 192.0.2.1, port: 80, mode: dsr, healthCheck: {port: 81}, backends: [{address: 10.0.0.1}]}]",
		func(b *bench) {
			for id, check := range b.prober.known() {
				if check.Direct || check.Address.String() != "192.0.2.1:81" {
					t.Errorf("%+v", check)
				}
				_, _ = b.dialProbe(b.Context(), id, check.Address) // it fails, and is noted
			}
			if !slices.Equal(b.plane.dialed, []string{"192.0.2.1:80:tcp 10.0.0.1:80 192.0.2.1:81"}) {
				t.Errorf("%v", b.plane.dialed)
			}
		},
	)
}

func TestTheEndWithdrawsAndLeavesTheKernelBalancing(t *testing.T) {
	t.Parallel()
	var b *bench
	synctest.Test(t, func(t *testing.T) {
		b = newBench(t).start(oneVIP)
		synctest.Wait()
		b.found("192.0.2.1:80:tcp", "10.0.0.1:80", true)
	})
	if !b.speaker.closed || !b.plane.closed || len(b.plane.applied) != 1 {
		t.Errorf("%+v %+v", b.speaker, b.plane.applied)
	}
}

func TestProbesOfRemovedBackendsChangeNothing(t *testing.T) {
	t.Parallel()
	settled(t, oneVIP, func(b *bench) {
		gone := probe.ID{Backend: datapath.BackendKey{Address: netip.MustParseAddr("10.0.0.9"), Port: 1}}
		b.healthChanged(gone, true, "late")
		if _, kept := b.in.health[gone]; kept {
			t.Error("it is remembered")
		}
	})
}

func TestAProbeWaitsForTheWayToItsBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.plane.openErr = errors.New("not yet")
		b.plane.dialErr = fault.New(fault.Unavailable, "no way to the backend")
		b.start("interface: eth0\nvips: [{address: 192.0.2.1, port: 80, mode: dsr, backends: [{address: 10.0.0.1}]}]")
		synctest.Wait()
		var id probe.ID
		for id = range b.prober.known() {
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.dialProbe(b.Context(), id, netip.MustParseAddrPort("192.0.2.1:80"))
			done <- err
		}()
		synctest.Wait()
		b.plane.set(func() { b.plane.openErr = nil })
		time.Sleep(retryEvery)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		b.plane.set(func() { b.plane.dialErr = errors.New("refused") })
		if err := <-done; err == nil || err.Error() != "refused" {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		b.plane.set(func() { b.plane.dialErr = fault.New(fault.Unavailable, "no way to the backend") })
		if _, err := b.dialProbe(ctx, id, netip.MustParseAddrPort("192.0.2.1:80")); err == nil ||
			!strings.Contains(err.Error(), "no way") {
			t.Errorf("%v", err)
		}
	})
}
