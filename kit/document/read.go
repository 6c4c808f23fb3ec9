package document

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Read returns the content of a regular file of at most limit bytes. It never blocks: a pipe would
// otherwise block a reload, and with it the shutdown of the process. Its errors are faults of kind
// Invalid that name the path.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator chooses the path
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "cannot read %s: it is not a regular file", path)
	}
	raw, err := io.ReadAll(io.LimitReader(impatient{f}, limit+1))
	if errors.Is(err, syscall.EAGAIN) {
		return nil, fault.New(fault.Invalid, "cannot read %s: reading it would block", path)
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	if int64(len(raw)) > limit {
		return nil, fault.New(fault.Invalid, "%s is larger than %d bytes", path, limit)
	}
	return raw, nil
}

// impatient reads a file that was opened with O_NONBLOCK. Some files in /proc claim to be regular
// but block anyway, and os.File would wait for them.
type impatient struct{ *os.File }

// Read fails with EAGAIN if it would have to wait.
func (f impatient) Read(b []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		for readErr = syscall.EINTR; errors.Is(readErr, syscall.EINTR); {
			n, readErr = syscall.Read(int(fd), b) //nolint:gosec // a file's number is small
		}
		return true // always true: false would wait
	})
	switch {
	case err != nil:
		return 0, err
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func unreadable(path string, err error) error {
	reason := err
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		reason = pathErr.Err
	}
	return fault.New(fault.Invalid, "cannot read %s: %v", path, reason)
}
