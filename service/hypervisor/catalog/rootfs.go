package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/transfer"
)

// TakeRootFS makes a content from an open folder with a root file system. Owners, permissions and
// links are kept. Devices, sockets and pipes are left out, since a sandbox creates its own. The sum
// is that of a listing of all names, permissions and bytes. If check rejects a file, nothing is
// imported. prepare adds files to the copy that are not part of the sum.
func (s *Contents) TakeRootFS(
	ctx context.Context, id string, root *os.File, check func(fs.FileInfo) error, prepare func(*os.Root) error,
) (Content, error) {
	folder, err := s.Incoming(id)
	if err != nil {
		return Content{}, err
	}
	work := filepath.Join(folder, "content")
	c := Content{Kind: RootFS, folder: work}
	if err := errors.Join(
		os.RemoveAll(work), os.MkdirAll(c.RootFSPath(), 0o755),
	); err != nil { //nolint:gosec // guests read it
		return Content{}, err
	}
	if err := os.Chmod(work, 0o711); err != nil { //nolint:gosec // VMs under other uids read contents
		return Content{}, err
	}
	// Links are opened as links, and nothing outside of the opened folder is read: others may
	// change the folder while it is copied.
	from, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
	if err != nil {
		return Content{}, err
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := os.OpenRoot(c.RootFSPath())
	if err != nil {
		return Content{}, err
	}
	defer func() { _ = to.Close() }() // it is synced at the end
	t := &tree{ctx: ctx, from: from, to: to, left: s.MaxSize(), check: check}
	t.listing = sha256.New()
	if err := fs.WalkDir(from.FS(), ".", t.copy); err != nil {
		return Content{}, err
	}
	if err := prepare(to); err != nil {
		return Content{}, err
	}
	c.SHA256 = hex.EncodeToString(t.listing.Sum(nil))
	return s.publish(c, nil)
}

// tree is a copy in progress.
type tree struct {
	ctx      context.Context
	from, to *os.Root
	listing  interface {
		io.Writer
		Sum(b []byte) []byte
	}
	left  int64 // bytes that may still be copied
	check func(fs.FileInfo) error
}

func (t *tree) copy(name string, e fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if err := t.ctx.Err(); err != nil {
		return err
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	if err := t.check(info); err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner", name)
	}
	sum := ""
	switch {
	case name == ".":
		return nil
	case info.IsDir():
		err = t.to.Mkdir(name, info.Mode().Perm())
	case info.Mode()&fs.ModeSymlink != 0:
		if sum, err = t.from.Readlink(name); err == nil {
			err = t.to.Symlink(sum, name)
		}
	case info.Mode().IsRegular():
		sum, err = t.file(name, info)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(t.listing, "%q %o %d %d %q\n", name, info.Mode(), owner.Uid, owner.Gid, sum); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := t.to.Lchown(name, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	return t.to.Chmod(name, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

// file copies a file and returns the SHA-256 of its content.
func (t *tree) file(name string, info fs.FileInfo) (sum string, err error) {
	in, err := t.from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := t.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, hash), transfer.Reader(t.ctx, in, t.left, nil))
	if errors.Is(err, transfer.ErrTooLarge) {
		err = errTooLarge
	}
	if err != nil {
		return "", err
	}
	t.left -= n
	return hex.EncodeToString(hash.Sum(nil)), nil
}
