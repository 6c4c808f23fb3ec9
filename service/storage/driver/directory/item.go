//go:build linux

package directory

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/sparse"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

const (
	dataFile      = "data"
	contentFolder = "content"
)

// maxDescription is the most bytes of a description.
const maxDescription = 64 << 10

// description is what volume.json and snapshot.json hold.
type description struct {
	Kind        driver.Kind        `json:"kind"`
	Size        int64              `json:"size_bytes"`
	Source      string             `json:"source,omitempty"` // of a snapshot: its volume
	Consistency driver.Consistency `json:"consistency,omitempty"`
	CreatedAt   time.Time          `json:"created_at"`
}

// shelf is the place of all volumes, of all that were deleted and are kept, or of all snapshots.
type shelf struct {
	folder, file string
	noun         string
	mode         fs.FileMode // of their folders
}

var (
	volumes   = shelf{volumesFolder, "volume.json", "volume", 0o711}
	deleted   = shelf{deletedFolder, volumes.file, volumes.noun, volumes.mode}
	snapshots = shelf{snapshotsFolder, "snapshot.json", "snapshot", 0o700}
)

func (s shelf) errNone(native string) error {
	return fault.New(fault.NotFound, "the storage has no %s %s", s.noun, native)
}

// check refuses names that the gateway does not make.
func (s shelf) check(n driver.Name) error {
	switch {
	case n.Pool != PoolName:
		return fault.New(fault.NotFound, "the storage has no pool %s", n.Pool)
	case !driver.IsMade(n.Native):
		return s.errNone(n.Native)
	}
	return nil
}

// open opens an item. The caller closes its folder.
func (d *Driver) open(s shelf, n driver.Name) (folder *os.Root, about description, err error) {
	if err := s.check(n); err != nil {
		return nil, about, err
	}
	if folder, err = d.root.OpenRoot(path.Join(s.folder, n.Native)); err != nil {
		if gone(err) {
			err = s.errNone(n.Native)
		}
		return nil, about, full(err)
	}
	if about, err = describe(folder, s.file); err != nil {
		return nil, about, errors.Join(full(err), folder.Close())
	}
	return folder, about, nil
}

// data describes the data of a block volume or of a snapshot of one. What others have put in its place, or cut off, is
// a fault.
func (about *description) data(folder *os.Root) (fs.FileInfo, error) {
	info, err := folder.Lstat(dataFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.Unavailable, "the file with the data of the volume is missing")
	case err != nil:
		return nil, full(err)
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.Unavailable, "the data of the volume is not a regular file")
	case info.Size() < about.Size:
		return nil, fault.New(fault.Unavailable, "the file with the data of the volume has %d bytes, and should have %d",
			info.Size(), about.Size)
	}
	return info, nil
}

func describe(folder *os.Root, file string) (about description, err error) {
	f, err := folder.Open(file)
	if err != nil {
		return about, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return about, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxDescription {
		return about, fault.New(fault.Unavailable, "the description of the volume is damaged")
	}
	err = json.NewDecoder(f).Decode(&about)
	if err != nil || about.Kind != driver.Block && about.Kind != driver.Filesystem {
		return about, fault.Wrap(fault.Unavailable, err, "the description of the volume is damaged")
	}
	return about, nil
}

// write stores the description of an item.
func (about *description) write(folder *os.Root, file string) error {
	raw, err := json.Marshal(about)
	if err != nil {
		return err
	}
	tmp := "." + file
	f, err := folder.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = folder.Rename(tmp, file)
	}
	if err != nil {
		return errors.Join(full(err), ignoreNotExist(folder.Remove(tmp)))
	}
	return syncFolder(folder, ".")
}

// make makes an item, which fill fills. If it is there already, it does nothing.
func (d *Driver) make(
	ctx context.Context, s shelf, native string, fill func(ctx context.Context, folder *os.Root) (description, error),
) error {
	if err := d.same(); err != nil {
		return err
	}
	if _, err := d.root.Lstat(path.Join(s.folder, native)); !errors.Is(err, fs.ErrNotExist) {
		return full(err)
	}
	if err := d.forgetAttempts(native); err != nil {
		return err
	}
	attempt := path.Join(incomingFolder, native+"."+strings.ToLower(rand.Text()))
	if err := d.root.Mkdir(attempt, s.mode); err != nil {
		return full(err)
	}
	err := d.fill(ctx, s, attempt, fill)
	if err == nil {
		err = d.root.Rename(attempt, path.Join(s.folder, native))
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil // another process has made it
	}
	if err != nil {
		return errors.Join(full(err), d.root.RemoveAll(attempt))
	}
	return errors.Join(d.root.RemoveAll(attempt), syncFolder(d.root, s.folder))
}

