//go:build linux

package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// BenchmarkCreateToExec is from Start to the output of a first command by the agent. Each
// round is followed by one of BenchmarkRunscRun, to which it prints the ratio.
func BenchmarkCreateToExec(b *testing.B) {
	h := host(b)
	s := vm(b, h, "vm")
	bundle := plainBundle(b)
	var ours, theirs time.Duration
	for b.Loop() {
		began := time.Now()
		createToExec(b, h, s)
		ours += time.Since(began)
		b.StopTimer()
		if err := h.Clean(soon(b), s); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		runscRun(b, bundle)
		theirs += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(ours)/float64(theirs), "ratio-to-runsc-run")
}

// BenchmarkRunscRun is a run of a first command by runsc itself, from beginning to end.
func BenchmarkRunscRun(b *testing.B) {
	host(b)
	bundle := plainBundle(b)
	for b.Loop() {
		runscRun(b, bundle)
	}
}

func createToExec(b *testing.B, h *sandbox.Backend, s *backend.Spec) {
	b.Helper()
	i, err := h.Start(soon(b), s)
	if err != nil {
		b.Fatal(err)
	}
	defer i.Close()
	stream, err := i.Dial(soon(b), backend.AgentChannel)
	if err != nil {
		b.Fatal(err)
	}
	c, err := guest.Connect(soon(b), stream, secret)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var out strings.Builder
	if exit, err := c.Exec(
		soon(b), guest.Command{Argv: []string{"echo", "hello"}, Stdout: &out},
	); err != nil || exit.Code != 0 ||
		out.String() != "hello\n" {
		b.Fatalf("%+v, %v, %q", exit, err, out.String())
	}
}

// plainBundle is the least that runsc runs.
func plainBundle(b *testing.B) string {
	b.Helper()
	bundle := b.TempDir()
	config := `{"ociVersion": "1.0.2", "root": {"path": "` + rootFS() + `"}, "process": {"args": ["/bin/echo", "hello"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
		"linux": {"namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}]}}`
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	return bundle
}

func runscRun(b *testing.B, bundle string) {
	b.Helper()
	cmd := exec.CommandContext(
		soon(b),
		"runsc",
		"--root="+filepath.Join(bundle, "state"),
		"--platform=systrap",
		"--network=none",
		"--ignore-cgroups", //nolint:gosec // the test's own
		"--gofer-network-namespace=new",
		"--overlay2=root:memory",
		"run",
		"--bundle="+bundle,
		"plain",
	)
	out, err := cmd.Output()
	if err != nil || string(out) != "hello\n" {
		b.Fatalf("%q, %v", out, err)
	}
}
