//go:build linux

package restsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// versionLimit is the timeout for running a program with --version.
const versionLimit = 10 * time.Second

// Version returns the version that a program prints after prefix, which identifies the program.
func Version(ctx context.Context, program, prefix string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output() //nolint:gosec // the operator's program
	line, _, _ := strings.Cut(string(out), "\n")
	version, ours := strings.CutPrefix(line, prefix)
	if err != nil || !ours {
		return "", fmt.Errorf("%s does not say its version: it is damaged, or another program", program)
	}
	return printable(version), nil
}

// KVM returns a fault that describes why KVM is unavailable, as far as that can be seen without
// running a guest.
func KVM() error {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err == nil {
		return kvm.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		return fault.Wrap(
			fault.Unavailable, err, "/dev/kvm may not be opened by this daemon: run it as root or in group kvm",
		)
	}
	return fault.Wrap(
		fault.Unavailable, err,
		"this host has no KVM (/dev/kvm): switch virtualization on in its firmware, or nested virtualization where it is a VM itself; modprobe kvm_intel or kvm_amd",
	)
}

// Usage returns the processor time, memory and disk I/O of a process as reported by the kernel.
// Disk I/O is omitted if the daemon may not read it.
func Usage(pid int) (backend.Metrics, error) {
	m, err := process.Usage(pid)
	if err != nil {
		return m, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if errors.Is(err, fs.ErrPermission) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		into := map[string]*int64{"read_bytes": &m.DiskReadBytes, "write_bytes": &m.DiskWrittenBytes}[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseInt(value, 10, 64); err != nil {
			return m, fmt.Errorf("/proc/%d/io: %w", pid, err)
		}
	}
	return m, nil
}
