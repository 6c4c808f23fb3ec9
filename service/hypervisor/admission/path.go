package admission

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// reading does not wait for somebody who writes, as a pipe in the place of an image would.
const reading = os.O_RDONLY | syscall.O_NONBLOCK

// OpenImage opens the image at an absolute path for reading, if the policy allows it.
// Close it. What is opened is what was checked: hand on the file, not the path.
func (p *Policy) OpenImage(path string) (*os.File, error) { return p.open(path, regular) }

// OpenFolder is OpenImage for a folder, such as a root file system.
func (p *Policy) OpenFolder(path string) (*os.File, error) { return p.open(path, folder) }

// open opens what is at a path, and has it looked at by check.
func (p *Policy) open(path string, check func(*os.File, error) (*os.File, error)) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fault.InvalidField("image", "must be the name of an image in the catalog, or an absolute path")
	}
	if len(p.AllowedImageDirs) == 0 {
		return check(os.OpenFile(path, reading, 0)) //nolint:gosec // the operator lets everything be opened
	}
	clean := filepath.Clean(path)
	for _, dir := range p.AllowedImageDirs {
		below, err := filepath.Rel(filepath.Clean(dir), clean)
		if err != nil || below == ".." || strings.HasPrefix(below, ".."+string(filepath.Separator)) {
			continue
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the folder %s of policy.allowed_image_dirs cannot be opened", dir)
		}
		f, err := check(root.OpenFile(below, reading, 0))
		return f, errors.Join(err, root.Close())
	}
	return nil, refuse("policy.allowed_image_dirs", "the image %s is outside of the folders that are allowed: %s", path, strings.Join(p.AllowedImageDirs, ", "))
}

// regular refuses what is no file.
func regular(f *os.File, err error) (*os.File, error) {
	return ofKind(f, err, fs.FileMode.IsRegular, "is no regular file")
}

// folder refuses what is no folder.
func folder(f *os.File, err error) (*os.File, error) {
	return ofKind(f, err, fs.FileMode.IsDir, "is no folder")
}

func ofKind(f *os.File, err error, right func(fs.FileMode) bool, wrong string) (*os.File, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.InvalidField("image", "there is no such file")
	case err != nil:
		// A link that leads out of the folder is told as any other file that is not there
		// for the caller.
		return nil, fault.InvalidField("image", "cannot be opened: %v", unwrapped(err))
	}
	stat, err := f.Stat()
	if err == nil && !right(stat.Mode()) {
		err = fault.InvalidField("image", "%s", wrong)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unwrapped is the reason without the path, which the caller knows.
func unwrapped(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%w", path.Err)
	}
	return err
}
