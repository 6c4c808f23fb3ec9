//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// lockPause is the interval at which a lock is retried whose holder will soon be found.
const lockPause = 2 * time.Millisecond

// sweepAndLock kills every process of a sandbox and returns with a lock on the VM's folder, during
// which no other can be created. A process that a daemon started just before it died cannot be
// identified by its arguments yet, but holds the lock.
func sweepAndLock(ctx context.Context, program, folder, state string) (*os.File, error) {
	for {
		if err := sweep(ctx, program, state); err != nil {
			return nil, err
		}
		lock, free, err := lockFolder(folder)
		if err != nil {
			return nil, err
		}
		if free {
			if err := sweep(ctx, program, state); err != nil { // of what was made in between
				unlock(lock)
				return nil, err
			}
			return lock, nil
		}
		_ = lock.Close()
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("the sandbox's folder is locked by a process that starts it: %w", ctx.Err())
		}
	}
}

// lockFolder tries to lock a folder. The lock is held until all processes that have the file close
// it.
func lockFolder(folder string) (lock *os.File, free bool, err error) {
	lock, err = os.Open(folder) //nolint:gosec // the daemon's own folder
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file's number is small
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		return lock, err == nil, nil
	}
	return nil, false, errors.Join(fmt.Errorf("lock %s: %w", folder, err), lock.Close())
}

// unlock releases the lock. Closing the file alone would not suffice: a process that another
// goroutine is forking at this moment also has the file until it executes its program.
func unlock(lock *os.File) {
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN) //nolint:gosec // a file's number is small
	_ = lock.Close()
}

// sweep kills every process of the sandbox with this state folder: the sandbox, its gofer, and
// runsc commands of a dead daemon, which may still be creating more.
func sweep(ctx context.Context, program, state string) error {
	for {
		found, starting, err := processes(program, state)
		if err != nil || len(found) == 0 && !starting {
			return err
		}
		for _, pid := range found {
			if err := end(ctx, pid, state); err != nil {
				return err
			}
		}
		if !starting {
			continue
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return fmt.Errorf("a process that runsc starts does not show its arguments: %w", ctx.Err())
		}
	}
}

// processes returns the PIDs of a sandbox's processes, except those in its own PID namespace, which
// end with it. It also reports whether a process of runsc is just being started, which may be the
// sandbox's.
func processes(program, state string) (found []int, starting bool, err error) {
	runsc, err := programFile(program)
	if err != nil {
		return nil, false, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := process.CommandLine(pid)
		switch {
		case err != nil: // it has ended
		case len(line) == 0 && begins(pid):
			starting = starting || executes(pid, runsc)
		case len(line) > 0 && names(line, state), len(line) == 0 && belongs(pid, state): // it may have begun just now
			found = append(found, pid)
		}
	}
	return found, starting, nil
}

// programFile returns the file of a program, or nil if it is not installed any more.
func programFile(program string) (os.FileInfo, error) {
	path, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // sandboxes can be cleaned up without it
	}
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
}

// envEnd is the field of /proc/PID/stat that says where the environment of a process ends (proc(5)).
const envEnd = 51

// begins reports whether a process has just begun to execute a program. Between the kernel's dropping of the old
// arguments and its setting of the new ones, which ends with the environment, a process has none. Other processes
// without arguments have given up the memory that held them, as those in which gVisor runs programs of guests.
func begins(pid int) bool {
	const longest = 4096
	line, err := process.Head(fmt.Sprintf("/proc/%d/stat", pid), longest)
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(line[bytes.LastIndexByte(line, ')')+1:]), " ") // after the program's name
	fields := strings.Fields(rest)
	const first = 3 // of rest
	return len(fields) > envEnd-first && fields[envEnd-first] == "0"
}

// executes reports whether a process executes a program. Kernel threads and ended processes execute
// none.
func executes(pid int, program os.FileInfo) bool {
	if program == nil {
		return false
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(info, program)
}

// belongs reports whether a process is one of the sandbox with this state folder.
func belongs(pid int, state string) bool {
	line, err := process.CommandLine(pid)
	return err == nil && names(line, state)
}

// names reports whether a command line has the state folder in its arguments.
func names(line []byte, state string) bool {
	for i, argument := range bytes.Split(line, []byte{0}) {
		if i > 0 && string(argument) == rootFlag(state) {
			return true
		}
	}
	return false
}

func end(ctx context.Context, pid int, state string) error {
	p, err := process.Hold(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	if !belongs(pid, state) { // the number may have got another process before it was held
		return nil
	}
	if err := p.Kill(); err != nil {
		return fmt.Errorf("end process %d of the sandbox: %w", pid, err)
	}
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d of the sandbox does not end: %w", pid, ctx.Err())
	}
}
