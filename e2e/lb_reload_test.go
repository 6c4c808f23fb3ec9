//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLoadBalancerReloadsWithoutDisturbingConnectionsOfWhatStays(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 3, "nat")
	for _, b := range n.backends {
		b.listen(80)
		b.listenUDP(80)
	}
	two, three := n.backends[:2], n.backends
	first := lbVIP{address: "10.99.9.9", port: 80, backends: two}
	datagrams := lbVIP{address: "10.99.9.9", port: 80, protocol: "udp", check: "{type: none}", backends: two}
	second := lbVIP{address: "10.99.9.10", port: 80, backends: three}
	d := startLB(t, n.balancer, lbDocument([]lbVIP{first, datagrams}))
	var established []*lbConn
	for _, b := range two {
		established = append(established, n.connectTo(b, "tcp", "10.99.9.9:80"), n.connectTo(b, "udp", "10.99.9.9:80"))
	}
	n.unserved("10.99.9.10:80")

	// A file that is put in the place of the old one: with one VIP more.
	d.write(lbDocument([]lbVIP{first, datagrams, second}))
	d.loaded(3)
	d.healthy()
	n.goesOn("after a VIP was added", established...)
	atSecond := n.connectTo(n.backends[2], "tcp", "10.99.9.10:80")

	// A signal: with one backend more, and the others in another order.
	first.backends = []*lbBackend{n.backends[2], n.backends[1], n.backends[0]}
	d.write(lbDocument([]lbVIP{second, first, datagrams}))
	d.signal(syscall.SIGHUP)
	eventually(t, "the backend is added", func() bool { return len(d.vip("10.99.9.9:80:tcp").Backends) == 3 })
	d.healthy()
	n.goesOn("after a backend was added", append(established, atSecond)...)
	n.connectTo(n.backends[2], "tcp", "10.99.9.9:80")

	// A symbolic link that is moved, as orchestrators do it: with the backend gone
	// again, and one of the old ones too.
	first.backends = n.backends[:1]
	at := func(name string, vips ...lbVIP) string {
		t.Helper()
		folder := filepath.Join(filepath.Dir(d.file), name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "lb.yaml"), []byte(lbDocument(vips)), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, name+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(filepath.Dir(d.file), "data")
	link(at("old", second, first, datagrams), data)
	link("data/lb.yaml", d.file)
	eventually(t, "the backends are removed", func() bool { return len(d.vip("10.99.9.9:80:tcp").Backends) == 1 })
	d.applied()
	n.goesOn("after backends were removed", established[0], established[1], established[3], atSecond)
	if err := established[2].ask(dialLimit); err == nil || isTimeout(err) {
		t.Errorf("the connection to a backend that was removed: %v, want a reset", err)
	}

	// And now the folder behind the link: with a VIP removed.
	link(at("new", first, datagrams), data)
	d.loaded(2)
	n.goesOn("after a VIP was removed", established[0], established[1], established[3])
	n.unserved("10.99.9.10:80")
	if homes := n.spread("10.99.9.9:80", 20); homes["b1"] != 20 {
		t.Errorf("connections are at %v", homes)
	}
	d.process.stop()
	n.goesOn("after the end of the daemon", established[0], established[1], established[3])
}

func TestLoadBalancerChangesNothingForABadDocumentAndTellsUntilItIsMended(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 2, "nat")
	for _, b := range n.backends {
		b.listen(80)
	}
	good := lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, backends: n.backends}})
	d := startLB(t, n.balancer, good)
	established := []*lbConn{
		n.connectTo(n.backends[0], "tcp", "10.99.9.9:80"),
		n.connectTo(n.backends[1], "tcp", "10.99.9.9:80"),
	}
	const successful = "lb_config_last_reload_successful"
	if v := d.metric(successful); v != 1 {
		t.Errorf("%s is %v after the start", successful, v)
	}
	loaded := d.node().Config.LoadedAt
	for name, c := range map[string]struct{ document, names string }{
		"broken YAML":          {"interface: [", "is not valid YAML: line 1"},
		"a value out of range": {strings.Replace(good, "interval: 100ms", "interval: 1ms", 1), "vips[0].healthCheck.interval"},
		"what takes a restart": {strings.Replace(good, "interface: eth0", "interface: lo", 1), "would be lo"},
		"half of it would do":  {good + "- {address: 10.99.9.10, port: 80, backends: [{address: '10.99.0.300'}]}\n", "vips[1].backends[0].address"},
		"a file that is gone":  {"", "cannot read"},
	} {
		if c.document == "" {
			if err := os.Remove(d.file); err != nil {
				t.Fatal(err)
			}
		} else {
			d.write(c.document)
		}
		d.signal(syscall.SIGHUP)
		eventually(t, name+" is refused", func() bool { return strings.Contains(d.node().Config.Error, c.names) })
		state := d.node().Config
		if state.ErrorAt == nil || !state.LoadedAt.Equal(loaded) {
			t.Errorf("%s: %+v", name, state)
		}
		if v := d.metric(successful); v != 0 {
			t.Errorf("%s: %s is %v", name, successful, v)
		}
		if status, text := d.get(lbAPI + "/readyz"); status != 200 {
			t.Errorf("%s: /readyz answers %d %s, and the configuration before is in force", name, status, text)
		}
		if homes := n.spread("10.99.9.9:80", 50); len(homes) != 2 {
			t.Errorf("%s: connections are at %v", name, homes)
		}
		n.goesOn("with "+name, established...)
		d.loaded(1)
	}
	for _, logged := range []string{"the configuration is refused; the one before stays in force", "vips[0].healthCheck.interval"} {
		if !strings.Contains(d.process.output.String(), logged) {
			t.Errorf("the log does not say %q", logged)
		}
	}
	d.write(good) // and no signal
	eventually(t, "the file is mended", func() bool { return d.node().Config.Error == "" })
	if state := d.node().Config; !state.LoadedAt.After(loaded) || state.ErrorAt != nil || d.metric(successful) != 1 {
		t.Errorf("%+v", state)
	}
	n.goesOn("after the file was mended", established...)
}
