//go:build linux

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Process is a process that is, or was, running.
type Process struct {
	PID  int
	file *os.File // a pidfd
	done chan struct{}

	reaped chan struct{}    // closed when state is set; nil: not our child
	state  *os.ProcessState // once reaped is closed
}

// RecordFile is the name of the file in a VM's folder that identifies its process.
const RecordFile = "process.json"

// record is the content of the file. A PID alone is meaningless after a restart of the host.
type record struct {
	PID int `json:"pid"`
	// Started is the process's start time in ticks since boot. Boot is the boot's id.
	Started uint64 `json:"started"`
	Boot    string `json:"boot"`
}

// Hold opens a process by PID. The error is unix.ESRCH if it does not exist. The caller must call
// Close.
func Hold(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	p := &Process{PID: pid, file: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	routine.Go(nil, "process end", func() {
		if raw.Read(readable) == nil {
			close(p.done)
		}
	})
	return p, nil
}

// Reap waits for a child process so that it does not stay a zombie, and makes its exit status
// available from State. Call it at most once, before the process is shared.
func (p *Process) Reap(cmd *exec.Cmd) {
	p.reaped = make(chan struct{})
	routine.Go(nil, "process exit", func() {
		defer close(p.reaped)
		_ = cmd.Wait() // the state has the result
		p.state = cmd.ProcessState
	})
}

// State returns how the process ended, once Done is closed. It is nil if the process is not our
// child, since the kernel tells only the parent.
func (p *Process) State() *os.ProcessState {
	if p.reaped == nil {
		return nil
	}
	<-p.reaped
	return p.state
}

// Note writes the record of the process to a VM's folder.
func (p *Process) Note(folder string) error {
	started, err := startOf(p.PID)
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	text, err := json.Marshal(record{p.PID, started, boot})
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(folder, RecordFile), text, 0o600)
}

// Find returns the process that a folder's record identifies, or nil if it has ended.
func Find(folder string) (*Process, error) {
	raw, err := os.ReadFile(filepath.Join(folder, RecordFile)) //nolint:gosec // the daemon's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil || r.PID < 1 {
		return nil, fmt.Errorf("%s does not say which process it is of", filepath.Join(folder, RecordFile))
	}
	boot, err := bootID()
	if err != nil || boot != r.Boot {
		return nil, err
	}
	p, err := Hold(r.PID)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The process is open, so what is now read by its PID is about this process, or it has ended.
	started, err := startOf(r.PID)
	if err != nil || started != r.Started || p.HasEnded() {
		return nil, p.Close()
	}
	return p, nil
}

// readable reports whether a pidfd is readable. It is when its process has ended, even before it is
// reaped.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file's number is small
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() (ended bool) {
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { ended = readable(fd) })
	}
	return err == nil && ended
}

// Done is closed when the process has ended, unless Close was called before.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill kills the process. It is not an error if the process has already ended.
func (p *Process) Kill() error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(
		func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) },
	); err != nil { //nolint:gosec // a file's number is small
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// Close releases the process, which keeps running.
func (p *Process) Close() error { return p.file.Close() }

// startOf returns a process's start time in ticks since boot (proc(5), stat, field 22).
func startOf(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may contain anything.
	_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const place = 22 - 3
	if len(fields) <= place {
		return 0, fmt.Errorf("/proc/%d/stat is not as expected", pid)
	}
	return strconv.ParseUint(fields[place], 10, 64)
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}

// Forget removes the record from a VM's folder, and temporary files that a daemon left that was
// killed while it wrote a record.
func Forget(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), durable.TempPrefix) {
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return durable.Remove(filepath.Join(folder, RecordFile))
}
