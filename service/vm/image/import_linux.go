package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/transfer"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Import begins to take in a file of the host.
func (m *Manager) Import(ctx context.Context, r Request) (record.Image, error) {
	f, err := m.openImport(r.Spec.Path, r.Spec.Format)
	if err != nil {
		return record.Image{}, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return record.Image{}, err
	}
	if info.Size() > m.cfg.MaxSize {
		return record.Image{}, m.tooLarge()
	}
	return m.begin(ctx, record.JobImageImport, r)
}

// openImport opens a file below one of the folders from which files may be imported. It follows no symbolic
// links, and opens regular files only.
func (m *Manager) openImport(path, format string) (*os.File, error) {
	if len(m.cfg.ImportFolders) == 0 {
		return nil, fault.New(fault.Denied, "files of the host may not be imported: the setting image-import-folders names no folder").
			WithCode("image_import_off")
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return nil, fault.InvalidField("path", "must be an absolute path without . and ..")
	}
	for _, folder := range m.cfg.ImportFolders {
		below, err := filepath.Rel(folder, path)
		if err != nil || !filepath.IsLocal(below) || below == "." {
			continue
		}
		f, err := openBelow(folder, below)
		if err != nil {
			return nil, err
		}
		if err := checkFormat(f, format); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return nil, fault.InvalidField("path", "is not below a folder of the setting image-import-folders")
}

func openBelow(folder, below string) (*os.File, error) {
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "a folder of the setting image-import-folders cannot be opened")
	}
	defer func() { _ = unix.Close(dir) }() // only a path
	fd, err := unix.Openat2(dir, below, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fault.InvalidField("path", "leads over a symbolic link")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, fault.InvalidField("path", "there is no such file")
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err, "path: the file cannot be opened")
	}
	f := os.NewFile(uintptr(fd), below)
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fault.InvalidField("path", "is not a regular file"), err, f.Close())
	}
	return f, nil
}

const (
	qcow2Magic = "QFI\xfb"
	isoMagic   = "CD001"
	isoAt      = 0x8001 // where an ISO 9660 file system has its magic
)

// checkFormat checks that a file has the format that it is said to have. The daemon inspects it closely.
func checkFormat(f io.ReaderAt, format string) error {
	magic := func(at int64, size int) string {
		text := make([]byte, size)
		if _, err := f.ReadAt(text, at); err != nil {
			return ""
		}
		return string(text)
	}
	qcow2, iso := magic(0, len(qcow2Magic)) == qcow2Magic, magic(isoAt, len(isoMagic)) == isoMagic
	if format == "qcow2" && !qcow2 || format == record.ImageISO && !iso || format == "raw" && qcow2 {
		return fault.InvalidField("format", "the file is not %s", format)
	}
	return nil
}

// importFile copies a file, so that nobody can change it any more, and returns the path of the copy.
func (m *Manager) importFile(ctx context.Context, w *work) (_ string, err error) {
	in, err := m.openImport(w.image.Spec.V.Path, w.image.Spec.V.Format)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil {
		return "", err
	}
	w.log.say("Copying %s, %d bytes", w.image.Spec.V.Path, info.Size())
	path := filepath.Join(w.folder, "import")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // below our own folder
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, transfer.Reader(ctx, in, m.cfg.MaxSize, func(done int64) error {
		const share = 0.7 // of the job
		w.progress(share * float64(done) / float64(max(1, info.Size())))
		return nil
	}))
	if err = errors.Join(err, out.Sync(), out.Close()); errors.Is(err, transfer.ErrTooLarge) {
		return "", m.tooLarge()
	}
	if err != nil {
		return "", err
	}
	copied, err := os.Open(path) //nolint:gosec // below our own folder
	if err != nil {
		return "", err
	}
	defer func() { _ = copied.Close() }() // it was only read
	return path, checkFormat(copied, w.image.Spec.V.Format)
}
