//go:build linux

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// Process is a QEMU that runs. It is held by a file descriptor, so that another
// process that gets its number later is never taken for it.
type Process struct {
	PID  int
	file *os.File // a pidfd
	done chan struct{}
}

// record is what a machine's folder keeps of its process. A number alone says nothing
// after a restart of the host.
type record struct {
	PID int `json:"pid"`
	// Started is when the process was started, in ticks after boot, and Boot which boot.
	Started uint64 `json:"started"`
	Boot    string `json:"boot"`
}

const recordFile = "process.json"

func logFile(folder string) string { return filepath.Join(folder, "qemu.log") }

// Launch starts a machine with a program such as qemu-system-x86_64, and returns when
// its monitor answers. The process outlives this one. If QEMU does not come up, the
// error has what it said, and nothing runs.
func Launch(ctx context.Context, program string, m *Machine) (*Process, *qmp.Client, error) {
	if err := clean(m); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(logFile(m.Folder), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(program, m.Args()...) //nolint:gosec // the machine's arguments are values, see Args
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.Folder, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to the daemon's terminal is not for it
	err = cmd.Start()
	if closeErr := log.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil, fault.Wrap(fault.Unavailable, err, "VMs are run by QEMU, which is missing: apt-get install qemu-system-x86")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start QEMU: %w", err)
	}
	p, err := hold(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // so that it does not stay a zombie; done tells of the end
	if err != nil {
		return nil, nil, errors.Join(err, cmd.Process.Kill())
	}
	monitor, err := p.comeUp(ctx, m)
	if err == nil {
		return p, monitor, nil
	}
	if killErr := p.Kill(); killErr != nil {
		return nil, nil, errors.Join(err, killErr, p.Close())
	}
	<-p.done // so that nothing of it is left
	return nil, nil, errors.Join(fmt.Errorf("QEMU did not come up: %w; it said: %s", err, lastWords(m.Folder)), p.Close())
}

// clean removes what an earlier process of the machine left.
func clean(m *Machine) error {
	for _, path := range []string{m.qmpSocket(), m.serialSocket(), m.vncSocket(), m.agentSocket(), filepath.Join(m.Folder, recordFile)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// comeUp notes the process, and waits until its monitor answers or it has ended.
func (p *Process) comeUp(ctx context.Context, m *Machine) (*qmp.Client, error) {
	if err := p.note(m.Folder); err != nil {
		return nil, err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-p.done:
			stop()
		case <-waiting.Done():
		}
	}()
	return qmp.Dial(waiting, m.qmpSocket(), qmp.Options{Wait: true})
}

func (p *Process) note(folder string) error {
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
	return durable.Replace(filepath.Join(folder, recordFile), text, 0o600)
}

// Find is the process of the machine in a folder, which an earlier daemon may have
// launched; nil if there is none any more.
func Find(folder string) (*Process, error) {
	raw, err := os.ReadFile(filepath.Join(folder, recordFile)) //nolint:gosec // the daemon's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil || r.PID < 1 {
		return nil, fmt.Errorf("%s does not say which process it is of", filepath.Join(folder, recordFile))
	}
	boot, err := bootID()
	if err != nil || boot != r.Boot {
		return nil, err
	}
	p, err := hold(r.PID)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The process is held: what is read of its number now is of it, or it has ended.
	started, err := startOf(r.PID)
	if err != nil || started != r.Started || p.hasEnded() {
		return nil, p.Close()
	}
	return p, nil
}

// hold gets a descriptor of a process.
func hold(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	p := &Process{PID: pid, file: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	go func() {
		if raw.Read(readable) == nil {
			close(p.done)
		}
	}()
	return p, nil
}

// readable says whether a pidfd can be read, as far as pollers know: when its process
// has ended, even if nobody has taken note of that yet.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file's number is small
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

func (p *Process) hasEnded() (ended bool) {
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { ended = readable(fd) })
	}
	return err == nil && ended
}

// Done is closed when the process has ended, unless Close was called before.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once. It is no error if it has ended.
func (p *Process) Kill() error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil { //nolint:gosec // a file's number is small
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// Close lets go of the process, which goes on.
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

// lastWords are the last lines that QEMU printed.
func lastWords(folder string) string {
	raw, err := os.ReadFile(logFile(folder)) //nolint:gosec // the daemon's own folder
	if err != nil || len(raw) == 0 {
		return "nothing"
	}
	const most = 1000
	return strings.TrimSpace(strings.ToValidUTF8(string(raw[max(0, len(raw)-most):]), "?"))
}
