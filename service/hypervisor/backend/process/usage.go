//go:build linux

package process

import (
	"bytes"
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
	n, err := stat(pid, userTime, systemTime, resident)
	if err != nil {
		return backend.Metrics{}, err
	}
	return backend.Metrics{CPUSeconds: float64(n[0]+n[1]) / ticks, MemoryBytes: n[2] * int64(os.Getpagesize())}, nil
}

// CPUSeconds returns the processor time of a process and of its children that have ended.
func CPUSeconds(pid int) (float64, error) {
	n, err := stat(pid, userTime, systemTime, childrenUserTime, childrenSystemTime)
	if err != nil {
		return 0, err
	}
	return float64(n[0]+n[1]+n[2]+n[3]) / ticks, nil
}

// Fields of /proc/PID/stat, as proc(5) numbers them.
const (
	userTime           = 14
	systemTime         = 15
	childrenUserTime   = 16
	childrenSystemTime = 17
	resident           = 24 // in pages
)

// stat returns fields of /proc/PID/stat.
func stat(pid int, fields ...int) ([]int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// Field 2 is the name in parentheses, which may contain anything.
	const first = 3
	texts := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	numbers := make([]int64, len(fields))
	for i, field := range fields {
		if field-first >= len(texts) {
			return nil, fmt.Errorf("/proc/%d/stat is not as expected", pid)
		}
		if numbers[i], err = strconv.ParseInt(texts[field-first], 10, 64); err != nil {
			return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return numbers, nil
}
