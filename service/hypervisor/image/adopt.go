package image

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/sparse"
)

// Adopt copies the qcow2 image at path, which a VM's process wrote and may still have open, to a
// new file at result, owned by this process, and inspects the copy. Later changes to the old file
// therefore have no effect. The image must have the size in limits and no backing file. On errors,
// there is no result.
func Adopt(ctx context.Context, path, result string, limits Limits) (err error) {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(result, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, removed(result))
		}
	}()
	size, err := copySparse(ctx, out, in, limits.Written)
	if err != nil {
		return err
	}
	info, err := InspectLayer(out, size, "")
	if err != nil {
		return err
	}
	if info.VirtualSize != limits.VirtualSize {
		return refused("is of a disk of %d bytes, and the VM's has %d", info.VirtualSize, limits.VirtualSize)
	}
	return nil
}

// copySparse copies a file with its holes and returns its size.
func copySparse(ctx context.Context, out, in *os.File, limit int64) (size int64, err error) {
	stat, err := in.Stat()
	if err != nil {
		return 0, err
	}
	// The file may grow or shrink during the copy; the copy is limited to the size seen here.
	if size = stat.Size(); !stat.Mode().IsRegular() || size > limit {
		return 0, refused("has a file of %d bytes; %d are allowed", size, limit)
	}
	_, err = sparse.Copy(ctx, out, in, size, func(int64) {})
	return size, err
}
