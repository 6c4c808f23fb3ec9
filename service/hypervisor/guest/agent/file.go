//go:build linux

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func checkPath(path string) error {
	if !filepath.IsAbs(path) || len(path) > wire.MaxPath || strings.ContainsRune(path, 0) {
		return wire.Errorf(wire.Invalid, "path: must be absolute and of at most %d bytes", wire.MaxPath)
	}
	return nil
}

func (c *call) putFile(ctx context.Context, args wire.PutFile) (any, error) {
	if err := checkPath(args.Path); err != nil {
		return nil, err
	}
	if args.Mode > 0o777 || args.Size < 0 {
		return nil, wire.Errorf(wire.Invalid, "mode and size: cannot be %o and %d", args.Mode, args.Size)
	}
	if info, err := os.Lstat(args.Path); err == nil {
		switch mode := info.Mode(); {
		case mode.IsDir():
			return nil, wire.Errorf(wire.Invalid, "path: %s is a folder", args.Path)
		case !mode.IsRegular() && mode.Type() != fs.ModeSymlink:
			// A device such as /dev/null would be gone.
			return nil, wire.Errorf(wire.Invalid, "path: %s is not a regular file", args.Path)
		}
	}
	if c.freezer.frozen() {
		return nil, wire.Errorf(wire.Frozen, "file systems are frozen")
	}
	return struct{}{}, replaceFile(args.Path, fs.FileMode(args.Mode), &upload{ctx: ctx, call: c, size: args.Size})
}

// upload reads the data of a call until an end that matches it.
type upload struct {
	ctx  context.Context
	call *call
	size int64
}

// Read exists only for io.Reader; io.Copy uses WriteTo.
func (u *upload) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (u *upload) WriteTo(w io.Writer) (n int64, err error) {
	hash := sha256.New()
	for {
		_, data, err := u.call.inbox.Take(u.ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
		if n += int64(len(data)); n > u.size {
			return n, wire.Errorf(wire.Invalid, "more data than the %d bytes of the file", u.size)
		}
		if _, err := io.MultiWriter(hash, w).Write(data); err != nil {
			return n, err
		}
		if err := u.call.consumed(u.ctx, len(data)); err != nil {
			return n, err
		}
	}
	var sum wire.Sum
	if err := json.Unmarshal(u.call.inbox.Trailer(), &sum); err != nil || n != u.size || sum.Size != n ||
		sum.SHA256 != hex.EncodeToString(hash.Sum(nil)) {
		return n, wire.Errorf(wire.Invalid, "the data is not what its size and checksum say")
	}
	return n, nil
}

// replaceFile writes r to the file at path, completely or not at all. The file is on disk when it
// returns.
func replaceFile(path string, mode fs.FileMode, r io.Reader) error {
	folder := filepath.Dir(path)
	tmp, err := os.CreateTemp(folder, ".mainstay-*") // of mode 0600
	if err != nil {
		return err
	}
	if _, err = io.Copy(tmp, r); err == nil {
		err = errors.Join(tmp.Chmod(mode), tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (c *call) getFile(ctx context.Context, args wire.GetFile) (any, error) {
	if err := checkPath(args.Path); err != nil {
		return nil, err
	}
	// Opening a pipe must not block.
	f, err := os.OpenFile(args.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Some files of the kernel's, such as /proc/kmsg, wait for something to read.
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, wire.Errorf(wire.Invalid, "path: %s is not a regular file", args.Path)
	}
	var content io.Reader = f
	size := info.Size()
	if size == 0 {
		size = -1 // perhaps a file of the kernel's, which has content but no size
	} else {
		content = io.LimitReader(f, size) // it may be growing
	}
	if err := c.sender.Send(
		ctx, wire.With(c.id, wire.OpHead, wire.Head{Mode: uint32(info.Mode().Perm()), Size: size}),
	); err != nil {
		return nil, err
	}
	hash := sha256.New()
	n, err := c.sender.Copy(ctx, c.id, wire.Output, io.TeeReader(content, hash), c.budget)
	if err != nil {
		return nil, err
	}
	if size >= 0 && n != size {
		return nil, fmt.Errorf("%s shrank while it was read", args.Path)
	}
	return wire.Sum{Size: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}
