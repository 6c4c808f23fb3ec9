//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// ticks of a second, in which Linux tells processor time to programs.
const ticks = 100

// guestMemory is the name of the file with the guest's memory.
const guestMemory = "/memfd:runsc-memory"

// Metrics returns the kernel's counters for the sandbox's processes. Memory includes the guest's
// and that of its kernel, but not changes to the root file system.
func (i *Instance) Metrics(context.Context) (backend.Metrics, error) {
	pid := i.process.PID
	m := backend.Metrics{MemoryBytes: memoryFile(pid) + anonymous(pid)}
	spent, err := processorTime(pid)
	if err != nil {
		return backend.Metrics{}, err
	}
	// The guest's programs run in processes below the sandbox. A process that has ended since is
	// counted by its parent.
	for _, child := range descendants(pid) {
		if s, err := processorTime(child); err == nil {
			spent += s
		}
	}
	m.CPUSeconds = float64(spent) / ticks
	m.DiskReadBytes, m.DiskWrittenBytes = field(pid, "io", "read_bytes:"), field(pid, "io", "write_bytes:")
	if i.process.HasEnded() { // and another process may have got its number
		return backend.Metrics{}, fmt.Errorf("the sandbox has ended")
	}
	return m, nil
}

// processorTime returns the time spent by a process and its ended children, in ticks.
func processorTime(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything. The fields are 14 to 17 of proc(5).
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	const first = 14 - 3
	if len(fields) < first+4 {
		return 0, fmt.Errorf("/proc/%d/stat is not as expected", pid)
	}
	var sum int64
	for _, text := range fields[first : first+4] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}

// descendants returns the PIDs of all processes below one.
func descendants(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, list := range lists {
		raw, err := os.ReadFile(list) //nolint:gosec // of /proc
		if err != nil {
			continue // it has ended
		}
		for _, text := range strings.Fields(string(raw)) {
			if child, err := strconv.Atoi(text); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// memoryFile returns how much of the guest's memory is in use, in bytes.
func memoryFile(pid int) int64 {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is right
	for _, link := range links {
		name, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(name, guestMemory) {
			continue
		}
		var stat unix.Stat_t
		if unix.Stat(link, &stat) == nil {
			return stat.Blocks * 512
		}
	}
	return 0
}

// anonymous returns the memory of the sandbox's kernel itself, in bytes.
func anonymous(pid int) int64 { return field(pid, "status", "RssAnon:") << 10 }

// field returns a number from a file in /proc, or 0 if it is missing.
func field(pid int, file, name string) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == name {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}
