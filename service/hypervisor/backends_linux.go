package hypervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/cloudhypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/firecracker"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
)

// localBackends are those that this host may have.
func (s *Service) localBackends() map[string]backend.Backend {
	jails := s.doc.Jailer.ChrootBaseDir
	if jails == "" {
		jails = filepath.Join(s.data, "jails")
	}
	return map[string]backend.Backend{
		backend.QEMU:            qemu.New(qemu.Options{Program: s.cfg.QEMU, Accel: s.cfg.Accel, CacheFile: filepath.Join(s.data, "accelerator.json"), Log: s.log}),
		backend.Sandbox:         sandbox.New(sandbox.Options{Program: s.cfg.Runsc, Agent: s.agentProgram()}),
		backend.Firecracker:     firecracker.New(firecracker.Options{Program: s.cfg.Firecracker, Jailer: firecracker.Jailer{Enabled: s.doc.Jailer.Enabled, Binary: s.doc.Jailer.JailerBinary, ChrootBase: jails}, Log: s.log}),
		backend.CloudHypervisor: cloudhypervisor.New(cloudhypervisor.Options{Program: s.cfg.CloudHypervisor, Firmware: s.cfg.CloudHypervisorFirmware, Log: s.log}),
	}
}

// tapCounters are what went through a tap device: what the host sends is what the guest
// receives.
func tapCounters(device string) (received, sent int64) {
	read := func(name string) int64 {
		raw, err := os.ReadFile(filepath.Join("/sys/class/net", filepath.Base(device), "statistics", name)) //nolint:gosec // a device's name
		if err != nil {
			return 0 // the device has gone with its VM
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return read("tx_bytes"), read("rx_bytes")
}

// memoryOfHost is the host's memory in MiB.
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

// descendants are the processes below one.
func descendants(pid int) []int {
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil
	}
	var all []int
	for _, list := range lists {
		raw, err := os.ReadFile(list) //nolint:gosec // of /proc
		if err != nil {
			continue // it has ended
		}
		for field := range strings.FieldsSeq(string(raw)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}
