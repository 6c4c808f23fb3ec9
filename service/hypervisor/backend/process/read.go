//go:build linux

package process

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Head returns the beginning of a file, at most most bytes. A VM's process may have made the file
// arbitrarily long.
func Head(path string, most int) ([]byte, error) {
	return read(path, func(f *os.File, size int64) io.Reader { return io.LimitReader(f, int64(most)) })
}

// Tail returns the end of such a file, at most most bytes.
func Tail(path string, most int) ([]byte, error) {
	return read(path, func(f *os.File, size int64) io.Reader {
		return io.NewSectionReader(f, max(0, size-int64(most)), int64(most))
	})
}

func read(path string, part func(f *os.File, size int64) io.Reader) (_ []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.ReadAll(part(f, stat.Size()))
}

// mostCommand limits how much of a command line is read: a process can make the kernel show all of
// its memory there. The arguments that identify a VM's process come first.
const mostCommand = 1 << 20

// CommandLine returns the arguments of a process, each terminated by NUL, up to mostCommand bytes.
func CommandLine(pid int) ([]byte, error) {
	return Head(fmt.Sprintf("/proc/%d/cmdline", pid), mostCommand)
}
