//go:build linux

package directory

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// MaxSize is the largest size of a volume, in bytes: what ext4 takes in a file is less, and then the
// file system refuses.
const MaxSize = 1 << 60

// CreateVolume makes an empty volume.
func (d *Driver) CreateVolume(ctx context.Context, spec driver.VolumeSpec) (driver.Volume, error) {
	if err := volumes.check(spec.Name); err != nil {
		return driver.Volume{}, err
	}
	err := d.make(ctx, volumes, spec.Native, func(_ context.Context, folder *os.Root) (description, error) {
		return description{Kind: spec.Kind, Size: spec.Size}, empty(folder, spec)
	})
	if err != nil {
		return driver.Volume{}, err
	}
	return d.Volume(ctx, spec.Name)
}

// empty makes what an empty volume consists of.
func empty(folder *os.Root, spec driver.VolumeSpec) error {
	switch {
	case spec.Size <= 0 || spec.Size > MaxSize:
		return fault.InvalidField("size_bytes", "must be between 1 and %d", int64(MaxSize))
	case spec.Kind == driver.Filesystem:
		return makeContent(folder)
	case spec.Kind != driver.Block:
		return fault.InvalidField("kind", "a folder has volumes of the kinds block and filesystem").WithCode("unsupported")
	}
	f, err := folder.OpenFile(dataFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(spec.Size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeContent makes the folder of a volume for files, in which everybody who reaches it may write, as the
// users of an NFS export expect. The names of volumes cannot be guessed or listed by others.
func makeContent(folder *os.Root) error {
	if err := folder.Mkdir(contentFolder, 0o700); err != nil {
		return err
	}
	return folder.Chmod(contentFolder, 0o777) // whatever the process's umask is
}

// Volume returns a volume.
func (d *Driver) Volume(_ context.Context, n driver.Name) (driver.Volume, error) {
	folder, about, err := d.open(volumes, n)
	if err != nil {
		return driver.Volume{}, err
	}
	v := driver.Volume{Name: n, Kind: about.Kind, Size: about.Size, Used: -1, CreatedAt: about.CreatedAt}
	if about.Kind == driver.Block {
		var info fs.FileInfo
		if info, err = about.data(folder); err == nil {
			v.Size, v.Used, v.Enforced = info.Size(), allocated(info), true
		}
	}
	return v, errors.Join(err, folder.Close())
}

// ExpandVolume makes a volume larger.
func (d *Driver) ExpandVolume(ctx context.Context, n driver.Name, size int64) (driver.Volume, error) {
	if size <= 0 || size > MaxSize {
		return driver.Volume{}, fault.InvalidField("new_size_bytes", "must be between 1 and %d", int64(MaxSize))
	}
	folder, about, err := d.open(volumes, n)
	if err != nil {
		return driver.Volume{}, err
	}
	if err := errors.Join(grow(folder, about, size), folder.Close()); err != nil {
		return driver.Volume{}, full(err)
	}
	return d.Volume(ctx, n)
}

func grow(folder *os.Root, about description, size int64) error {
	if about.Kind == driver.Block {
		if _, err := about.data(folder); err != nil {
			return err
		}
		if err := growData(folder, size); err != nil {
			return err
		}
	}
	if size <= about.Size {
		return nil
	}
	about.Size = size
	return about.write(folder, volumes.file)
}

func growData(folder *os.Root, size int64) error {
	f, err := folder.OpenFile(dataFile, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < size {
		if err = f.Truncate(size); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// DeleteVolume removes a volume.
func (d *Driver) DeleteVolume(_ context.Context, n driver.Name) error {
	if n.Complete {
		if err := d.replacedBy(n); err != nil {
			return err
		}
	}
	return errors.Join(d.remove(volumes, n), d.remove(deleted, n))
}
