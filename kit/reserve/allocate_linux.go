package reserve

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves space on disk for a file.
func allocate(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return writeAll(f, size)
	}
	return err
}
