//go:build linux

package cgroup_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/cgroup"
)

func TestAGroupHasItsLimitsAndItsProcessesAndGoesWithTheLastOfThem(t *testing.T) {
	t.Parallel()
	h, err := cgroup.Open(fmt.Sprintf("mainstay-test-%d-%s", os.Getpid(), t.Name()))
	if err != nil {
		require.Missing(t, "%v", err)
	}
	id := fmt.Sprintf("test-%d", os.Getpid())
	if err := h.Create(id, cgroup.Limits{Memory: 64 << 20, CPUs: 1, Processes: 3}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Remove(id) })
	sleeper := exec.CommandContext(
		t.Context(), "sh", "-c", "read line; for i in 1 2 3 4 5 6; do sleep 600 & done; wait",
	)
	in, err := sleeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A file, since a pipe would be waited for until the last of them has closed it.
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	sleeper.Stderr = said
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if err := h.Add(id, sleeper.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(id); err == nil {
		t.Error("a group with a process was removed")
	}
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", sleeper.Process.Pid)); err != nil ||
		!strings.Contains(string(raw), "/"+id) {
		t.Errorf("%s, %v", raw, err)
	}
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	// The shell ends when it may fork no more.
	_ = sleeper.Wait()
	if raw, err := os.ReadFile(said.Name()); err != nil || !strings.Contains(string(raw), "fork") {
		t.Errorf("there were more processes than the limit: %q, %v", raw, err)
	}
	for _, pid := range members(t, id) {
		if err := exec.CommandContext(
			t.Context(), "kill", "-9", pid,
		).Run(); err != nil { //nolint:gosec // the test's own
			t.Error(err)
		}
	}
	if err := h.Remove(id); err != nil {
		t.Error(err)
	}
	if err := h.Add("nobody", os.Getpid()); err == nil {
		t.Error("a process was moved to a group that is not there")
	}
}

// members are the processes of a group, by any controller.
func members(t *testing.T, id string) (pids []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), "/"+id) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func TestGroupsOfVMsThatAreGoneAreSweptAndOthersStay(t *testing.T) {
	t.Parallel()
	h, err := cgroup.Open(fmt.Sprintf("mainstay-test-%d-%s", os.Getpid(), t.Name()))
	if err != nil {
		require.Missing(t, "%v", err)
	}
	prefix := fmt.Sprintf("sweep-%d-", os.Getpid())
	for _, name := range []string{"a", "b"} {
		if err := h.Create(prefix+name, cgroup.Limits{Memory: 64 << 20, CPUs: 1, Processes: 10}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Remove(prefix + name) })
	}
	n, err := h.Sweep(func(id string) bool { return id != prefix+"a" })
	if err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := h.Sweep(func(id string) bool { return id != prefix+"a" }); err != nil || n != 0 {
		t.Errorf("again: %d, %v", n, err)
	}
}
