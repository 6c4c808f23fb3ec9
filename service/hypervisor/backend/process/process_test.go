//go:build linux

package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// sleeper is a process that nobody waits for until the test ends.
func sleeper(t *testing.T) *process.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := process.Hold(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestAProcessIsFoundAgainUntilItEndsEvenIfNobodyTookNoteOfThat(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	p := sleeper(t)
	if err := p.Note(folder); err != nil {
		t.Fatal(err)
	}
	again, err := process.Find(folder)
	if err != nil || again == nil || again.PID != p.PID || again.HasEnded() {
		t.Fatalf("found %+v, %v", again, err)
	}
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, held := range []*process.Process{p, again} {
		select {
		case <-held.Done():
		case <-time.After(time.Minute):
			t.Fatal("its end was not noticed")
		}
	}
	// It is a zombie now.
	if gone, err := process.Find(folder); gone != nil || err != nil {
		t.Errorf("found %+v, %v after its end", gone, err)
	}
	if err := again.Kill(); err != nil {
		t.Errorf("killing what has ended: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnotherProcessOfTheSameNumberIsNotTaken(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	boot := strings.TrimSpace(string(raw))
	for what, content := range map[string]string{
		"another start": fmt.Sprintf(`{"pid": %d, "started": 1, "boot": %q}`, os.Getpid(), boot),
		"another boot":  fmt.Sprintf(`{"pid": %d, "started": 1, "boot": "x"}`, os.Getpid()),
		"no process":    fmt.Sprintf(`{"pid": 4194304, "started": 1, "boot": %q}`, boot),
	} {
		if p, err := process.Find(recorded(t, content)); p != nil || err != nil {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	for _, damaged := range []string{"", "{", `{"pid": -1}`} {
		if _, err := process.Find(recorded(t, damaged)); err == nil {
			t.Errorf("%q is taken for none: its process might run twice", damaged)
		}
	}
	if p, err := process.Find(t.TempDir()); p != nil || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := process.Hold(4194304); !errors.Is(err, unix.ESRCH) {
		t.Errorf("%v", err)
	}
}

func recorded(t *testing.T, content string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, process.RecordFile), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestForgettingRemovesTheRecordAndWhatWasLeftOfWritingOne(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := sleeper(t).Note(folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".tmp-123", "disk.qcow2"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := process.Forget(folder); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 || left[0].Name() != "disk.qcow2" {
		t.Errorf("%v, %v", left, err)
	}
	if err := process.Forget(filepath.Join(folder, "gone")); err != nil {
		t.Error(err)
	}
}
