//go:build linux

package process

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Head is the beginning of a file that a VM's process may have made as long as it likes.
func Head(path string, most int) ([]byte, error) {
	return read(path, func(f *os.File, size int64) io.Reader { return io.LimitReader(f, int64(most)) })
}

// Tail is the end of such a file.
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

// mostCommand is how much of a process's command line is looked at: a process can have the
// kernel show all of its memory there. What marks a VM's process is among its first options.
const mostCommand = 1 << 20

// CommandLine are the arguments of a process, each ended by a NUL, as far as they count.
func CommandLine(pid int) ([]byte, error) {
	return Head(fmt.Sprintf("/proc/%d/cmdline", pid), mostCommand)
}