// fill fills the folder of an attempt, up to its description.
func (d *Driver) fill(
	ctx context.Context, s shelf, attempt string, fill func(ctx context.Context, folder *os.Root) (description, error),
) error {
	folder, err := d.root.OpenRoot(attempt)
	if err != nil {
		return err
	}
	about, err := fill(ctx, folder)
	if err == nil {
		about.CreatedAt = time.Now().UTC()
		err = about.write(folder, s.file)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, folder.Close())
}

// forgetAttempts removes what other attempts to make an item have left. One that is still under way
// fails by that.
func (d *Driver) forgetAttempts(native string) error {
	return d.each(incomingFolder, func(e fs.DirEntry) error {
		if !strings.HasPrefix(e.Name(), native+".") {
			return nil
		}
		return d.root.RemoveAll(path.Join(incomingFolder, e.Name()))
	})
}

// remove removes an item. It is gone at once; its content goes afterwards.
func (d *Driver) remove(s shelf, n driver.Name) error {
	if err := s.check(n); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	if err := errors.Join(d.same(), d.forgetAttempts(n.Native)); err != nil {
		return err
	}
	trash := path.Join(trashFolder, n.Native+"."+strings.ToLower(rand.Text()))
	err := d.root.Rename(path.Join(s.folder, n.Native), trash)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return full(err)
	}
	if err := errors.Join(syncFolder(d.root, s.folder), syncFolder(d.root, trashFolder)); err != nil {
		return err
	}
	return d.each(trashFolder, func(e fs.DirEntry) error { // also what an attempt that was killed has left
		if !strings.HasPrefix(e.Name(), n.Native+".") {
			return nil
		}
		return d.root.RemoveAll(path.Join(trashFolder, e.Name()))
	})
}

// checkRoom refuses a copy that would not leave reserve bytes.
func (d *Driver) checkRoom(needed int64) error {
	room, err := d.room()
	if err != nil {
		return err
	}
	if needed > room.free-reserve(room.total) {
		return fault.New(fault.StorageFailed, "a copy needs %d bytes, and the storage has %d left, of which %d are "+
			"kept free for deletions", needed, room.free, reserve(room.total))
	}
	return nil
}

// reserve is what copies leave free, so that volumes can still be deleted: 1 %, at most 1 GiB.
func reserve(total int64) int64 { return min(total/100, 1<<30) }

// full turns errors of a full file system, and of one that others have changed, into a fault.
func full(err error) error {
	if place := replaced(err); place != "" {
		return fault.Wrap(fault.Unavailable, err, "something else is in the place of %s in the folder of the backend", place)
	}
	for _, of := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EROFS} {
		if errors.Is(err, of) {
			return fault.Wrap(fault.StorageFailed, err, "the storage takes no more data: %s", of)
		}
	}
	return err
}

// replaced returns where a file or a folder was expected and something else is; empty: that is not what has failed.
func replaced(err error) string {
	place, cause := "", error(nil)
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		place, cause = at.Path, at.Err
	} else if at, ok := errors.AsType[*os.LinkError](err); ok {
		place, cause = at.Old, at.Err
	}
	// The package os does not export its error for a symbolic link that leads out of an os.Root.
	if cause == nil || !errors.Is(cause, unix.ELOOP) && !errors.Is(cause, unix.ENOTDIR) &&
		cause.Error() != "path escapes from parent" {
		return ""
	}
	return place
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func syncFolder(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func allocated(info fs.FileInfo) int64 {
	const blockSize = 512 // whatever the file system's is
	return info.Sys().(*syscall.Stat_t).Blocks * blockSize
}

// copyData copies the data of a block volume.
func copyData(ctx context.Context, to, from *os.Root, size int64, told func(bytes int64)) (shared bool, err error) {
	in, err := from.OpenFile(dataFile, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := to.OpenFile(dataFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	shared, err = sparse.Copy(ctx, out, in, size, told)
	if err == nil {
		err = out.Sync()
	}
	return shared, errors.Join(err, out.Close())
}
