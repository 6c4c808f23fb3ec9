//go:build linux

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// birdRouter is a BIRD on a host of its own.
type birdRouter struct {
	testing.TB
	address, address6 netip.Addr
	host              *netlab.Host
	birdc, socket     string
}

// startBIRD adds a router to the network that waits for the balancer, as AS 65010. It
// takes routes of each IP family in a session of that family.
func startBIRD(n *lbNetwork, password string) *birdRouter {
	n.Helper()
	program := require.Program(n.TB, "bird", "bird2")
	r := &birdRouter{
		TB:       n.TB,
		address:  netip.MustParseAddr("10.99.0.3"),
		address6: netip.MustParseAddr("fd99::3"),
		birdc:    require.Program(n.TB, "birdc", "bird2"),
	}
	// The path of a socket is short, those of test folders are not.
	dir, err := os.MkdirTemp("", "bird-")
	n.must(err)
	n.Cleanup(func() { n.must(os.RemoveAll(dir)) })
	r.socket = filepath.Join(dir, "ctl")
	file := filepath.Join(dir, "bird.conf")
	n.must(os.WriteFile(file, []byte(fmt.Sprintf(`log stderr all;
router id %s;
protocol device {}
template bgp balancer {
	strict bind on;
	passive on;
	error wait time 1, 1;
	password %q;
}
protocol bgp four from balancer {
	local %[1]s as 65010;
	neighbor %[3]s as 65001;
	ipv4 { import all; export none; };
}
protocol bgp six from balancer {
	local %[4]s as 65010;
	neighbor %[5]s as 65001;
	ipv6 { import all; export none; };
}
`, r.address, password, lbBalancer, r.address6, lbBalancer6)), 0o600))
	cmd := exec.Command(program, "-f", "-c", file, "-s", r.socket, "-P", filepath.Join(dir, "pid"))
	cmd.SysProcAttr = dieWithParent()
	r.host = n.host("router", r.address, r.address6)
	launchCommand(n.TB, nil, cmd, r.host.Start)
	return r
}

// routes are what the router learned of the balancer, with all attributes.
func (r *birdRouter) routes() string {
	out, err := exec.CommandContext(r.Context(), r.birdc, "-s", r.socket, "show", "route", "all").CombinedOutput()
	if err != nil {
		return "" // it is starting
	}
	return string(out)
}

// refused is how many packets came with a signature of another password.
func (r *birdRouter) refused() (count string) {
	r.Helper()
	var text []byte
	if err := r.host.Do(
		func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/netstat"); return err },
	); err != nil {
		r.Fatal(err)
	}
	// Names and numbers are in two lines.
	lines := strings.Split(string(text), "\n")
	i := slices.Index(strings.Fields(lines[0]), "TCPMD5Failure")
	if i < 0 {
		r.Fatal("the kernel does not count signatures")
	}
	return strings.Fields(lines[1])[i]
}

// has waits until the router has exactly these routes, of the addresses of VIPs.
func (r *birdRouter) has(when string, routes ...string) {
	r.Helper()
	var seen string
	defer func() {
		if r.Failed() {
			r.Logf("the router has %s", seen)
		}
	}()
	eventually(r, fmt.Sprintf("the router has %v %s", routes, when), func() bool {
		seen = r.routes()
		missing := slices.ContainsFunc(routes, func(route string) bool { return !strings.Contains(seen, route) })
		return !missing && strings.Count(seen, "BGP.next_hop") == len(routes)
	})
}

func TestLoadBalancerIsKnownToARouterWhileItServes(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 2, "nat")
	for _, b := range n.backends {
		b.listen(80)
	}
	r := startBIRD(n, bgpPassword)
	d := newLB(t, n.balancer, "")
	n.must(os.WriteFile(filepath.Join(filepath.Dir(d.file), "password"), []byte(bgpPassword+"\n"), 0o600))
	const bgp = `bgp:
  localASN: 65001
  routerID: 10.99.0.2
  communities: ['65001:100']
  peers:
  - {address: 10.99.0.3, asn: 65010, passwordFile: password, holdTime: 30s}
  - {address: 'fd99::3', asn: 65010, passwordFile: password}
`
	vips := []lbVIP{
		{address: "10.99.9.9", port: 80, backends: n.backends},
		{address: "fd99:9::9", port: 80, backends: n.backends[:1]},
	}
	const route, route6 = "10.99.9.9/32", "fd99:9::9/128"
	d.write(lbDocument(vips, bgp))
	d.start()
	d.healthy()
	r.has("while backends are healthy", route, route6)
	if seen := r.routes(); !strings.Contains(seen, "(65001,100)") ||
		!strings.Contains(seen, "BGP.next_hop: 10.99.0.2") ||
		!strings.Contains(seen, "BGP.next_hop: fd99::2") {
		t.Errorf("the routes are %s", seen)
	}
	established := func(s lbapi.BGPSession) bool { return s.State == lbapi.BGPSessionStateEstablished }
	if s := d.node().Bgp; len(s) != 2 || !established(s[0]) || !established(s[1]) {
		t.Errorf("the sessions are %+v", s)
	}
	if v := d.vip("10.99.9.9:80:tcp"); !v.Announced ||
		!slices.Equal(v.BgpPeers, []string{r.address.String(), r.address6.String()}) {
		t.Errorf("%+v", v)
	}

	n.backends[0].refuse(80)
	r.has("while one of two backends is healthy, and none over IPv6", route)
	n.backends[1].refuse(80)
	r.has("while no backend is healthy")
	if v := d.vip("10.99.9.9:80:tcp"); v.Announced {
		t.Errorf("%+v", v)
	}
	n.backends[1].listen(80)
	r.has("when one is healthy again", route)
	// Nobody could serve new connections.
	id := d.id(n.backends[1])
	ask(d.api(lbAdminKey).DrainBackend(t.Context(), id, lbapi.Nothing{})).is(t, 200)
	r.has("while the last one is drained")
	ask(d.api(lbAdminKey).UndrainBackend(t.Context(), id, lbapi.Nothing{})).is(t, 200)
	r.has("after the drain", route)

	// The kernel keeps balancing, and the router lets it.
	d.process.stop()
	r.has("after the end of the daemon", route)
	n.connect("tcp", "10.99.9.9:80")
	d.start()
	r.has("after the start", route)
	d.write(lbDocument(vips, bgp+"  gracefulRestart: 0s\n"))
	d.signal(syscall.SIGHUP)
	r.has("without graceful restart", route)
	d.process.stop()
	r.has("after the end of a daemon that has none")
	d.start()
	r.has("after the start without graceful restart", route)

	// With another password there is no session, and so no route; balancing continues.
	if r.refused() != "0" {
		t.Error("the router refused signatures of the right password")
	}
	n.must(os.WriteFile(filepath.Join(filepath.Dir(d.file), "password"), []byte("another one"), 0o600))
	d.process.stop()
	d.start()
	d.becomes(n.backends[1], lbapi.BackendStateHealthy)
	eventually(t, "the router refuses the daemon", func() bool { return r.refused() != "0" })
	n.connect("tcp", "10.99.9.9:80")
	if s := d.node().Bgp; len(s) != 2 || slices.ContainsFunc(s, established) || r.routes() == "" ||
		strings.Contains(r.routes(), route) {
		t.Errorf("%+v\n%s", s, r.routes())
	}
	d.process.stop()
}
