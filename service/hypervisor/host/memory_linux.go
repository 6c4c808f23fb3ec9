package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// newMemory returns an empty file in memory.
func newMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate("template-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "template memory"), nil
}

// seal makes a file of newMemory unchangeable, also for root.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(
		f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL,
	)
	return err
}
