// Package storage manages the disks of VMs: as files, or in storage systems of which the host is a
// client.
//
// # Invariants
//
//   - Create and Remove are idempotent: if a daemon is killed in between, they are repeated, and
//     nothing is leaked or lost.
//   - A base is never written.
//   - Programs run under the VM's uid to open what a VM's process could write to: such a file may
//     refer to other files of the host.
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

// Names of the storages in requests.
const (
	Dir            = "dir"
	LVMThin        = "lvm-thin"
	NBD            = "nbd"
	CephRBD        = "ceph-rbd"
	CephRBDInPlace = "ceph-rbd-in-place"
)

// Volume is a disk of a VM.
type Volume struct {
	VM     string // the VM's id
	Data   string // the id of a disk beside the system disk, in DirPool only; empty: the system disk
	Folder string // the VM's own
	Size   int64  // in bytes; 0: as large as the base
	UID    int    // owner of the disk; 0: the daemon
	GID    int
}

// Base is the initial content of a disk.
type Base struct {
	Path   string
	Format string // qcow2 or raw
	Size   int64  // of the disk, in bytes
}

// Pool creates disks in one storage.
type Pool interface {
	Name() string
	// Create creates the disk of a new VM from a base, or an empty disk if base is nil.
	Create(ctx context.Context, v Volume, base *Base) error
	// Disk returns the disk as the VM's backend accesses it.
	Disk(v Volume) backend.Disk
	// Resize grows the disk of a VM without a process to size bytes.
	Resize(ctx context.Context, v Volume, size int64) error
	// Remove removes the disk if it exists.
	Remove(ctx context.Context, v Volume) error
}

// run runs a program of the host and returns its output.
func run(ctx context.Context, program, install string, args ...string) (string, error) {
	return outputOf(
		ctx, exec.CommandContext(ctx, program, args...), install,
	) //nolint:gosec // arguments are values of ours
}

// runAs runs a program that opens a VM's disk. It has the VM's uid, and none of the daemon's
// environment, which the VM's process could read.
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
