//go:build linux

package main_test

import (
	"context"
	"debug/elf"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// build builds the program as it is shipped.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mainstay-guest")
	cmd := exec.CommandContext(
		t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=1.2.3", "-o", path, ".",
	)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestTheProgramIsStaticAndSmallAndServes(t *testing.T) {
	t.Parallel()
	program := build(t)
	info, err := os.Stat(program)
	if err != nil || info.Size() >= 5_000_000 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is not static: it has a %v", p.Type)
		}
	}

	folder, err := os.MkdirTemp("", "guest") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	secret, socket := filepath.Join(folder, "secret"), filepath.Join(folder, "socket")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	agent := exec.CommandContext(ctx, program, "--secret-file", secret, "--unix", socket)
	var log strings.Builder
	agent.Stderr = &log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := guest.Connect(ctx, dial(ctx, t, socket), "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Version() != "1.2.3" {
		t.Errorf("version %q", c.Version())
	}
	var out strings.Builder
	if exit, err := c.Exec(
		ctx, guest.Command{Argv: []string{"echo", "hello"}, Stdout: &out},
	); err != nil || exit.Code != 0 ||
		out.String() != "hello\n" {
		t.Errorf("%+v, %v, %q", exit, err, &out)
	}
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Errorf("it does not end well: %v: %s", err, &log)
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Error("the log tells the secret")
	}
}

// dial waits for the socket.
func dial(ctx context.Context, t *testing.T, socket string) net.Conn {
	t.Helper()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func TestAMissingSecretIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), build(t), "--secret-file", "/no/such/file").CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(string(out), "/no/such/file") {
		t.Errorf("%v: %s", err, out)
	}
}
