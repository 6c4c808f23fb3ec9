package admission

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// reading does not wait for somebody who writes, as a pipe in the place of an image would.
const reading = os.O_RDONLY | syscall.O_NONBLOCK

// Files are the files of the host, as one who names them by a path may have them opened.
type Files struct {
	policy *Policy
	admin  bool
}

// Files are those that an admin may name, or anybody else.
func (p *Policy) Files(admin bool) Files { return Files{p, admin} }

// Image opens the file at an absolute path for reading, if the policy allows it. Close it.
// What is opened is what was checked: hand on the file, not the path.
func (f Files) Image(path string) (*os.File, error) {
	return f.open(path, func(m fs.FileMode) bool { return m.IsRegular() }, "is not a regular file")
}

// ImageOrFolder is Image, and opens a folder, such as a root file system, too.
func (f Files) ImageOrFolder(path string) (*os.File, error) {
	return f.open(
		path, func(m fs.FileMode) bool { return m.IsRegular() || m.IsDir() }, "is neither a regular file nor a folder",
	)
}

// errOwn is said of whatever is the daemon's own.
var errOwn = fault.InvalidField(
	"image",
	"is in the daemon's own folders, or holds one of them: nothing there is taken for an image",
)

// open opens what is at a path, and looks at what it has opened.
func (f Files) open(path string, right func(fs.FileMode) bool, wrong string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fault.InvalidField("image", "must be the name of an image in the catalog, or an absolute path")
	}
	opened, err := f.find(path)
	if err != nil {
		return nil, err
	}
	stat, err := opened.Stat()
	if err == nil && !right(stat.Mode()) {
		err = fault.InvalidField("image", "%s", wrong)
	}
	if err == nil {
		err = f.policy.refuseOwn(opened, stat)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// find opens what is at a path where the policy lets it be opened.
func (f Files) find(path string) (*os.File, error) {
	p := f.policy
	if len(p.AllowedImageDirs) == 0 {
		if !f.admin {
			return nil, RefuseField(
				limitDirs,
				"image",
				"files of the host are for admins: take an image of the catalog; "+
					"an admin can add the file to it, or name its folder in policy.allowed_image_dirs",
			)
		}
		opened, err := os.OpenFile(
			path, reading, 0,
		) //nolint:gosec // an admin may open everything but what is the daemon's own
		return opened, explained(err)
	}
	clean := filepath.Clean(path)
	for _, dir := range p.AllowedImageDirs {
		below, err := filepath.Rel(filepath.Clean(dir), clean)
		if err != nil || below == ".." || strings.HasPrefix(below, ".."+string(filepath.Separator)) {
			continue
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fault.Wrap(
				fault.Unavailable, err, "the folder %s of policy.allowed_image_dirs cannot be opened", dir,
			)
		}
		opened, err := root.OpenFile(below, reading, 0)
		return opened, errors.Join(explained(err), root.Close())
	}
	return nil, refuse(
		limitDirs, "the image %s is outside of the folders that are allowed: %s", path,
		strings.Join(p.AllowedImageDirs, ", "),
	)
}

const limitDirs = "policy.allowed_image_dirs"

// refuseOwn refuses what lies in a folder of the daemon's own, or holds one. The kernel says
// where the open file is, so that it does not matter by which links it was reached.
func (p *Policy) refuseOwn(opened *os.File, stat fs.FileInfo) error {
	at, err := placeOf(opened)
	if err != nil {
		return err
	}
	own, err := p.own()
	if err != nil {
		return err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		// A folder that is mounted in a second place has another path, and is the same still.
		if info, err := os.Stat(dir); err == nil && isOneOf(own, info) {
			return errOwn
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if isOneOf(own, stat) {
		return errOwn
	}
	for _, one := range own {
		if below, err := filepath.Rel(at, one.at); stat.IsDir() && err == nil && below != ".." &&
			!strings.HasPrefix(below, ".."+string(filepath.Separator)) {
			return errOwn
		}
	}
	return nil
}

// placeOf is where the kernel says that an open file is.
func placeOf(f *os.File) (string, error) {
	at, err := os.Readlink("/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.EvalSymlinks(f.Name()) // not on Linux, where no VMs run
	}
	return at, err
}

// place is a file or folder of the daemon's own, wherever links in its path lead.
type place struct {
	at   string
	info fs.FileInfo
}

func isOneOf(own []place, info fs.FileInfo) bool {
	return slices.ContainsFunc(own, func(one place) bool { return os.SameFile(one.info, info) })
}

// own are the daemon's folders and what is right below: an operator may have put one of
// those on another disk, with a link in its place, or mounted it elsewhere, too.
func (p *Policy) own() ([]place, error) {
	var all []place
	for _, dir := range p.OwnDirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		paths := []string{dir}
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
		for _, path := range paths {
			at, err := filepath.EvalSymlinks(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, err
			}
			info, err := os.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, place{at, info})
		}
	}
	return all, nil
}

// RefuseOwn is a check of files that are met below a folder which was opened before: it
// refuses those of the daemon's own, however they came to be there.
func (p *Policy) RefuseOwn() (func(fs.FileInfo) error, error) {
	own, err := p.own()
	return func(info fs.FileInfo) error {
		if isOneOf(own, info) {
			return errOwn
		}
		return nil
	}, err
}

// explained is why a file cannot be opened, as callers may read it. A link that leads out of
// the folder is told as any other file that is not there for the caller.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.InvalidField("image", "there is no such file")
	}
	return fault.InvalidField("image", "cannot be opened: %v", unwrapped(err))
}

// unwrapped is the reason without the path, which the caller knows.
func unwrapped(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%w", path.Err)
	}
	return err
}

// About is a fault about an image as one about another field of a request.
func About(err error, field string) error {
	f := fault.From(err)
	if f.Field != "image" {
		return err
	}
	named := fault.InvalidField(field, "%s", strings.TrimPrefix(f.Message, "image: ")).WithLimit(f.Limit)
	named.Code = f.Code
	return named
}
