// Package dir keeps the objects of a backup repository as files in a folder.
//
//	tmp/        files that are being written
//	<the rest>  objects, by their names
//
// # Invariants
//
//   - A file is written in tmp/, synced and then linked into place, which fails if the name is taken.
//     The folder is synced before Put returns.
//   - Files have mode 0600, folders 0700.
//   - No name leads out of the folder, and symbolic links in place of objects are refused.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
)

const temporary = "tmp"

// staleAfter is how long a file in tmp/ is left alone: another process may be writing it.
const staleAfter = 24 * time.Hour

// Dir is a folder with objects.
type Dir struct {
	root *os.Root
	path string
}

// Open opens a folder, which is created if it is missing. Its parent must exist. It removes what
// processes that were killed have left in tmp/ a day ago.
func Open(path string, now time.Time) (*Dir, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, failed(err, "the folder of the repository %s cannot be created", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the folder of the repository %s cannot be opened", path)
	}
	d := &Dir{root, path}
	if err := d.prepare(now); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

func (d *Dir) prepare(now time.Time) error {
	if err := d.root.Mkdir(temporary, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(err, "the folder of the repository %s cannot be written", d.path)
	}
	left, err := fs.ReadDir(d.root.FS(), temporary)
	if err != nil {
		return err
	}
	for _, e := range left {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < staleAfter {
			continue // another process has just removed it, or may be writing it
		}
		if err := d.root.Remove(path.Join(temporary, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Path returns the path of the folder.
func (d *Dir) Path() string { return d.path }

// Close closes the folder.
func (d *Dir) Close() error { return d.root.Close() }

// Put creates a file.
func (d *Dir) Put(ctx context.Context, name string, content []byte) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	tmp := path.Join(temporary, rand.Text())
	err := d.write(tmp, content)
	if err == nil {
		err = d.link(tmp, name)
	}
	if removed := d.root.Remove(tmp); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return failed(err, "%s cannot be written to the repository %s", name, d.path)
}

func (d *Dir) write(name string, content []byte) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// link puts a finished file into place. New folders are synced from the top down.
func (d *Dir) link(tmp, name string) error {
	folder := path.Dir(name)
	err := d.root.Link(tmp, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := d.makeFolders(folder); err != nil {
			return err
		}
		err = d.root.Link(tmp, name)
	}
	if err != nil {
		return err
	}
	return d.sync(folder)
}

func (d *Dir) makeFolders(folder string) error {
	parent := "."
	for _, part := range strings.Split(folder, "/") {
		if part == "." {
			continue
		}
		here := path.Join(parent, part)
		if err := d.root.Mkdir(here, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := d.sync(parent); err != nil {
			return err
		}
		parent = here
	}
	return nil
}

func (d *Dir) sync(folder string) error {
	f, err := d.root.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// open opens an object, which must be a regular file.
func (d *Dir) open(ctx context.Context, name string) (*os.File, fs.FileInfo, error) {
	if err := check(ctx, name); err != nil {
		return nil, nil, err
	}
	// The root follows links that stay within it, whatever the flags say.
	here, err := d.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	// Without O_NONBLOCK, opening a pipe would wait for its writer.
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(here, info)) {
		err = fault.New(fault.Invalid, "%s in the repository %s is not a regular file", name, d.path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// Get reads a file.
func (d *Dir) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, info, err := d.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, fault.New(fault.TooLarge, "%s has %d bytes, more than %d", name, info.Size(), limit)
	}
	content := make([]byte, info.Size())
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return content, nil
}

// GetRange reads a part of a file.
func (d *Dir) GetRange(ctx context.Context, name string, offset int64, p []byte) error {
	f, info, err := d.open(ctx, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if offset < 0 || offset > info.Size() || int64(len(p)) > info.Size()-offset {
		return fault.New(fault.Invalid, "%s has %d bytes, too few for %d from %d on", name, info.Size(), len(p), offset)
	}
	if _, err := f.ReadAt(p, offset); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// List walks the files.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := store.CheckPrefix(prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		top := path.Clean(prefix) // "." if it is empty
		err := fs.WalkDir(d.root.FS(), top, func(name string, e fs.DirEntry, err error) error {
			if cancelled := ctx.Err(); cancelled != nil {
				return cancelled
			}
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed meanwhile, or nothing has this prefix yet
			case err != nil:
				return err
			case e.IsDir() && name == temporary:
				return fs.SkipDir
			case e.IsDir():
				return nil
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(store.Info{Name: name, Size: info.Size(), Modified: info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(store.Info{}, err)
		}
	}
}

// Delete removes a file.
func (d *Dir) Delete(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	if err := d.root.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return failed(err, "%s cannot be removed from the repository %s", name, d.path)
	}
	return d.sync(path.Dir(name))
}

// Stat describes a file.
func (d *Dir) Stat(ctx context.Context, name string) (store.Info, error) {
	f, info, err := d.open(ctx, name)
	if err != nil {
		return store.Info{}, err
	}
	return store.Info{Name: name, Size: info.Size(), Modified: info.ModTime()}, f.Close()
}

func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return store.CheckName(name)
}

// failed returns the fault for an error of a write. What callers tell apart stays as it is.
func failed(err error, format string, args ...any) error {
	switch {
	case err == nil, errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(fault.StorageFailed, err,
			"the storage is full: "+format+"; delete backups, whose room is free some hours later, or enlarge it", args...)
	}
	return fault.Wrap(fault.StorageFailed, err, format, args...)
}
