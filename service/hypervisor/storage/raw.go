package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// RawPool stores disks as sparse raw files in their VMs' folders, for backends that support nothing
// else. A disk is a full copy of its base.
type RawPool struct{}

// Name is dir.
func (RawPool) Name() string { return Dir }

func (RawPool) path(v Volume) string { return filepath.Join(v.Folder, "disk.raw") }

// Create makes the file.
func (p RawPool) Create(ctx context.Context, v Volume, base *Base) error {
	path := p.path(v)
	if err := p.Remove(ctx, v); err != nil {
		return err
	}
	if base != nil {
		if _, err := run(
			ctx, "qemu-img", "qemu-utils", "convert", "-q", "-f", base.Format, "-O", "raw", base.Path, path,
		); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the VM's own folder
	if err != nil {
		return err
	}
	if v.Size > 0 {
		err = f.Truncate(v.Size)
	}
	return errors.Join(err, f.Close(), os.Chmod(path, 0o600), own(path, v))
}

// Disk is the file.
func (p RawPool) Disk(v Volume) backend.Disk {
	return backend.Disk{ID: "system", Target: p.path(v), Format: "raw"}
}

// Resize makes the disk larger.
func (p RawPool) Resize(ctx context.Context, v Volume, size int64) error {
	_, err := runAs(
		ctx, v, "qemu-img", "qemu-utils", "resize", "-q", "-f", "raw", p.path(v), strconv.FormatInt(size, 10),
	)
	return err
}

// Remove removes the file.
func (p RawPool) Remove(_ context.Context, v Volume) error {
	if err := os.Remove(p.path(v)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
