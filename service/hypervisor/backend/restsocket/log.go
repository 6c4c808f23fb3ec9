//go:build linux

package restsocket

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// MakePipe creates a named pipe for a user; 0: the daemon's.
func MakePipe(path string, uid, gid int) error {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	if uid == 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// HoldPipe opens a named pipe as a program's standard input or output. The program holds both ends,
// so it never blocks on the other end, nor is it killed when that closes.
func HoldPipe(path string) (*os.File, error) { return openPipe(path, unix.O_RDWR) }

// ReadPipe opens a named pipe for reading a program's output. Reading ends when the last holder of
// the pipe has ended and everything was read.
func ReadPipe(path string) (*os.File, error) { return openPipe(path, unix.O_RDONLY) }

// WritePipe opens a named pipe for writing to a program. It fails with unix.ENXIO if no process
// reads from it.
func WritePipe(path string) (*os.File, error) { return openPipe(path, unix.O_WRONLY) }

// openPipe opens a pipe and fails if something else was put in its place. The file stays
// non-blocking when it is passed to a process, unlike others of package os.
func openPipe(path string, mode int) (*os.File, error) {
	fd, err := unix.Open(path, mode|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, errors.Join(fmt.Errorf("%s is not a named pipe", path), err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// sayings keeps the end of a program's log.
type sayings struct {
	pipe *os.File
	read chan struct{} // closed at the end of the log

	mu   sync.Mutex
	tail []byte
}

// listen opens the log of a program in its run folder.
func listen(run string) (*sayings, error) {
	pipe, err := ReadPipe(filepath.Join(run, LogPipe))
	if err != nil {
		return nil, err
	}
	return &sayings{pipe: pipe, read: make(chan struct{})}, nil
}

// follow reads the log until the pipe ends or is closed.
func (s *sayings) follow() {
	defer close(s.read)
	_, _ = io.Copy(s, s.pipe) // its end is all there is to know
}

// Write keeps the last bytes.
func (s *sayings) Write(b []byte) (int, error) {
	const most = 4096
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, b...)
	s.tail = append([]byte(nil), s.tail[max(0, len(s.tail)-most):]...)
	return len(b), nil
}

func (s *sayings) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.tail)
}

// lastWords returns the end of the log, for people.
func (s *sayings) lastWords() string {
	text := s.String()
	const most = 900
	if text = printable(text[max(0, len(text)-most):]); text == "" {
		return "nothing"
	}
	return text
}
