package host

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The serial log of a VM is two files, of which the older one is removed when the newer one is full: a guest
// may print without end.
const (
	consoleFile = "console.log"
	consoleOld  = "console.log.1"
	// consoleMost is the most bytes in each file.
	consoleMost = 1 << 20
)

// MaxConsoleLog is the most bytes of a serial log that are kept.
const MaxConsoleLog = 2 * consoleMost

// ConsoleLog is the serial log of a VM, to which what the guest prints is written while a daemon runs. Its
// methods are called by one goroutine.
type ConsoleLog struct {
	folder string
	log    *slog.Logger
	file   *os.File
	size   int64
	failed bool // since the last write that did not fail
}

// ConsoleLog returns the serial log of a VM. The caller must close it.
func (h *Host) ConsoleLog(id string) *ConsoleLog {
	return &ConsoleLog{folder: h.Folder(id), log: h.log.With("vm", id)}
}

// Write appends output. It never fails, since the console goes on without a log: a host without room loses output.
func (c *ConsoleLog) Write(p []byte) (int, error) {
	err := c.write(p)
	if err != nil && !c.failed {
		c.log.Warn("what a VM prints is not kept", "error", err)
	}
	c.failed = err != nil
	return len(p), nil
}

func (c *ConsoleLog) write(p []byte) error {
	for len(p) > 0 {
		if err := c.open(); err != nil {
			return err
		}
		n, err := c.file.Write(p[:min(int64(len(p)), consoleMost-c.size)])
		if c.size += int64(n); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// open opens the newer file, and begins another one if it is full.
func (c *ConsoleLog) open() error {
	path := filepath.Join(c.folder, consoleFile)
	if c.file != nil && c.size >= consoleMost {
		err := errors.Join(c.Close(), os.Rename(path, filepath.Join(c.folder, consoleOld)))
		if err != nil {
			return err
		}
	}
	if c.file != nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	stat, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if c.file, c.size = f, stat.Size(); c.size >= consoleMost {
		return c.open()
	}
	return nil
}

// Close closes the log.
func (c *ConsoleLog) Close() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file, c.size = nil, 0
	return err
}

// ReadConsoleLog returns the end of a VM's serial log, at most most bytes.
func (h *Host) ReadConsoleLog(id string, most int) ([]byte, error) {
	newer, err := tailOf(filepath.Join(h.Folder(id), consoleFile), int64(most))
	if err != nil || len(newer) == most {
		return newer, err
	}
	older, err := tailOf(filepath.Join(h.Folder(id), consoleOld), int64(most-len(newer)))
	return append(older, newer...), err
}

// tailOf returns the end of a file of a serial log, or nothing if there is none. The process of a VM may have put
// something else in its place.
func tailOf(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the VM has printed nothing, or not so much
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	stat, err := f.Stat()
	if err != nil || !stat.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, stat.Size()-most), most))
}
