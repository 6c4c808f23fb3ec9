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

// DirPool stores disks as qcow2 files in their VMs' folders. A disk with a base stores only the
// differences from it.
type DirPool struct{}

// Name is dir.
func (DirPool) Name() string { return Dir }

// DiskFile is the name of a disk in its VM's folder.
const DiskFile = "disk.qcow2"

// Path is the file of a disk.
func (DirPool) Path(v Volume) string {
	if v.Data != "" {
		return filepath.Join(v.Folder, "data-"+filepath.Base(v.Data)+".qcow2")
	}
	return filepath.Join(v.Folder, DiskFile)
}

// CreateCopy makes the file with all of a base's content, so that it does not need the base any more.
func (p DirPool) CreateCopy(ctx context.Context, v Volume, base *Base) error {
	path := p.Path(v)
	if err := p.Remove(ctx, v); err != nil {
		return err
	}
	if _, err := run(
		ctx, "qemu-img", "qemu-utils", "convert", "-q", "-f", base.Format, "-O", "qcow2", base.Path, path,
	); err != nil {
		return err
	}
	if v.Size > base.Size {
		if _, err := run(
			ctx, "qemu-img", "qemu-utils", "resize", "-q", "-f", "qcow2", path, strconv.FormatInt(v.Size, 10),
		); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(path, 0o600), own(path, v))
}

// Create makes the file.
func (p DirPool) Create(ctx context.Context, v Volume, base *Base) error {
	path := p.Path(v)
	if err := p.Remove(ctx, v); err != nil {
		return err
	}
	args, size := []string{"create", "-q", "-f", "qcow2"}, v.Size
	if base != nil {
		// The base may be a shared disk that another VM has open, so it is not opened here (-u).
		args = append(args, "-u", "-b", base.Path, "-F", base.Format)
		if size == 0 {
			size = base.Size
		}
	}
	args = append(args, path)
	if size > 0 {
		args = append(args, strconv.FormatInt(size, 10))
	}
	if _, err := run(ctx, "qemu-img", "qemu-utils", args...); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path, 0o600), own(path, v))
}

// own makes the VM's user the owner of a file.
func own(path string, v Volume) error {
	if v.UID == 0 {
		return nil
	}
	return os.Lchown(path, v.UID, v.GID)
}

// Disk is the file.
func (p DirPool) Disk(v Volume) backend.Disk {
	id := "system"
	if v.Data != "" {
		id = backend.DataPrefix + v.Data
	}
	return backend.Disk{ID: id, Target: p.Path(v), Format: "qcow2"}
}

// Resize makes the disk larger.
func (p DirPool) Resize(ctx context.Context, v Volume, size int64) error {
	_, err := runAs(
		ctx, v, "qemu-img", "qemu-utils", "resize", "-q", "-f", "qcow2", p.Path(v), strconv.FormatInt(size, 10),
	)
	return err
}

// Remove removes the file.
func (p DirPool) Remove(_ context.Context, v Volume) error {
	if err := os.Remove(p.Path(v)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Revert reverts a closed disk to one of its internal snapshots.
func (p DirPool) Revert(ctx context.Context, v Volume, name string) error {
	_, err := runAs(ctx, v, "qemu-img", "qemu-utils", "snapshot", "-q", "-a", name, p.Path(v))
	return err
}

// CreateQcow2 creates an empty qcow2 file of size bytes, owned by the volume's owner.
func CreateQcow2(ctx context.Context, path string, size int64, v Volume) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := run(
		ctx, "qemu-img", "qemu-utils", "create", "-q", "-f", "qcow2", path, strconv.FormatInt(size, 10),
	); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path, 0o600), own(path, v))
}

// Own makes the volume's owner the owner of a file.
func Own(path string, v Volume) error { return own(path, v) }

// SetBacking sets the backing file of an inspected qcow2 file that contains the differences from
// it. Nothing is compared or copied, and the backing file is not opened.
func SetBacking(ctx context.Context, path, backing string) error {
	_, err := run(
		ctx, "qemu-img", "qemu-utils", "rebase", "-q", "-u", "-f", "qcow2", "-b", backing, "-F", "qcow2", path,
	)
	return err
}
