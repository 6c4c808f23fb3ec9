//go:build linux

// Package cgroup bounds what the processes of a VM take of the host: memory, processors,
// and their number, by the control groups of the Linux kernel (cgroups(7)), of version 2
// or, where a host still has them, version 1.
//
// Groups are made below the daemon's own, in a folder of its name, so that they are where
// whoever runs the daemon allows them: with systemd that takes Delegate=yes, and
// KillMode=process so that VMs outlive the daemon.
//
// # Invariants
//
//   - A group is named for its VM, so that it is found again and removed after the daemon
//     was killed.
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

// Limits are what a VM's processes may take. All are required.
type Limits struct {
	Memory    int64 // bytes
	CPUs      int
	Processes int
}

// Hierarchy is where groups can be made.
type Hierarchy struct {
	version int
	// roots are the folders in which a VM's folders are made: one with version 2, one for
	// each controller with version 1.
	roots map[string]string
}

// controllers are what limits take.
var controllers = []string{"memory", "cpu", "pids"}

// Open looks for a hierarchy that the daemon may use. Its groups are in a folder of this
// name, below the daemon's own group, so that the groups of several daemons are apart. The
// error is a fault that says what is missing.
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

// second prepares version 2, in which a group with processes cannot have limits for
// groups below it: the daemon moves to one of its own first.
func second(base, folder string) (*Hierarchy, error) {
	leaf, root := filepath.Join(base, "daemon"), filepath.Join(base, folder)
	for _, path := range []string{leaf, root} {
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as groups are
			return nil, refused(err, "version 2")
		}
	}
	// At the root of all there is no such rule, and nothing to move.
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

// Create makes the group of a VM, or sets its limits anew.
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

// period is the time in which processors are counted out, in microseconds.
const period = 100_000

// files are what limits are written to.
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

// Add moves a process into a VM's group. What it starts from then on is in it, too. A
// process that has ended is not an error.
func (h *Hierarchy) Add(id string, pid int) error {
	for _, root := range h.roots {
		if err := write(filepath.Join(root, filepath.Base(id)), "cgroup.procs", strconv.Itoa(pid)); err != nil &&
			!errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// Remove removes the group of a VM, if it is there, which has no processes any more.
func (h *Hierarchy) Remove(id string) error {
	var errs []error
	for _, root := range h.roots {
		if err := removeGroup(filepath.Join(root, filepath.Base(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the control group of %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// removeGroup removes a group's folder, not its files, which are the kernel's. Processes
// that have just died are in it for a moment.
func removeGroup(path string) error {
	for patience := 25; ; patience-- {
		err := unix.Rmdir(path)
		if !errors.Is(err, unix.EBUSY) || patience == 0 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Sweep removes the groups of VMs that are not to be kept, as far as they have no
// processes, and says how many.
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
