// Package podmantest runs a private Podman for tests: with its own storage, network and socket in a
// temporary directory, separate from the machine's Podman and those of other tests. It requires
// root.
package podmantest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
)

// Podman is a running Podman.
type Podman struct {
	Socket string

	dir  string
	t    testing.TB
	stop func()
}

// configuration makes Podman work without systemd and in processes that may not raise their limits,
// as in many containers.
const configuration = `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
helper_binaries_dir = ["%s", "/usr/local/lib/podman", "/usr/lib/podman", "/usr/libexec/podman"]
[network]
network_backend = "netavark"
network_config_dir = "%s"
default_network = "pmt%d"
`

// network is the only network, with its own bridge and name: two Podmans that share a bridge would
// take it from each other, and netavark names a network's iptables chains after the network.
const network = `{"name": "pmt%d", "id": "%064x", "driver": "bridge", "network_interface": "pmt%d", "subnets": [{"subnet": "10.%d.%d.0/24", "gateway": "10.%d.%d.1"}],
"created": "2026-01-01T00:00:00Z", "ipv6_enabled": false, "internal": false, "dns_enabled": false, "ipam_options": {"driver": "host-local"}}`

// netavark runs netavark for one Podman at a time. A Podman locks only against itself, and the
// chains that all networks share belong to the machine.
const netavark = `#!/bin/sh
for dir in /usr/local/lib/podman /usr/lib/podman /usr/libexec/podman; do
	[ -x "$dir/netavark" ] && exec flock "%s" "$dir/netavark" "$@"
done
echo 'netavark is missing: install it with: apt-get install netavark' >&2
exit 1
`

// Start starts a Podman that stops, with all its containers, when the test ends.
func Start(t testing.TB) *Podman {
	t.Helper()
	if os.Getuid() != 0 {
		require.Missing(t, "a private Podman needs root")
	}
	require.Program(t, "podman", "podman")
	require.Program(t, "runc", "runc")
	require.Program(t, "flock", "util-linux")
	// Paths of Unix sockets must be short, and a test's directory may have a long one.
	dir, err := os.MkdirTemp("", "podman")
	if err != nil {
		t.Fatal(err)
	}
	p := &Podman{Socket: filepath.Join(dir, "s"), dir: dir, t: t}
	networks, helpers := filepath.Join(dir, "networks"), filepath.Join(dir, "helpers")
	for _, folder := range []string{networks, helpers} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n := rand.IntN(100 * 256)
	lock := filepath.Join(os.TempDir(), "podmantest.lock")
	for path, content := range map[string][]byte{
		filepath.Join(dir, "containers.conf"):                 fmt.Appendf(nil, configuration, helpers, networks, n),
		filepath.Join(networks, fmt.Sprintf("pmt%d.json", n)): fmt.Appendf(nil, network, n, n, n, 100+n/256, n%256, 100+n/256, n%256),
		filepath.Join(helpers, "netavark"):                    fmt.Appendf(nil, netavark, lock),
	} {
		if err := os.WriteFile(path, content, 0o700); err != nil { //nolint:gosec // one is a program
			t.Fatal(err)
		}
	}
	p.Serve()
	t.Cleanup(func() {
		p.Stop()
		p.run("rm", "--all", "--force", "--time", "0")
		// The storage contains mounts and files of other owners.
		_ = exec.Command("umount", "-R", filepath.Join(dir, "store", "overlay")).Run() // not mounted with every driver
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("remove Podman's storage: %v", err)
		}
	})
	return p
}

// Serve starts the REST API, unless it is running, and waits until it responds.
func (p *Podman) Serve() {
	p.t.Helper()
	if p.stop != nil {
		return
	}
	cmd := p.command("system", "service", "--time", "0", "unix://"+p.Socket)
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	var failure error
	go func() { failure = cmd.Wait(); close(ended) }()
	p.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
		p.stop = nil
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("unix", p.Socket)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ended:
			p.t.Fatalf("podman system service: %v\n%s", failure, log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("podman system service does not listen: %v", err)
		}
	}
}

// Stop stops the REST API, as if Podman were not running; containers continue.
func (p *Podman) Stop() {
	if p.stop != nil {
		p.stop()
		_ = os.Remove(p.Socket) // Podman may have done so
	}
}

// Image builds the image localhost/NAME with the test program web (testdata/web), which reports
// version.
func (p *Podman) Image(name, version string) string {
	p.t.Helper()
	folder := p.t.TempDir()
	build := exec.CommandContext(
		context.Background(), "go", "build", "-o", filepath.Join(folder, "web"),
		"github.com/mainstay-infra/mainstay/kit/podman/podmantest/testdata/web",
	)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	recipe := "FROM scratch\nCOPY web /web\nENV VERSION=" + version + "\nENTRYPOINT [\"/web\"]\n"
	if err := os.WriteFile(filepath.Join(folder, "Containerfile"), []byte(recipe), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.Run("build", "--quiet", "--tag", "localhost/"+name, folder)
	return "localhost/" + name
}

// Run runs a podman command against the private storage, and returns its output.
func (p *Podman) Run(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("podman %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// run is Run for cleanup commands that may fail.
func (p *Podman) run(args ...string) {
	if out, err := p.command(args...).CombinedOutput(); err != nil {
		_, _ = io.WriteString(os.Stderr, fmt.Sprintf("podman %s: %v\n%s", strings.Join(args, " "), err, out))
	}
}

func (p *Podman) command(args ...string) *exec.Cmd {
	cmd := exec.Command(
		"podman",
		append(
			[]string{
				"--root", filepath.Join(p.dir, "store"), "--runroot", filepath.Join(p.dir, "run"), "--tmpdir",
				filepath.Join(p.dir, "tmp"),
			},
			args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(p.dir, "containers.conf"))
	return cmd
}
