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
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// guestMemory is the name of the file with the guest's memory.
const guestMemory = "/memfd:runsc-memory"

// Metrics returns the kernel's counters for the sandbox's processes. Memory includes the guest's
// and that of its kernel, but not changes to the root file system.
func (i *Instance) Metrics(context.Context) (backend.Metrics, error) {
	pid := i.process.PID
	m := backend.Metrics{MemoryBytes: memoryFile(pid) + anonymous(pid)}
	var err error
	if m.CPUSeconds, err = process.CPUSeconds(pid); err != nil {
		return backend.Metrics{}, err
	}
	// The guest's programs run in processes below the sandbox. A process that has ended since is
	// counted by its parent.
	for _, child := range process.Descendants(pid) {
		if seconds, err := process.CPUSeconds(child); err == nil {
			m.CPUSeconds += seconds
		}
	}
	m.DiskReadBytes, m.DiskWrittenBytes = field(pid, "io", "read_bytes:"), field(pid, "io", "write_bytes:")
	if i.process.HasEnded() { // and another process may have got its number
		return backend.Metrics{}, fmt.Errorf("the sandbox has ended")
	}
	return m, nil
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
