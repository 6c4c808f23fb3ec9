//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/require"
)

const nobody = 65534

// nobodysLB is a daemon that nobody runs, with these capabilities.
func nobodysLB(t *testing.T, n *lbNetwork, mode string, capabilities ...uintptr) *lbDaemon {
	t.Helper()
	d := newLB(t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, mode: mode, backends: n.backends}}))
	// Everybody can come here.
	dir, err := os.MkdirTemp("", "mainstay-lb-")
	n.must(err)
	t.Cleanup(func() { n.must(os.RemoveAll(dir)) })
	n.must(os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "mainstay")
	document := filepath.Join(dir, "lb.yaml")
	// Not by ourselves: a program that a process has open for writing cannot be started,
	// and tests that start others at the same time hand on what is open.
	command(t, "install", "-m", "755", d.binary, program)
	command(t, "install", "-m", "644", d.file, document)
	pins := filepath.Join(dir, "bpf")
	n.must(os.Mkdir(pins, 0o755))
	n.must(os.Chown(pins, nobody, nobody))
	unmountInTheEnd(t, pins)
	d.binary, d.file, d.pins = program, document, pins
	d.args = []string{"serve", "lb", "--config", d.file, "--bpf-dir", d.pins}
	d.as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	d.as.AmbientCaps = capabilities
	return d
}

func TestLoadBalancerWithoutPrivilegesAnswersAndTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 1, "nat")
	n.backends[0].listen(80)
	d := nobodysLB(t, n, "nat")
	d.start()
	tells := []string{
		"cannot attach to eth0",
		"missing: capabilities",
		"run it as root, or give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
		"mount -t bpf bpf " + d.pins,
	}
	check := func(what, text string, tells ...string) {
		t.Helper()
		for _, tell := range tells {
			if !strings.Contains(text, tell) {
				t.Errorf("%s does not say %q: %s", what, tell, text)
			}
		}
	}
	for _, at := range []string{lbAPI, "http://127.0.0.1:9871"} {
		if status, text := d.get(at + "/healthz"); status != 200 {
			t.Errorf("%s/healthz: %d %s", at, status, text)
		}
		if status, text := d.get(at + "/metrics"); status != 200 {
			t.Errorf("%s/metrics: %d %s", at, status, text)
		}
		status, text := d.get(at + "/readyz")
		if status != 503 {
			t.Errorf("%s/readyz: %d", at, status)
		}
		check("/readyz", text, tells...)
	}
	d.healthy() // backends are probed all the same
	if node := d.node(); node.Attached {
		t.Errorf("%+v", node)
	} else {
		check("the node", node.NotReady, tells...)
	}
	code, output := d.run(lbAdminKey, "lb", "explain", "10.99.0.1:40000", "10.99.9.9:80")
	if code != 5 {
		t.Errorf("lb explain: exit code %d", code)
	}
	check("lb explain", output, "nothing is attached to the interface", "mainstay lb node")
	code, output = d.run(lbAdminKey, "lb", "node")
	if code != 0 {
		t.Errorf("lb node: exit code %d", code)
	}
	check("lb node", output, append(tells, "not attached")...)
	check("the log", d.process.output.String(), "cannot balance; it is tried again")
	d.process.stop()

	if code, output := d.run("", append(d.args, "--detach")...); code == 0 {
		t.Errorf("--detach: exit code 0: %s", output)
	}
}

func TestLoadBalancerServesItsConsoleWithoutPrivileges(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 1, "nat")
	d := nobodysLB(t, n, "nat")
	d.start()
	status, text := d.get(lbAPI + "/")
	if status == 302 {
		require.Missing(t, "the consoles are not built (make web)")
	}
	if status != 200 || !strings.Contains(text, "<script") {
		t.Errorf("%d %s", status, text)
	}
	d.process.stop()
}

func TestLoadBalancerNeedsNoMoreThanTheCapabilitiesThatItNames(t *testing.T) {
	t.Parallel()
	const capBPF, capPerfmon, capNetAdmin, capSysAdmin = 39, 38, 12, 21
	for name, c := range map[string]struct {
		mode         string
		capabilities []uintptr
	}{
		"nat": {"nat", []uintptr{capBPF, capPerfmon, capNetAdmin}},
		"dsr": {"dsr", []uintptr{capBPF, capPerfmon, capNetAdmin, capSysAdmin}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newLBNetwork(t, 2, c.mode, "10.99.9.9")
			for _, b := range n.backends {
				b.listen(80)
			}
			d := nobodysLB(t, n, c.mode, c.capabilities...)
			n.must(syscall.Mount("bpf", d.pins, "bpf", 0, "mode=0700"))
			n.must(os.Chown(d.pins, nobody, nobody))
			d.start()
			d.healthy()
			if status, text := d.get(lbAPI + "/readyz"); status != 200 {
				t.Errorf("/readyz: %d %s", status, text)
			}
			if homes := n.spread("10.99.9.9:80", 60); len(homes) != 2 {
				t.Errorf("connections are at %v", homes)
			}
			established := n.connect("tcp", "10.99.9.9:80")
			d.process.stop()
			n.goesOn("after the end of the daemon", established)
			d.start()
			d.healthy()
			n.goesOn("after the start", established)
			d.process.stop()
			if code, output := d.run("", append(d.args, "--detach")...); code != 0 || d.attached() {
				t.Errorf("--detach: exit code %d: %s", code, output)
			}
		})
	}
	t.Run("dsr with those of nat", func(t *testing.T) {
		t.Parallel()
		n := newLBNetwork(t, 1, "dsr", "10.99.9.9")
		n.backends[0].listen(80)
		d := nobodysLB(t, n, "dsr", capBPF, capPerfmon, capNetAdmin)
		d.start()
		eventually(
			t, "it tells what its checks take",
			func() bool { return strings.Contains(d.row(n.backends[0]).Detail, "CAP_SYS_ADMIN") },
		)
		d.process.stop()
	})
}
