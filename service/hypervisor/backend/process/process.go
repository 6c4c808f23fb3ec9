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

// Process is a process that runs, or ran when it was got.
type Process struct {
	PID  int
	file *os.File // a pidfd
	done chan struct{}

	reaped chan struct{}    // closed when state is known; nil: it is nobody's child here
	state  *os.ProcessState // once reaped is closed
}

// RecordFile is the name of the file in a VM's folder that says which process it has.
const RecordFile = "process.json"

// record is what the file has. A number alone says nothing after a restart of the host.
type record struct {
	PID int `json:"pid"`
	// Started is when the process was started, in ticks after boot, and Boot which boot.
	Started uint64 `json:"started"`
	Boot    string `json:"boot"`
}

// Hold gets a descriptor of the process of a number; the error of one that is not there
// is unix.ESRCH. Close it.
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

// Reap takes note of the exit of a process that this one has started, so that it does not
// stay a zombie and State can tell of it. It is called once, before the process is shared.
func (p *Process) Reap(cmd *exec.Cmd) {
	p.reaped = make(chan struct{})
	routine.Go(nil, "process exit", func() {
		defer close(p.reaped)
		_ = cmd.Wait() // its state says how it ended
		p.state = cmd.ProcessState
	})
}

// State is how the process has ended, once Done is closed; nil if another one started it,
// which the kernel told.
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

// Find is the process that the record in a folder is of, whoever wrote it; nil if there
// is none any more.
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
	// The process is held: what is read of its number now is of it, or it has ended.
	started, err := startOf(r.PID)
	if err != nil || started != r.Started || p.HasEnded() {
		return nil, p.Close()
	}
	return p, nil
}

// readable says whether a pidfd can be read, as far as pollers know: when its process
// has ended, even if nobody has taken note of that yet.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file's number is small
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

// HasEnded says whether the process has ended.
func (p *Process) HasEnded() (ended bool) {
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { ended = readable(fd) })
	}
	return err == nil && ended
}

// Done is closed when the process has ended, unless Close was called before.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once. It is not an error if it has ended.
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

// Close lets go of the process, which continues.
func (p *Process) Close() error { return p.file.Close() }

// startOf is when a process was started, in ticks after boot (proc(5), stat, field 22).
func startOf(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything.
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

// Forget removes the record in a VM's folder, if there is one, and what a daemon that was
// killed while it wrote one has left.
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
