//go:build linux

package demo_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
)

func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			require.Missing(t, "%s is not installed", program)
		}
	}
}

func TestTheGuestBootsToAShell(t *testing.T) {
	t.Parallel()
	need(t, "apt-get", "dpkg-deb", "cpio", "busybox", "qemu-system-x86_64")
	var steps []string
	o := demo.Options{
		Folder:   t.TempDir(),
		Host:     t.TempDir(),
		Progress: func(step string) { steps = append(steps, step) },
	}
	guest, err := demo.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := demo.Build(t.Context(), o); err != nil || again != guest ||
		len(slices.DeleteFunc(steps, func(s string) bool { return !strings.HasPrefix(s, "downloading") })) != 1 {
		t.Errorf("built again: %+v, %v, %q", again, err, steps)
	}
	boots(t, guest)
}

// boots fails the test unless the guest boots to a shell, with all modules.
func boots(t *testing.T, guest demo.Guest) {
	t.Helper()
	cmd := exec.CommandContext(
		t.Context(),
		"qemu-system-x86_64",
		"-accel",
		"tcg",
		"-M",
		"microvm",
		"-m",
		"256",
		"-nodefaults",
		"-no-user-config",
		"-display",
		"none",
		"-no-reboot", //nolint:gosec // the test's own
		"-kernel",
		guest.Kernel,
		"-initrd",
		guest.Initrd,
		"-append",
		"console=ttyS0 reboot=t panic=-1 quiet tsc_early_khz=2000000",
		"-serial",
		"stdio",
	)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	console := bufio.NewScanner(out)
	var seen strings.Builder
	await := func(text string) {
		t.Helper()
		for console.Scan() {
			seen.WriteString(console.Text() + "\n")
			if strings.Contains(console.Text(), text) {
				return
			}
		}
		t.Fatalf("%q is not on the console:\n%s", text, seen.String())
	}
	await(demo.Ready)
	if _, err := fmt.Fprintln(in, "echo answer $((6 * 7)); uname -s"); err != nil {
		t.Fatal(err)
	}
	await("answer 42")
	await("Linux")
	if _, err := fmt.Fprintln(in, "reboot -f"); err != nil { // which QEMU takes for the end
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out) // until it has ended
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, seen.String())
	}
	if strings.Contains(seen.String(), "cannot be loaded") {
		t.Errorf("modules are missing:\n%s", seen.String())
	}
}
