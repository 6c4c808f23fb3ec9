//go:build linux

package directory

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// content is the data of a snapshot.
type content struct {
	*os.File
	size int64
}

// ReadSnapshot opens the data of a snapshot of a block volume for do.
func (d *Driver) ReadSnapshot(
	_ context.Context, snapshot driver.Name, do func(driver.Content) error,
) (err error) {
	folder, about, err := d.open(snapshots, snapshot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if about.Kind != driver.Block {
		return fault.New(fault.Invalid, "only block volumes are copied to elsewhere").WithCode("unsupported")
	}
	f, err := folder.OpenFile(dataFile, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fault.New(fault.Unavailable, "the data of the snapshot is not a file")
	}
	return do(&content{f, info.Size()})
}

// Size returns the size of the data.
func (c *content) Size() int64 { return c.size }

// Compares reports that folders do not know what has changed.
func (c *content) Compares() bool { return false }

// Extents are the parts of the file that are not holes. What differs from another snapshot is not known.
func (c *content) Extents(ctx context.Context, since string) iter.Seq2[driver.Extent, error] {
	return func(yield func(driver.Extent, error) bool) {
		if since != "" {
			yield(driver.Extent{}, fault.New(fault.NotFound, "a folder does not tell what has changed since a snapshot"))
			return
		}
		fd := int(c.Fd()) //nolint:gosec // descriptors are small
		for at := int64(0); at < c.size; {
			if ctx.Err() != nil {
				yield(driver.Extent{}, context.Cause(ctx))
				return
			}
			from, err := unix.Seek(fd, at, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				return // the rest is a hole
			}
			to := int64(0)
			if err == nil {
				to, err = unix.Seek(fd, from, unix.SEEK_HOLE)
			}
			if err != nil {
				yield(driver.Extent{}, err)
				return
			}
			if to = min(to, c.size); to <= from || !yield(driver.Extent{Offset: from, Length: to - from}, nil) {
				return
			}
			at = to
		}
	}
}

// FillVolume makes a block volume whose content fill writes. An earlier call that is still under way fails.
func (d *Driver) FillVolume(
	ctx context.Context, spec driver.VolumeSpec, fill func(io.WriterAt) error,
) (driver.Volume, error) {
	if err := volumes.check(spec.Name); err != nil {
		return driver.Volume{}, err
	}
	if spec.Kind != driver.Block {
		return driver.Volume{}, fault.InvalidField("kind", "only block volumes are made of copies").WithCode("unsupported")
	}
	err := d.make(ctx, volumes, spec.Native, func(_ context.Context, folder *os.Root) (description, error) {
		about := description{Kind: spec.Kind, Size: spec.Size}
		if err := empty(folder, spec); err != nil {
			return about, err
		}
		f, err := folder.OpenFile(dataFile, os.O_WRONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return about, err
		}
		err = fill(&filled{d: d, f: f, size: spec.Size})
		if err == nil {
			err = f.Sync()
		}
		return about, errors.Join(err, f.Close())
	})
	if err != nil {
		return driver.Volume{}, err
	}
	return d.Volume(ctx, spec.Name)
}

// roomStep is how many bytes are written between two looks at the room that is left.
const roomStep = 64 << 20

// filled is the data of a volume that is filled. It leaves room, so that volumes can still be deleted.
type filled struct {
	d    *Driver
	f    *os.File
	size int64

	mu    sync.Mutex
	until int64 // bytes that may be written before the next look
}

// WriteAt writes within the volume.
func (f *filled) WriteAt(p []byte, offset int64) (int, error) {
	if offset < 0 || int64(len(p)) > f.size-offset {
		return 0, fault.New(fault.Invalid, "what is written lies beyond the volume")
	}
	f.mu.Lock()
	f.until -= int64(len(p))
	var err error
	if f.until < 0 {
		f.until = min(roomStep, f.size)
		err = f.d.checkRoom(f.until)
	}
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := f.f.WriteAt(p, offset)
	return n, full(err)
}
