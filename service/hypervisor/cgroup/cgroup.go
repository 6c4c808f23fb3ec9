//go:build linux

// Package cgroup limits the host resources of a VM's processes: memory, processors, and the number
// of processes. It uses the control groups of the Linux kernel (cgroups(7)), version 2 or, where a
// host still has them, version 1.
//
// Groups are created below the daemon's own group, in a folder with its name, so they are where
// whoever runs the daemon allows them. With systemd, that requires Delegate=yes, and
// KillMode=process so that VMs keep running when the daemon stops.
//
// # Invariants
//
//   - A group is named after its VM, so a restarted daemon finds and removes it.
//   - Remove removes only groups without processes.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits are the limits of a VM's processes. All are required.
type Limits struct {
	Memory    int64 // bytes
	CPUs      int
	Processes int
}

// Hierarchy is where groups are created.
type Hierarchy struct {
	version int
	// roots are the parent folders of VMs' groups: one with version 2, one per controller with
	// version 1.
	roots map[string]string
}

// controllers are the required controllers.
var controllers = []string{"memory", "cpu", "pids"}

// Open finds a hierarchy that the daemon may use. Its groups are in a folder with this name below
// the daemon's own group, which separates the groups of several daemons. The error is a fault that
// says what is missing.
func Open(folder string) (*Hierarchy, error) {
	const mount, self = "/sys/fs/cgroup", "/proc/self/cgroup"
	raw, err := os.ReadFile(self)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "this host has no control groups")
	}
	own := map[string]string{} // by controller; version 2 has none in this place
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return second(filepath.Join(mount, own[""]), folder)
	}
	h := &Hierarchy{version: 1, roots: map[string]string{}}
	for _, c := range controllers {
		base := filepath.Join(mount, c, own[c])
		if _, err := os.Stat(base); err != nil {
			base = filepath.Join(mount, c) // a container sees its own group as the root
		}
		root := filepath.Join(base, folder)
		if err := os.Mkdir(root, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as groups are
			return nil, refused(err, c)
		}
		h.roots[c] = root
	}
	return h, nil
}

func refused(err error, controller string) error {
	return fault.Wrap(
		fault.Unavailable, err,
		"the host does not let this daemon make control groups (%s); with systemd set Delegate=yes in its unit",
		controller,
	)
}

// second prepares version 2, in which a group with processes cannot limit its children: the daemon
// first moves to a group of its own.
func second(base, folder string) (*Hierarchy, error) {
	leaf, root := filepath.Join(base, "daemon"), filepath.Join(base, folder)
	for _, path := range []string{leaf, root} {
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as groups are
			return nil, refused(err, "version 2")
		}
	}
	// The root group has no such rule, so nothing needs to move.
	if _, err := os.Stat(filepath.Join(base, "cgroup.type")); err == nil {
		if err := write(leaf, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			return nil, refused(err, "version 2")
		}
	}
	for _, path := range []string{base, root} {
		for _, c := range controllers {
			if err := write(path, "cgroup.subtree_control", "+"+c); err != nil {
				return nil, refused(err, c)
			}
		}
	}
	return &Hierarchy{version: 2, roots: map[string]string{"": root}}, nil
}

func write(path, file, value string) error {
	return os.WriteFile(filepath.Join(path, file), []byte(value), 0o644) //nolint:gosec // a file of the kernel's
}

// Create creates the group of a VM, or updates its limits.
func (h *Hierarchy) Create(id string, l Limits) error {
	for c, root := range h.roots {
		path := filepath.Join(root, filepath.Base(id))
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as groups are
			return err
		}
		for file, value := range h.files(c, l) {
			if err := write(path, file, value); err != nil {
				return fmt.Errorf("limit %s to %s: %w", file, value, err)
			}
		}
	}
	return nil
}

// period is the period of CPU quotas, in microseconds.
const period = 100_000

// files returns the control files of a controller and their values.
func (h *Hierarchy) files(controller string, l Limits) map[string]string {
	memory, quota, processes := strconv.FormatInt(l.Memory, 10), strconv.Itoa(l.CPUs*period), strconv.Itoa(l.Processes)
	if h.version == 2 {
		return map[string]string{
			"memory.max": memory,
			"cpu.max":    quota + " " + strconv.Itoa(period),
			"pids.max":   processes,
		}
	}
	return map[string]map[string]string{
		"memory": {"memory.limit_in_bytes": memory},
		"cpu":    {"cpu.cfs_quota_us": quota},
		"pids":   {"pids.max": processes},
	}[controller]
}

// Add moves a process to a VM's group. Its future children are in the group, too. It is not an
// error if the process has ended.
func (h *Hierarchy) Add(id string, pid int) error {
	for _, root := range h.roots {
		if err := write(filepath.Join(root, filepath.Base(id)), "cgroup.procs", strconv.Itoa(pid)); err != nil &&
			!errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// Remove removes the group of a VM, if it exists. The group must have no processes.
func (h *Hierarchy) Remove(id string) error {
	var errs []error
	for _, root := range h.roots {
		if err := removeGroup(filepath.Join(root, filepath.Base(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the control group of %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// removeGroup removes a group's folder; its files belong to the kernel. Processes that have just
// died stay in it for a moment.
func removeGroup(path string) error {
	for patience := 25; ; patience-- {
		err := unix.Rmdir(path)
		if !errors.Is(err, unix.EBUSY) || patience == 0 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Sweep removes the groups of VMs that keep does not report, unless they have processes, and
// returns how many it removed.
func (h *Hierarchy) Sweep(keep func(id string) bool) (removed int, err error) {
	seen := map[string]bool{}
	for _, root := range h.roots {
		entries, readErr := os.ReadDir(root)
		if readErr != nil {
			return removed, readErr
		}
		for _, e := range entries {
			if e.IsDir() && !keep(e.Name()) {
				seen[e.Name()] = true
			}
		}
	}
	for id := range seen {
		if removeErr := h.Remove(id); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		removed++
	}
	return removed, err
}
