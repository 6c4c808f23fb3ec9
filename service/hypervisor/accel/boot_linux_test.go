package accel

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// prober names, in the environment, the program that a process of this test runs.
const prober = "TEST_ACCEL_PROBER"

func TestTheProbeDiesWithAKilledDaemon(t *testing.T) {
	t.Parallel()
	if program := os.Getenv(prober); program != "" {
		_, _, err := run(t.Context(), long, program)
		t.Fatalf("it ended: %v", err)
	}
	o, _ := standIn(t, "exec 3>alive; exec sleep 600")
	pipe := filepath.Join(filepath.Dir(o.QEMU), "alive")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	daemon := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	daemon.Env = append(os.Environ(), prober+"="+o.QEMU)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	gone := make(chan error, 1)
	go func() {
		f, err := os.Open(pipe) // waits for the script
		cancel()                // which kills the daemon
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			_ = f.Close()
		}
		gone <- err
	}()
	if err := <-ended; err == nil {
		t.Error("the daemon was not killed")
	}
	select {
	case err := <-gone:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(long):
		t.Error("the probe outlived the daemon")
	}
}
