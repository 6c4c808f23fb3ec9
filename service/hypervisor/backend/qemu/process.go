//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// Process is a QEMU process.
type Process = process.Process

func logFile(folder string) string { return filepath.Join(folder, "qemu.log") }

// Launch starts a machine with a program such as qemu-system-x86_64 and returns when its monitor
// answers. The process keeps running when the daemon ends. If QEMU does not start, the error
// contains its output, and no process is left.
func Launch(ctx context.Context, program string, m *Machine) (*Process, *qmp.Client, error) {
	if err := clean(m); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(logFile(m.Folder), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(program, m.Args()...) //nolint:gosec // the machine's arguments are values, see Args
	cmd.ExtraFiles = m.files()
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.Folder, log, log
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"} // nothing of the daemon's secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
	} // a signal to the daemon's terminal is not for it
	if m.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{
			Uid:    uint32(m.UID),
			Gid:    uint32(m.GID),
			Groups: m.Groups,
		} //nolint:gosec // checked by who chose them
	}
	err = cmd.Start()
	if closeErr := log.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil, fault.Wrap(
			fault.Unavailable, err, "VMs are run by QEMU, which is missing: apt-get install qemu-system-x86",
		)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start QEMU: %w", err)
	}
	p, err := process.Hold(cmd.Process.Pid)
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
		routine.Go(nil, "QEMU", func() { _ = cmd.Wait() }) // so that it does not stay a zombie
		return nil, nil, err
	}
	p.Reap(cmd)
	monitor, err := comeUp(ctx, p, m)
	if err == nil {
		return p, monitor, nil
	}
	if killErr := p.Kill(); killErr != nil {
		return nil, nil, errors.Join(err, killErr, p.Close())
	}
	<-p.Done() // so that nothing of it is left
	return nil, nil, errors.Join(
		fmt.Errorf("QEMU did not come up; it said: %s (%w)", lastWords(m.Folder), err), p.Close(),
	)
}

// clean recreates QEMU's run folder, without the files of an earlier process.
func clean(m *Machine) error {
	run := filepath.Join(m.Folder, runFolder)
	if err := errors.Join(os.RemoveAll(run), process.Forget(m.Folder)); err != nil {
		return err
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		return err
	}
	if m.UID == 0 {
		return nil
	}
	return os.Lchown(run, m.UID, m.GID)
}

// comeUp records the process and waits until its monitor answers or it has ended.
func comeUp(ctx context.Context, p *Process, m *Machine) (*qmp.Client, error) {
	if err := p.Note(m.Folder); err != nil {
		return nil, err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	routine.Go(nil, "QEMU", func() {
		defer stop()
		select {
		case <-p.Done():
		case <-waiting.Done():
		}
	})
	return dialMonitor(waiting, m.Folder, p, true)
}

// Find returns the process of the machine in a folder, which an earlier daemon may have launched,
// or nil if it has ended.
func Find(folder string) (*Process, error) { return process.Find(folder) }

// howItEnded returns why a QEMU ended that was not told to. Its last output is the cause only if it
// ended on its own: a killed process had no time to print anything.
func howItEnded(state *os.ProcessState, folder string) string {
	said := lastWords(folder)
	if state == nil {
		return "QEMU, which an earlier daemon had started, ended; how is not known, and the last it said was: " + said
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		why := "QEMU was ended by the signal " + status.Signal().String()
		if status.Signal() == syscall.SIGKILL {
			why += ", by somebody on the host or by the kernel for want of memory (its log says)"
		}
		return why + "; the last it had said was: " + said
	}
	return fmt.Sprintf("QEMU ended with status %d; it said: %s", state.ExitCode(), said)
}

// lastWords returns QEMU's last lines of output as one line. A compromised QEMU may have made the
// file arbitrarily long, with arbitrary bytes.
func lastWords(folder string) string {
	const most = 1000
	raw, err := process.Tail(logFile(folder), most)
	if err != nil {
		return "nothing"
	}
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(string(raw), "?")) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1
			}
			return r
		}, line))
		if line != "" && !strings.Contains(line, "info: QEMU waiting for connection on:") { // which it always says
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "; ")
}
