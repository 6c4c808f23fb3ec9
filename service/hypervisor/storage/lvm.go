package storage

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// LVMPool stores disks as thin volumes of a volume group, using LVM's programs (lvm(8)).
type LVMPool struct {
	Group string // the volume group
	Thin  string // its thin pool
}

// Name is lvm-thin.
func (LVMPool) Name() string { return LVMThin }

func (LVMPool) volume(v Volume) string { return "mainstay-" + v.VM }

func (p LVMPool) device(v Volume) string { return "/dev/" + p.Group + "/" + p.volume(v) }

func lvm(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "lvm", "lvm2", args...)
}

// Create makes the volume, and writes the base to it.
func (p LVMPool) Create(ctx context.Context, v Volume, base *Base) error {
	if err := p.Remove(ctx, v); err != nil {
		return err
	}
	size := v.Size
	if base != nil {
		size = max(size, base.Size)
	}
	if _, err := lvm(
		ctx, "lvcreate", "--quiet", "--yes", "--wipesignatures", "n", "--type", "thin", "--thinpool", p.Thin,
		"--virtualsize", strconv.FormatInt(size, 10)+"b", "--name", p.volume(v), p.Group,
	); err != nil {
		return err
	}
	if base != nil {
		// A fresh thin volume reads as zeros, which need not be written.
		if _, err := run(
			ctx, "qemu-img", "qemu-utils", "convert", "-q", "-n", "--target-is-zero", "-f", base.Format, "-O",
			"raw", base.Path, p.device(v),
		); err != nil {
			return err
		}
	}
	if v.UID == 0 {
		return nil
	}
	return os.Chown(p.device(v), v.UID, v.GID)
}

// Disk is the volume's device.
func (p LVMPool) Disk(v Volume) backend.Disk {
	return backend.Disk{ID: "system", Target: p.device(v), Format: "raw"}
}

// Resize makes the volume larger.
func (p LVMPool) Resize(ctx context.Context, v Volume, size int64) error {
	_, err := lvm(ctx, "lvextend", "--quiet", "--size", strconv.FormatInt(size, 10)+"b", p.Group+"/"+p.volume(v))
	return err
}

// Remove removes the volume.
func (p LVMPool) Remove(ctx context.Context, v Volume) error {
	out, err := lvm(ctx, "lvs", "--noheadings", "--options", "lv_name", "--select", "lv_name="+p.volume(v), p.Group)
	if err != nil || strings.TrimSpace(out) == "" {
		return err
	}
	_, err = lvm(ctx, "lvremove", "--quiet", "--yes", p.Group+"/"+p.volume(v))
	return err
}

// NBDPool uses disks that another server exports over the network block device protocol. An export
// must exist, with the size that the VM needs, before the VM is created. Bases are written to it.
type NBDPool struct {
	// Server is the address of an export, with %s for the VM's id: unix:/path/%s.sock or
	// host:port/%s.
	Server string
}

// Name is nbd.
func (NBDPool) Name() string { return NBD }

func (p NBDPool) target(v Volume) string { return "nbd:" + fmt.Sprintf(p.Server, v.VM) }

// url is the target as qemu-img is told it (NBD's own URI scheme).
func (p NBDPool) url(v Volume) string {
	if path, ok := strings.CutPrefix(fmt.Sprintf(p.Server, v.VM), "unix:"); ok {
		return "nbd+unix:///?socket=" + path
	}
	return "nbd://" + fmt.Sprintf(p.Server, v.VM)
}

// Create checks that the export exists and writes the base to it.
func (p NBDPool) Create(ctx context.Context, v Volume, base *Base) error {
	if base == nil {
		_, err := run(ctx, "qemu-img", "qemu-utils", "info", "-f", "raw", p.url(v))
		return unexported(err, v)
	}
	_, err := run(
		ctx, "qemu-img", "qemu-utils", "convert", "-q", "-n", "-f", base.Format, "-O", "raw", base.Path, p.url(v),
	)
	return unexported(err, v)
}

func unexported(err error, v Volume) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(
		fault.Unavailable, err,
		"the export for VM %s cannot be reached; see storage.nbd_server in the daemon's document", v.VM,
	)
}

// Disk is the export.
func (p NBDPool) Disk(v Volume) backend.Disk {
	return backend.Disk{ID: "system", Target: p.target(v), Format: "raw"}
}

// Resize always fails: exports are resized on their server.
func (NBDPool) Resize(context.Context, Volume, int64) error {
	return fault.New(fault.Conflict, "disks of the storage nbd are resized where they are exported")
}

// Remove does nothing: the export belongs to its server.
func (NBDPool) Remove(context.Context, Volume) error { return nil }
