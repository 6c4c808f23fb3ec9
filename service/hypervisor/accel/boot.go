package accel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// keptOutput is how much of QEMU's output is kept, in bytes: the end, which has its errors.
	keptOutput = 4 << 10
	// killGrace is how long to wait for a killed process. On a broken KVM it may hang in the
	// kernel, where no signal reaches it.
	killGrace = 2 * time.Second
)

// boot runs a guest under an accelerator until it ends, or until the time limit, which returns
// context.DeadlineExceeded. QEMU's exit is never an error, whatever its exit code.
func boot(
	ctx context.Context, program string, with Accelerator, rom []byte, limit time.Duration,
) (exit int, said string, err error) {
	dir, err := os.MkdirTemp("", "mainstay-accel-")
	if err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(dir)
	firmware := filepath.Join(dir, "guest.rom")
	if err := os.WriteFile(firmware, rom, 0o600); err != nil {
		return 0, "", err
	}
	return run(ctx, limit, program,
		"-accel", string(with), "-cpu", "max", "-machine", "q35", "-m", "16",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-bios", firmware,
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=1", exitPort))
}

// run runs a program and returns its exit code and the end of its output. The program and its
// children are killed at the time limit, when ctx ends, and if this process dies.
func run(ctx context.Context, limit time.Duration, program string, args ...string) (exit int, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var output tail
	p := exec.CommandContext(ctx, program, args...)
	p.Stdout, p.Stderr = &output, &output
	p.SysProcAttr = ownGroup()
	p.Cancel = func() error { return syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }
	p.WaitDelay = killGrace
	ended := routine.Start(nil, "KVM probe", func() error {
		// Linux treats the exit of the thread that started a process as the death of its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return p.Run()
	})
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(2 * killGrace):
			return 0, "", fmt.Errorf("it cannot be killed: %w", ctx.Err())
		}
	}
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil && err != nil:
		return 0, "", ctx.Err()
	case err != nil && !errors.As(err, &failed):
		return 0, "", err
	}
	return p.ProcessState.ExitCode(), output.String(), nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b[max(0, len(b)-keptOutput):]...)
	t.kept = t.kept[max(0, len(t.kept)-keptOutput):]
	return len(b), nil
}

func (t *tail) String() string { return string(bytes.TrimSpace(bytes.ToValidUTF8(t.kept, nil))) }
