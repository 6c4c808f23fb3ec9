//go:build linux

package directory

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/mainstay-infra/mainstay/kit/sparse"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// CreateSnapshot copies a volume.
func (d *Driver) CreateSnapshot(
	ctx context.Context, of, name driver.Name, progress func(float64),
) (driver.Snapshot, error) {
	name.Pool = of.Pool
	if err := snapshots.check(name); err != nil {
		return driver.Snapshot{}, err
	}
	err := d.make(ctx, snapshots, name.Native, func(ctx context.Context, to *os.Root) (description, error) {
		from, about, err := d.open(volumes, of)
		if err != nil {
			return about, err
		}
		about.Source = of.Native
		about.Size, about.Consistency, err = d.copy(ctx, to, from, about, progress)
		return about, errors.Join(err, from.Close())
	})
	if err != nil {
		return driver.Snapshot{}, err
	}
	return d.Snapshot(ctx, name)
}

// copy copies the data or the content of a volume or snapshot, and returns its size and what the copy is worth if
// it was written to meanwhile.
func (d *Driver) copy(
	ctx context.Context, to, from *os.Root, about description, progress func(float64),
) (size int64, worth driver.Consistency, err error) {
	if about.Kind == driver.Filesystem {
		return about.Size, driver.NotConsistent, d.copyContent(ctx, to, from, progress)
	}
	info, err := about.data(from)
	if err != nil {
		return 0, "", err
	}
	total := allocated(info)
	if err := d.checkRoom(total); err != nil {
		if shared, tryErr := d.sharesBlocks(to, from); tryErr != nil || !shared {
			return 0, "", errors.Join(err, tryErr)
		}
	}
	shared, err := copyData(ctx, to, from, info.Size(), func(bytes int64) {
		progress(min(1, float64(bytes)/float64(max(total, 1))))
	})
	if shared {
		return info.Size(), driver.CrashConsistent, err
	}
	return info.Size(), driver.NotConsistent, err
}

// copyContent copies the content of a volume for files.
func (d *Driver) copyContent(ctx context.Context, to, from *os.Root, progress func(float64)) (err error) {
	in, err := from.OpenRoot(contentFolder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := to.Mkdir(contentFolder, 0o700); err != nil {
		return err
	}
	out, err := to.OpenRoot(contentFolder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	total, err := treeSize(ctx, in, 0)
	if err != nil {
		return err
	}
	if err := d.checkRoom(total); err != nil {
		return err
	}
	var done int64
	return copyTree(ctx, in, out, func(bytes int64) {
		done += bytes
		progress(min(1, float64(done)/float64(max(total, 1))))
	})
}

// sharesBlocks reports whether a copy of the data would share its blocks.
func (d *Driver) sharesBlocks(to, from *os.Root) (bool, error) {
	const probe = ".probe"
	in, err := from.Open(dataFile)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := to.Create(probe)
	if err != nil {
		return false, err
	}
	shared := sparse.Share(out, in)
	return shared, errors.Join(out.Close(), to.Remove(probe))
}

// Snapshot returns a snapshot.
func (d *Driver) Snapshot(_ context.Context, n driver.Name) (driver.Snapshot, error) {
	folder, about, err := d.open(snapshots, n)
	if err != nil {
		return driver.Snapshot{}, err
	}
	s := driver.Snapshot{
		Name: n, Source: about.Source, Kind: about.Kind, Size: about.Size, Used: -1, Consistency: about.Consistency,
		CreatedAt: about.CreatedAt,
	}
	if about.Kind == driver.Block {
		var info fs.FileInfo
		if info, err = about.data(folder); err == nil {
			s.Used = allocated(info)
		}
	}
	return s, errors.Join(err, folder.Close())
}

// DeleteSnapshot removes a snapshot.
func (d *Driver) DeleteSnapshot(_ context.Context, n driver.Name) error {
	return d.remove(snapshots, n)
}

// CloneSnapshot makes a volume with the content of a snapshot.
func (d *Driver) CloneSnapshot(
	ctx context.Context, of driver.Name, spec driver.VolumeSpec, progress func(float64),
) (driver.Volume, error) {
	if err := volumes.check(spec.Name); err != nil {
		return driver.Volume{}, err
	}
	err := d.make(ctx, volumes, spec.Native, func(ctx context.Context, to *os.Root) (description, error) {
		from, about, err := d.open(snapshots, of)
		if err != nil {
			return about, err
		}
		about.Source, about.Consistency = "", ""
		if about.Size, _, err = d.copy(ctx, to, from, about, progress); err == nil && spec.Size > about.Size {
			about.Size = spec.Size
			if about.Kind == driver.Block {
				err = growData(to, spec.Size)
			}
		}
		return about, errors.Join(err, from.Close())
	})
	if err != nil {
		return driver.Volume{}, err
	}
	return d.Volume(ctx, spec.Name)
}
