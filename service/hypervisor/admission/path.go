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

// reading includes O_NONBLOCK, so that opening a pipe in place of an image does not block.
const reading = os.O_RDONLY | syscall.O_NONBLOCK

// Files gives access to files of the host by path, with the caller's permissions.
type Files struct {
	policy *Policy
	admin  bool
}

// Files returns the files that an admin, or any other caller, may open.
func (p *Policy) Files(admin bool) Files { return Files{p, admin} }

// Any reports whether the caller may open any file of the host.
func (f Files) Any() bool { return f.admin || len(f.policy.AllowedImageDirs) > 0 }

// Image opens the file at an absolute path for reading if the policy allows it. The caller must
// close it. The checks apply to the opened file: pass on the file, not the path.
func (f Files) Image(path string) (*os.File, error) {
	return f.open(path, func(m fs.FileMode) bool { return m.IsRegular() }, "is not a regular file")
}

// ImageOrFolder is like Image, but also opens folders, such as root file systems.
func (f Files) ImageOrFolder(path string) (*os.File, error) {
	return f.open(
		path, func(m fs.FileMode) bool { return m.IsRegular() || m.IsDir() }, "is neither a regular file nor a folder",
	)
}

const limitShares = "policy.allowed_share_dirs"

// Share opens a folder below policy.allowed_share_dirs, for a guest. The kernel resolves the path below
// the allowed folder, so that no link leads outside, even if it is swapped in meanwhile. Errors are about
// the field source.
func (p *Policy) Share(path string) (*os.File, error) {
	const field = "source"
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, fault.InvalidField(field, "must be an absolute path without . and ..")
	}
	for _, dir := range p.AllowedShareDirs {
		below, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsLocal(below) {
			continue
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the folder %s of %s cannot be opened", dir, limitShares)
		}
		opened, err := root.OpenFile(below, reading, 0)
		if err = errors.Join(explained(err), root.Close()); err != nil {
			return nil, About(err, field)
		}
		stat, err := opened.Stat()
		if err == nil && !stat.IsDir() {
			err = fault.InvalidField(field, "is not a folder")
		}
		if err == nil && p.refuseOwn(opened, stat) != nil {
			err = fault.InvalidField(field, "is one of the daemon's own folders, or holds one")
		}
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		return opened, nil
	}
	return nil, RefuseField(limitShares, field, "is not below a folder of %s", limitShares)
}

// errOwn is the error for files in the daemon's own folders.
var errOwn = fault.InvalidField(
	"image",
	"is in the daemon's own folders, or holds one of them: nothing there is taken for an image",
)

// open opens a path and checks what was opened.
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

// find opens a path if the policy allows it.
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

// refuseOwn fails for files in the daemon's own folders, and for folders that contain one of these.
// The kernel reports where the open file is, so the links on the way to it do not matter.
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
		// A folder that is mounted twice has several paths but is still the same folder.
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

// placeOf returns the location of an open file as reported by the kernel.
func placeOf(f *os.File) (string, error) {
	at, err := os.Readlink("/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.EvalSymlinks(f.Name()) // not on Linux, where no VMs run
	}
	return at, err
}

// place is a file or folder of the daemon's own, with links in its path resolved.
type place struct {
	at   string
	info fs.FileInfo
}

func isOneOf(own []place, info fs.FileInfo) bool {
	return slices.ContainsFunc(own, func(one place) bool { return os.SameFile(one.info, info) })
}

// own returns the daemon's folders and their direct entries: an operator may have put one of these
// on another disk, linked it, or mounted it elsewhere, too.
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
				continue // it was removed since
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

// RefuseOwn returns a check for files below an opened folder. It fails for the daemon's own files,
// however they got there.
func (p *Policy) RefuseOwn() (func(fs.FileInfo) error, error) {
	own, err := p.own()
	return func(info fs.FileInfo) error {
		if isOneOf(own, info) {
			return errOwn
		}
		return nil
	}, err
}

// explained translates the error of opening a file for callers. A link that leads out of the folder
// is reported like a missing file.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.InvalidField("image", "there is no such file")
	}
	return fault.InvalidField("image", "cannot be opened: %v", unwrapped(err))
}

// unwrapped returns the error without the path, which the caller knows.
func unwrapped(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%w", path.Err)
	}
	return err
}

// About turns a fault about the field image into one about another field.
func About(err error, field string) error {
	f := fault.From(err)
	if f.Field != "image" {
		return err
	}
	named := fault.InvalidField(field, "%s", strings.TrimPrefix(f.Message, "image: ")).WithLimit(f.Limit)
	named.Code = f.Code
	return named
}
