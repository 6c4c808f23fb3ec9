//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// lockPause is the interval at which a lock is retried whose holder will soon be found.
const lockPause = 2 * time.Millisecond

// sweepAndLock kills every process of a sandbox and returns with a lock on the VM's folder, during
// which no other can be created. A process that a daemon started just before it died cannot be
// identified by its arguments yet, but holds the lock.
func sweepAndLock(ctx context.Context, folder, state string) (*os.File, error) {
	for {
		if err := sweep(ctx, state); err != nil {
			return nil, err
		}
		lock, free, err := lockFolder(folder)
		if err != nil {
			return nil, err
		}
		if free {
			if err := sweep(ctx, state); err != nil { // of what was made in between
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
func sweep(ctx context.Context, state string) error {
	for {
		pids, err := processes(state)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := end(ctx, pid, state); err != nil {
				return err
			}
		}
	}
}

// processes returns the PIDs of a sandbox's processes, except those in its own PID namespace, which
// end with it.
func processes(state string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && belongs(pid, state) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// belongs reports whether a process has the state folder in its arguments.
func belongs(pid int, state string) bool {
	line, err := process.CommandLine(pid)
	if err != nil {
		return false
	}
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
