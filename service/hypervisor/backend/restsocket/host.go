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

// versionLimit is how long a program may take to say its version.
const versionLimit = 10 * time.Second

// Version is what a program says that its version is, after a prefix by which it is known
// to be the right one.
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

// KVM is a fault that says what is amiss with the host's virtualization, as far as that is
// seen without a guest.
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

// Usage is what the host's kernel says that a process uses: processors, memory, and what it
// read from and wrote to disks. Disks are left out where the daemon may not know.
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
