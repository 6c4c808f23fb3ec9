//go:build linux

package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// limit is for what takes a fraction of a second on a machine that has nothing else to do.
const limit = 2 * time.Minute

// built is the folder of the agent and of a root file system, which all tests share.
var built struct {
	once   sync.Once
	folder string
	err    error
}

// host is a backend with what it stands on.
func host(t testing.TB) *sandbox.Backend {
	t.Helper()
	if _, err := exec.LookPath("runsc"); err != nil {
		require.Missing(t, "gVisor's runsc is not installed (sh bench/runsc/build.sh /usr/local/bin/runsc)")
	}
	if os.Geteuid() != 0 {
		require.Missing(t, "sandboxes are run as root")
	}
	busybox := require.Program(t, "busybox", "busybox-static")
	built.once.Do(func() { built.folder, built.err = build(busybox) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	b := sandbox.New(sandbox.Options{Agent: agentProgram()})
	if info := b.Probe(t.Context()); !info.Available {
		t.Fatalf("%+v", info)
	}
	return b
}

func agentProgram() string { return filepath.Join(built.folder, "mainstay-guest") }

func rootFS() string { return filepath.Join(built.folder, "rootfs") }

func build(busybox string) (string, error) {
	folder, err := os.MkdirTemp("", "sandbox")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(
		"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(folder, "mainstay-guest"),
		"github.com/mainstay-infra/mainstay/cmd/mainstay-guest",
	) //nolint:gosec // the test's own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return folder, fmt.Errorf("%w: %s", err, out)
	}
	bin := filepath.Join(folder, "rootfs", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // a root file system
		return folder, err
	}
	program, err := os.ReadFile(busybox) //nolint:gosec // the test's own
	if err != nil {
		return folder, err
	}
	if err := os.WriteFile(filepath.Join(bin, "busybox"), program, 0o755); err != nil { //nolint:gosec // a program
		return folder, err
	}
	for _, name := range []string{"sh", "cat", "echo", "sleep", "ps", "touch", "ls", "hostname", "tty", "true", "dd", "kill"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			return folder, err
		}
	}
	if err := os.WriteFile(
		filepath.Join(folder, "rootfs", "motd"), []byte("hello\n"), 0o644,
	); err != nil { //nolint:gosec // a root file system
		return folder, err
	}
	root, err := os.OpenRoot(filepath.Join(folder, "rootfs"))
	if err != nil {
		return folder, err
	}
	return folder, errors.Join(sandbox.Prepare(root), root.Close())
}

func TestMain(m *testing.M) {
	if folder := os.Getenv(daemonFolder); folder != "" {
		os.Exit(daemon(folder))
	}
	code := m.Run()
	if built.folder != "" {
		_ = os.RemoveAll(built.folder)
	}
	os.Exit(code)
}

const secret = "s3cret"

// vm is a VM that is to be started, of which nothing is left after the test.
func vm(t testing.TB, b *sandbox.Backend, name string) *backend.Spec {
	t.Helper()
	folder, err := os.MkdirTemp("", "vm") // t.TempDir has the test's name, in which runsc has no commas
	if err != nil {
		t.Fatal(err)
	}
	s := specOf(folder, rootFS())
	s.Name = name
	if err := os.WriteFile(filepath.Join(folder, "secret"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := b.Clean(ctx, s); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
		_ = os.RemoveAll(folder)
	})
	return s
}

func specOf(folder, rootfs string) *backend.Spec {
	return &backend.Spec{
		ID:        "00000000-0000-4000-8000-000000000001",
		Name:      "vm",
		Folder:    folder,
		VCPUs:     1,
		MemoryMiB: 128,
		RootFS:    rootfs,
		Agent:     true,
	}
}

// nothingLeft counts what a sandbox could have left on the host.
func nothingLeft(t testing.TB, s *backend.Spec) {
	t.Helper()
	if found := running(t, s.Folder); len(found) > 0 {
		t.Errorf("processes of the sandbox are left: %v", found)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(s.Folder)) {
		t.Errorf("a mount is left, %v", err)
	}
	left, err := os.ReadDir(s.Folder)
	for _, entry := range left {
		if entry.Name() != "secret" {
			t.Errorf("%s is left in the VM's folder", entry.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// running are the processes that have a folder in their arguments, or one of those that
// they keep in a namespace of their own as a child.
func running(t testing.TB, folder string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, line := range lines {
		if raw, err := os.ReadFile(line); err == nil && bytes.Contains(raw, []byte(folder)) {
			found = append(found, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return found
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func start(t testing.TB, b *sandbox.Backend, s *backend.Spec) *sandbox.Instance {
	t.Helper()
	i, err := b.Start(soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i.(*sandbox.Instance)
}

func ended(t testing.TB, i backend.Instance) backend.End {
	t.Helper()
	select {
	case <-i.Done():
		return i.Ended()
	case <-time.After(limit):
		t.Fatal("the sandbox has not ended")
		return backend.End{}
	}
}

func agent(t testing.TB, i backend.Instance) *guest.Client {
	t.Helper()
	stream, err := i.Dial(soon(t), backend.AgentChannel)
	if err != nil {
		t.Fatal(err)
	}
	c, err := guest.Connect(soon(t), stream, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// sh runs a script in the guest and returns what it printed.
func sh(t testing.TB, c *guest.Client, script string) string {
	t.Helper()
	var out, said strings.Builder
	exit, err := c.Exec(soon(t), guest.Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &said})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v: %s", script, exit, err, said.String())
	}
	return strings.TrimSpace(out.String())
}
