// Package durable writes small files that must survive any crash intact: keys, certificates,
// credentials, states.
//
// Invariants: no reader ever sees part of a file; once a call has returned, the file survives power
// loss; if several processes create the same file, one wins and the others see its content.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Create creates a file with content at path. If the file already exists, it is left unchanged and
// Create returns nil: read the file afterwards to learn its content. The directory must exist on a
// file system with hard links.
func Create(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	// CreateTemp uses mode 0600, so a secret is private from the start.
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := write(tmp, content, mode); err != nil {
		return err
	}
	// Linking a finished file into place, rather than renaming it, fails if the
	// name is taken.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncFolder(dir)
}

// leftFor is how long a file of an unfinished Create is left alone: another process may be at it.
const leftFor = time.Minute

// CleanUp removes what processes that were killed in Create have left beside path.
func CleanUp(path string) error {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), "."+filepath.Base(path)+"-") {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < leftFor {
			continue // another process has just removed it, or is about to
		}
		if err := Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// TempPrefix begins the names of files that Replace is writing. Files that are left after a crash
// may be removed.
const TempPrefix = ".tmp-"

// Replace creates or replaces the file at path with content.
func Replace(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, TempPrefix+"*") // of mode 0600
	if err != nil {
		return err
	}
	if err = write(tmp, content, mode); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return SyncFolder(dir)
}

// Remove removes a file. It is not an error if the file does not exist.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

func write(f *os.File, content []byte, mode fs.FileMode) error {
	_, err := f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncFolder makes files that were created or renamed in a directory survive power loss.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
