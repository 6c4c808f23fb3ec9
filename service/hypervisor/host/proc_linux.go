package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tapCounters returns the bytes that the guest received and sent through a tap device. What the
// host sends is what the guest receives.
func tapCounters(device string) (received, sent int64) {
	read := func(name string) int64 {
		path := filepath.Join("/sys/class/net", filepath.Base(device), "statistics", name)
		raw, err := os.ReadFile(path) //nolint:gosec // a device's name
		if err != nil {
			return 0 // the device was removed with its VM
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return read("tx_bytes"), read("rx_bytes")
}

// memoryOfHost returns the host's memory in MiB, or 0 if it is unknown.
func memoryOfHost() int {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				return 0
			}
			return kib >> 10
		}
	}
	return 0
}
