package pki

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// createOnce puts a file with content at path, whole and durable, unless there is
// one already. Linking a finished file into place, rather than renaming it, fails
// if the name is taken, so of several writers the first wins and no reader sees a
// part of a file.
func createOnce(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	// CreateTemp gives the mode 0600, so the key is private from the start.
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return storage(err, "create a file in %s", dir)
	}
	defer os.Remove(tmp.Name())
	if err := writeDurably(tmp, content, mode); err != nil {
		return storage(err, "write %s", tmp.Name())
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return storage(err, "create %s", path)
	}
	if err := syncDir(dir); err != nil {
		return storage(err, "sync %s", dir)
	}
	return nil
}

func writeDurably(f *os.File, content []byte, mode fs.FileMode) error {
	_, err := f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func storage(cause error, format string, args ...any) error {
	return fault.Wrap(fault.StorageFailed, cause, "pki: "+format, args...)
}
