// Package storage keeps the disks of VMs: as files, or in systems that the host is a
// client of.
//
// # Invariants
//
//   - Create and Remove can be repeated: a daemon that was killed in the middle does them
//     again, and nothing is left or lost.
//   - A base is never written.
//   - What a VM's process could write to is opened by programs under the VM's uid only: such
//     a file may name others of the host.
package storage

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// The names of the storages, as requests call them.
const (
	Dir            = "dir"
	LVMThin        = "lvm-thin"
	NBD            = "nbd"
	CephRBD        = "ceph-rbd"
	CephRBDInPlace = "ceph-rbd-in-place"
)

// Volume is a VM's system disk.
type Volume struct {
	VM     string // the VM's id
	Folder string // the VM's own
	Size   int64  // in bytes; 0: as large as the base
	UID    int    // who shall be able to write it; 0: the daemon
	GID    int
}

// Base is what a disk begins with.
type Base struct {
	Path   string
	Format string // qcow2 or raw
	Size   int64  // of the disk, in bytes
}

// Pool makes disks in one storage.
type Pool interface {
	Name() string
	// Create makes the disk of a VM that is being made, of a base or, with nil, empty.
	Create(ctx context.Context, v Volume, base *Base) error
	// Disk is how the VM's backend reaches it.
	Disk(v Volume) backend.Disk
	// Resize makes the disk of a VM without a process larger.
	Resize(ctx context.Context, v Volume, size int64) error
	// Remove removes it, if it is there.
	Remove(ctx context.Context, v Volume) error
}

// run runs a program of the host's, and answers with what it printed.
func run(ctx context.Context, program, install string, args ...string) (string, error) {
	return outputOf(
		ctx, exec.CommandContext(ctx, program, args...), install,
	) //nolint:gosec // arguments are values of ours
}

// runAs is run of a program that opens a VM's disk: it may open what the VM's process may,
// and has nothing of the daemon's in its environment, which that process could read.
func runAs(ctx context.Context, v Volume, program, install string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // arguments are values of ours
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	if v.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(v.UID), Gid: uint32(v.GID)},
		} //nolint:gosec // checked with the document
	}
	return outputOf(ctx, cmd, install)
}

func outputOf(ctx context.Context, cmd *exec.Cmd, install string) (string, error) {
	program := filepath.Base(cmd.Path)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return "", fault.Wrap(
			fault.Unavailable, err, "this storage takes %s, which is missing: apt-get install %s", program, install,
		)
	}
	text := strings.TrimSpace(said.String())
	if strings.Contains(text, "No space left on device") || strings.Contains(text, "Disk quota exceeded") {
		return "", fault.Wrap(fault.StorageFailed, err, "the host's storage is full")
	}
	return "", fault.Wrap(fault.Internal, err, "%s failed: %s", program, text)
}
