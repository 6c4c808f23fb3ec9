//go:build linux

package e2e

import (
	"math"
	"testing"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
)

// lbTwoVIPs is a balancer with two VIPs of TCP and one of UDP, one address of each IP
// family, which all backends serve.
func lbTwoVIPs(t *testing.T, backends int) (*lbNetwork, *lbDaemon) {
	t.Helper()
	n := newLBNetwork(t, backends, "nat")
	for _, b := range n.backends {
		b.listen(80)
		b.listenUDP(80)
	}
	return n, startLB(t, n.balancer, lbDocument([]lbVIP{
		{address: "10.99.9.9", port: 80, backends: n.backends},
		{address: "10.99.9.10", port: 80, backends: n.backends},
		{
			address:  "10.99.9.9",
			port:     80,
			protocol: "udp",
			check:    "{type: tcp, port: 80, interval: 100ms, timeout: 10s}",
			backends: n.backends,
		},
		{address: "fd99:9::9", port: 80, backends: n.backends},
	}))
}

func TestLoadBalancerLetsADrainedBackendFinishAndSparesItUntilUndrained(t *testing.T) {
	t.Parallel()
	n, d := lbTwoVIPs(t, 3)
	drained := n.backends[2]
	established := []*lbConn{
		n.connectTo(drained, "tcp", "10.99.9.9:80"), n.connectTo(drained, "tcp", "10.99.9.10:80"),
		n.connectTo(drained, "udp", "10.99.9.9:80"),
	}
	rows := *got[[]lbapi.BackendRow](d.api(lbAdminKey).DrainBackend(t.Context(), d.id(drained), lbapi.Nothing{})).is(t, 200)
	if len(rows) != 3 { // of its IPv4 address
		t.Errorf("the answer has %d rows: %+v", len(rows), rows)
	}
	for _, r := range rows {
		if r.State != lbapi.BackendStateDraining || !r.AdminDraining || !r.Healthy ||
			r.Address != drained.address.String() {
			t.Errorf("%+v", r)
		}
	}
	// It is in force with the answer.
	for _, vip := range []string{"10.99.9.9:80", "10.99.9.10:80"} {
		if homes := n.spread(vip, 60); homes[drained.name] != 0 {
			t.Errorf("%s: new connections are at %v", vip, homes)
		}
	}
	if homes := n.spread("[fd99:9::9]:80", 60); homes[drained.name] == 0 {
		t.Errorf("the drain is of another address, and connections over IPv6 are at %v", homes)
	}
	for range 20 {
		n.goesOn("while it is drained", established...)
	}
	if c := n.connect("udp", "10.99.9.9:80"); c.home == drained.name {
		t.Error("a new flow of UDP is at the drained backend")
	}

	ask(d.api(lbAdminKey).UndrainBackend(t.Context(), d.id(drained), lbapi.Nothing{})).is(t, 200)
	for _, vip := range []string{"10.99.9.9:80", "10.99.9.10:80"} {
		if homes := n.spread(vip, 100); homes[drained.name] == 0 {
			t.Errorf("%s: after the drain new connections are at %v", vip, homes)
		}
	}
	n.goesOn("after the drain", established...)
}

func TestLoadBalancerWithItsOnlyBackendDrainedServesWhatIsThereAndNothingNew(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 1, "nat")
	n.backends[0].listen(80)
	d := startLB(t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, backends: n.backends}}))
	const vip = "10.99.9.9:80"
	established := n.connect("tcp", vip)
	ask(d.api(lbAdminKey).DrainBackend(t.Context(), d.id(n.backends[0]), lbapi.Nothing{})).is(t, 200)
	before := d.vip(vip + ":tcp").DroppedNoBackend
	n.unserved(vip)
	if after := d.vip(vip + ":tcp").DroppedNoBackend; after == before {
		t.Errorf("droppedNoBackend is %d as before", after)
	}
	n.goesOn("while the only backend is drained", established)
	ask(d.api(lbAdminKey).UndrainBackend(t.Context(), d.id(n.backends[0]), lbapi.Nothing{})).is(t, 200)
	n.connect("tcp", vip)
	n.goesOn("after the drain", established)
}

func TestLoadBalancerDividesNewConnectionsByWeightAtTheVIPThatWasAskedFor(t *testing.T) {
	t.Parallel()
	n, d := lbTwoVIPs(t, 2)
	id, vip := d.id(n.backends[0]), "10.99.9.9:80:tcp"
	established := []*lbConn{
		n.connectTo(n.backends[0], "tcp", "10.99.9.9:80"),
		n.connectTo(n.backends[1], "tcp", "10.99.9.9:80"),
	}
	// A hash that is good divides as chance does. With 400 connections six standard
	// deviations, which chance exceeds once in 500 million runs, tell 3:1 from 1:1.
	const count = 400
	divided := func(vip string, share float64) {
		t.Helper()
		homes := n.spread(vip, count)
		slack := 6*math.Sqrt(count*share*(1-share)) + 0.01*count // of the hash table's shares
		if off := math.Abs(float64(homes["b1"]) - share*count); off > slack {
			t.Errorf("%s: %v, want %.0f ± %.0f at b1", vip, homes, share*count, slack)
		}
	}
	setWeight := func(weight int, vip *string) []lbapi.BackendRow {
		t.Helper()
		return *got[[]lbapi.BackendRow](d.api(lbAdminKey).SetWeight(t.Context(), id, lbapi.Weight{Weight: weight, Vip: vip})).is(t, 200)
	}
	for _, r := range setWeight(3, &vip) {
		if want := r.Vip == vip; r.WeightOverridden != want || r.Weight != map[bool]int{true: 3, false: 1}[want] {
			t.Errorf("%+v", r)
		}
	}
	divided("10.99.9.9:80", 0.75)
	divided("10.99.9.10:80", 0.5)
	setWeight(3, nil)
	divided("10.99.9.10:80", 0.75)
	for _, r := range setWeight(0, nil) {
		if r.WeightOverridden || r.Weight != 1 {
			t.Errorf("%+v", r)
		}
	}
	divided("10.99.9.9:80", 0.5)
	n.goesOn("after the weights changed", established...)
	// What is refused changes nothing.
	ask(d.api(lbAdminKey).SetWeight(t.Context(), id, lbapi.Weight{Weight: 1001})).is(t, 400)
	other := "10.99.9.99:80:tcp"
	ask(d.api(lbAdminKey).SetWeight(t.Context(), id, lbapi.Weight{Weight: 5, Vip: &other})).is(t, 404)
	if r := d.row(n.backends[0]); r.Weight != 1 || r.WeightOverridden {
		t.Errorf("%+v", r)
	}
}
