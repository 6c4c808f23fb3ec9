//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoadBalancerDetachesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 2, "dsr", "10.99.9.9")
	for _, b := range n.backends {
		b.listen(80)
	}
	before, err := n.balancer.Netlink().LinkList()
	n.must(err)
	// In this mode the checks need devices of their own.
	d := startLB(
		t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, mode: "dsr", backends: n.backends}}),
	)
	pins := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(d.pins, "mainstay*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	detach := append(d.args, "--detach")
	d.process.stop()
	established := n.connect("tcp", "10.99.9.9:80") // the kernel continues
	if !d.attached() || len(pins()) == 0 {
		t.Fatalf("attached %v, pinned %q", d.attached(), pins())
	}

	code, output := d.run("", detach...)
	if code != 0 || !strings.Contains(output, "Detached from eth0; nothing is left in the kernel.") {
		t.Errorf("exit code %d: %s", code, output)
	}
	if d.attached() || len(pins()) > 0 {
		t.Errorf("attached %v, pinned %q", d.attached(), pins())
	}
	after, err := n.balancer.Netlink().LinkList()
	n.must(err)
	if len(after) != len(before) {
		t.Errorf("%d devices are there, and %d were", len(after), len(before))
	}
	if err := established.ask(300 * time.Millisecond); err == nil {
		t.Error("a connection goes on")
	}
	n.unserved("10.99.9.9:80")
	if code, output = d.run("", detach...); code != 0 || !strings.Contains(output, "Nothing was attached to eth0.") {
		t.Errorf("again: exit code %d: %s", code, output)
	}

	d.start()
	d.healthy()
	if homes := n.spread("10.99.9.9:80", 60); len(homes) != 2 {
		t.Errorf("started again, connections are at %v", homes)
	}
	d.process.stop()
	if code, output = d.run("", detach...); code != 0 || d.attached() {
		t.Errorf("exit code %d: %s", code, output)
	}
}

// While a daemon runs it holds its program itself.
func TestLoadBalancerDoesNotClaimToHaveDetachedFromUnderARunningDaemon(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 1, "nat")
	n.backends[0].listen(80)
	d := startLB(t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, backends: n.backends}}))
	code, output := d.run("", append(d.args, "--detach")...)
	if said := strings.Contains(output, "nothing is left in the kernel"); said && d.attached() {
		t.Errorf("exit code %d, the program is attached, and it says: %s", code, output)
	}
	if code == 0 && d.attached() {
		t.Error("exit code 0, and the program is attached")
	}
	if code != 0 {
		if !strings.Contains(output, "another process") {
			t.Errorf("it does not say that the daemon must end first: %s", output)
		}
		if _, err := os.Stat(filepath.Join(d.pins, "mainstay-lb")); err != nil {
			t.Errorf("it refused, and removed pins: %v", err)
		}
	}
}
