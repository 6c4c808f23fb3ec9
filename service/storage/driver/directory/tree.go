//go:build linux

package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/sparse"
)

// maxDepth is how deep folders may be nested in a volume that is copied. Each level takes file descriptors.
const maxDepth = 500

// namesAtOnce is how many names of a folder are read at once.
const namesAtOnce = 256

// maxLinks limits how many files with several names are remembered. The names of others become files of
// their own.
const maxLinks = 100_000

// errDeep is the fault for folders that are nested too deep.
var errDeep = fault.New(fault.Conflict, "the volume has folders that are nested more than %d deep", maxDepth)

// eachEntry calls do with the entries of a folder, of which it holds only some in memory.
func eachEntry(ctx context.Context, folder *os.Root, do func(fs.DirEntry) error) error {
	f, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	for {
		entries, err := f.ReadDir(namesAtOnce)
		for _, e := range entries {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := do(e); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// treeSize returns the bytes that the files in a folder take. Files with several names count for each.
func treeSize(ctx context.Context, folder *os.Root, depth int) (total int64, err error) {
	if depth > maxDepth {
		return 0, errDeep
	}
	err = eachEntry(ctx, folder, func(e fs.DirEntry) error {
		switch e.Type() {
		case 0:
			if info, err := folder.Lstat(e.Name()); err == nil { // else it was removed meanwhile
				total += allocated(info)
			}
		case fs.ModeDir:
			sub, err := folder.OpenRoot(e.Name())
			if gone(err) {
				return nil
			}
			if err != nil {
				return err
			}
			more, err := treeSize(ctx, sub, depth+1)
			total += more
			return errors.Join(err, sub.Close())
		}
		return nil
	})
	return total, err
}

// copier copies a tree of files.
type copier struct {
	top *os.Root // the copy
	// links are the copies of files with several names, by device and number: their paths below top.
	links map[[2]uint64]string
	// told gets the bytes that were copied since the last call.
	told func(bytes int64)
}

// level is a folder that is copied. Everything is opened by its name in the folder, not by its path, so that
// the time for a file does not grow with its depth.
type level struct {
	from, to *os.Root
	path     string // below the top
	depth    int
}

// copyTree copies what is in a folder into another one, which is empty: files with their holes, folders,
// symbolic links as they are, names of the same file as such, with owners, modes, times and extended
// attributes. Devices, sockets and pipes are left out. Users may change what is copied meanwhile;
// whatever they do, nothing outside of it is read.
func copyTree(ctx context.Context, from, to *os.Root, told func(bytes int64)) error {
	c := &copier{top: to, links: map[[2]uint64]string{}, told: told}
	return c.folder(ctx, level{from: from, to: to})
}

func (c *copier) folder(ctx context.Context, l level) error {
	if l.depth > maxDepth {
		return errDeep
	}
	if err := eachEntry(ctx, l.from, func(e fs.DirEntry) error { return c.entry(ctx, l, e) }); err != nil {
		return err
	}
	in, err := l.from.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := l.to.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(like(out, in, info), out.Sync(), out.Close())
}

func (c *copier) entry(ctx context.Context, l level, e fs.DirEntry) error {
	switch e.Type() {
	case fs.ModeDir:
		return c.subfolder(ctx, l, e.Name())
	case fs.ModeSymlink:
		return symlink(l, e.Name())
	case 0:
		return c.file(ctx, l, e.Name())
	}
	return nil
}

func (c *copier) subfolder(ctx context.Context, l level, name string) (err error) {
	from, err := l.from.OpenRoot(name)
	if gone(err) {
		return nil // it was removed, or became something else
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := l.to.Mkdir(name, 0o700); err != nil {
		return err
	}
	to, err := l.to.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return c.folder(ctx, level{from, to, path.Join(l.path, name), l.depth + 1})
}

func symlink(l level, name string) error {
	target, err := l.from.Readlink(name)
	if gone(err) || errors.Is(err, unix.EINVAL) {
		return nil // it was removed, or became something else
	}
	if err == nil {
		err = l.to.Symlink(target, name)
	}
	if err != nil {
		return err
	}
	info, err := l.from.Lstat(name)
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return nil //nolint:nilerr // it is something else by now, and the link was right
	}
	owner := info.Sys().(*syscall.Stat_t)
	return allowed(l.to.Lchown(name, int(owner.Uid), int(owner.Gid)))
}

func (c *copier) file(ctx context.Context, l level, name string) error {
	in, err := l.from.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	stat := info.Sys().(*syscall.Stat_t)
	id, at := [2]uint64{stat.Dev, stat.Ino}, path.Join(l.path, name)
	if first, ok := c.links[id]; ok {
		return c.top.Link(first, at)
	}
	out, err := l.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if stat.Nlink > 1 && len(c.links) < maxLinks {
		c.links[id] = at
	}
	var before int64
	_, err = sparse.Copy(ctx, out, in, info.Size(), func(n int64) {
		c.told(n - before)
		before = n
	})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // it was cut off meanwhile: the copy of what is written to is not consistent anyway
	}
	if err == nil {
		err = like(out, in, info)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// like gives a copy the attributes of what it was made of.
func like(to, from *os.File, info fs.FileInfo) error {
	stat := info.Sys().(*syscall.Stat_t)
	if err := copyAttributes(to, from); err != nil {
		return err
	}
	if err := allowed(to.Chown(int(stat.Uid), int(stat.Gid))); err != nil {
		return err
	}
	if err := unix.Fchmod(int(to.Fd()), stat.Mode&0o7777); err != nil { //nolint:gosec // descriptors are small
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", to.Fd()), []unix.Timespec{
		{Sec: stat.Atim.Sec, Nsec: stat.Atim.Nsec}, {Sec: stat.Mtim.Sec, Nsec: stat.Mtim.Nsec},
	}, 0)
}

// allowed drops errors that say that only root may do this.
func allowed(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// copyAttributes copies extended attributes, as far as both file systems and our rights allow.
func copyAttributes(to, from *os.File) error {
	in, out := int(from.Fd()), int(to.Fd()) //nolint:gosec // descriptors are small
	size, err := unix.Flistxattr(in, nil)
	if err != nil || size == 0 {
		return ignored(err)
	}
	names := make([]byte, size)
	if size, err = unix.Flistxattr(in, names); err != nil {
		return ignored(err)
	}
	for _, name := range splitZero(names[:size]) {
		value := make([]byte, maxAttribute)
		n, err := unix.Fgetxattr(in, name, value)
		if err == nil {
			err = unix.Fsetxattr(out, name, value[:n], 0)
		}
		if ignored(err) != nil {
			return err
		}
	}
	return nil
}

// maxAttribute is the most bytes of an extended attribute on Linux (XATTR_SIZE_MAX).
const maxAttribute = 64 << 10

func splitZero(names []byte) (all []string) {
	begin := 0
	for i, b := range names {
		if b == 0 {
			all = append(all, string(names[begin:i]))
			begin = i + 1
		}
	}
	return all
}

// ignored drops errors that say that an extended attribute cannot be had here.
func ignored(err error) error {
	for _, harmless := range []error{unix.ENOTSUP, unix.EPERM, unix.EACCES, unix.ENODATA, unix.ERANGE} {
		if errors.Is(err, harmless) {
			return nil
		}
	}
	return err
}

// gone reports whether something was removed or replaced by something of another kind meanwhile.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ENXIO)
}
