//go:build linux

package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// ticks per second in which the kernel reports times to user space, regardless of its own timer.
const ticks = 100

// Usage returns the processor time and memory of a process as reported by the kernel.
func Usage(pid int) (backend.Metrics, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return backend.Metrics{}, err
	}
	// The name in parentheses may contain anything. The fields are 14, 15 and 24 of proc(5).
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	const user, system, resident = 14 - 3, 15 - 3, 24 - 3
	if len(fields) <= resident {
		return backend.Metrics{}, fmt.Errorf("/proc/%d/stat is not as expected", pid)
	}
	var n [3]int64
	for i, place := range []int{user, system, resident} {
		if n[i], err = strconv.ParseInt(fields[place], 10, 64); err != nil {
			return backend.Metrics{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return backend.Metrics{CPUSeconds: float64(n[0]+n[1]) / ticks, MemoryBytes: n[2] * int64(os.Getpagesize())}, nil
}
