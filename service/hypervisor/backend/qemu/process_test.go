//go:build linux

package qemu_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

const program = "qemu-system-x86_64"

// daemonFolder makes this program a daemon that launches the machine in the folder, and
// dies.
const daemonFolder = "MAINSTAY_QEMU_TEST_FOLDER"

func TestMain(m *testing.M) {
	folder := os.Getenv(daemonFolder)
	if folder == "" {
		os.Exit(m.Run())
	}
	p, _, err := qemu.Launch(context.Background(), program, empty(folder))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, p.PID)
	os.Exit(0)
}

// empty is a machine that has nothing to boot.
func empty(folder string) *qemu.Machine {
	return &qemu.Machine{
		Name:        "empty",
		UUID:        "00000000-0000-4000-8000-000000000002",
		Folder:      folder,
		Type:        qemu.Q35,
		Accelerator: "tcg",
		VCPUs:       1,
		MemoryMiB:   64,
	}
}

// place is a folder for a machine, whose process ends with the test.
func place(t *testing.T) string {
	t.Helper()
	needQEMU(t)
	folder, err := os.MkdirTemp("", "vm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p, err := qemu.Find(folder); err == nil && p != nil {
			_ = p.Kill()
			<-p.Done()
		}
		_ = os.RemoveAll(folder)
	})
	return folder
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func ended(t *testing.T, p *qemu.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the process has not ended")
	}
}

func TestAMachineOutlivesTheDaemonAndIsFoundAgain(t *testing.T) {
	t.Parallel()
	folder := place(t)
	daemon := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program
	daemon.Env = append(os.Environ(), daemonFolder+"="+folder)
	said, err := daemon.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	p, err := qemu.Find(folder)
	if err != nil || p == nil || fmt.Sprintln(p.PID) != string(said) {
		t.Fatalf("found %+v, %v; the daemon launched %s", p, err, said)
	}
	defer p.Close()
	monitor, err := qmp.Dial(soon(t), filepath.Join(folder, "run", "qmp.sock"), qmp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	if s, err := monitor.Status(soon(t)); err != nil || !s.Running {
		t.Errorf("%+v, %v", s, err)
	}
	if err := monitor.Quit(soon(t)); err != nil {
		t.Fatal(err)
	}
	ended(t, p)
	if gone, err := qemu.Find(folder); err != nil || gone != nil {
		t.Errorf("found %+v, %v after its end", gone, err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("killing what has ended: %v", err)
	}
}

func TestAMachineCanBeKilledAndLaunchedAgain(t *testing.T) {
	t.Parallel()
	folder := place(t)
	for range 2 {
		p, monitor, err := qemu.Launch(soon(t), program, empty(folder))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		ended(t, p)
		<-monitor.Done()
		_ = p.Close()
	}
}

// Another process with the number of a machine's is never taken for it.
func TestAnotherProcessOfTheSameNumberIsNotTheMachines(t *testing.T) {
	t.Parallel()
	for what, content := range map[string]string{
		"another start": fmt.Sprintf(`{"pid": %d, "started": 1, "boot": %q}`, os.Getpid(), boot(t)),
		"another boot":  fmt.Sprintf(`{"pid": %d, "started": 1, "boot": "x"}`, os.Getpid()),
		"no process":    fmt.Sprintf(`{"pid": 4194304, "started": 1, "boot": %q}`, boot(t)),
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "process.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := qemu.Find(folder); p != nil || err != nil {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "process.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := qemu.Find(folder); err == nil {
		t.Error("a damaged record is taken for none: its process might run twice")
	}
}

func boot(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func TestAMachineThatDoesNotComeUpSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	folder := place(t)
	m := empty(folder)
	m.Kernel = "/nowhere/vmlinuz"
	if _, _, err := qemu.Launch(soon(t), program, m); err == nil ||
		!strings.HasPrefix(
			err.Error(), "QEMU did not come up; it said: qemu",
		) || !strings.Contains(err.Error(), "/nowhere/vmlinuz") || strings.ContainsAny(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if p, err := qemu.Find(folder); p != nil || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if _, _, err := qemu.Launch(soon(t), "qemu-of-nobody", empty(folder)); err == nil ||
		!strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("%v", err)
	}
	// A stand-in that never answers.
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := qemu.Launch(short, "yes", empty(folder)); err == nil {
		t.Error("a program that is no QEMU came up")
	}
	if p, err := qemu.Find(folder); p != nil || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

// QEMU has its log open, and a guest that has taken it over may make it as long as it likes.
func TestALogAsLongAsQEMULikesIsNotReadWhole(t *testing.T) {
	t.Parallel()
	folder := place(t)
	b := qemu.New(qemu.Options{Program: program, Accel: "tcg", Log: slog.New(slog.DiscardHandler)})
	disk := filepath.Join(folder, "disk.qcow2")
	if out, err := exec.CommandContext(
		t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", disk, "1M",
	).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	i, err := b.Start(soon(t), &backend.Spec{
		ID:        "00000000-0000-4000-8000-000000000003",
		Name:      "one",
		Folder:    folder,
		VCPUs:     1,
		MemoryMiB: 64,
		Disks:     []backend.Disk{{ID: "system", Target: disk, Format: "qcow2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	log, err := os.OpenFile(filepath.Join(folder, "qemu.log"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.WriteAt([]byte("\x1b[2Jtaken over\n"), 1<<42); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(i.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-i.Done():
	case <-time.After(time.Minute):
		t.Fatal("its end was not noticed")
	}
	if end := i.Ended(); end.Clean || !strings.HasPrefix(end.Reason, "QEMU was ended by the signal killed") ||
		!strings.HasSuffix(end.Reason, "[2Jtaken over") ||
		strings.ContainsAny(end.Reason, "\x00\x1b") ||
		len(end.Reason) > 2000 {
		t.Errorf("%+v", end)
	}
}

// The file beside the firmware that a VM was given is the VM's, and its process may write it.
func TestFirmwareVariablesOfAnyLengthAreNotReadWhole(t *testing.T) {
	t.Parallel()
	folder := place(t)
	code, vars := filepath.Join(folder, "firmware_CODE.fd"), filepath.Join(folder, "firmware_VARS.fd")
	for _, path := range []string{code, vars} {
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(vars, 1<<42); err != nil {
		t.Fatal(err)
	}
	b := qemu.New(qemu.Options{Program: program, Accel: "tcg", Log: slog.New(slog.DiscardHandler)})
	_, err := b.Start(soon(t), &backend.Spec{
		ID:        "00000000-0000-4000-8000-000000000004",
		Name:      "one",
		Folder:    folder,
		VCPUs:     1,
		MemoryMiB: 64,
		Firmware:  code,
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
}
