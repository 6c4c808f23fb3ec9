package durable

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrLocked is the error of Lock for a file that another process has locked.
var ErrLocked = errors.New("another process has the lock")

// lockWithin is how long Lock waits. A process that was killed while it started a program leaves a child that has its
// locks until the child executes the program, which takes a while on a busy machine.
const lockWithin = 2 * time.Second

// Lock locks out other processes until Unlock, or until this process ends, however it does. If another one has the
// lock, it waits two seconds for it, and then returns ErrLocked.
func Lock(f *os.File) error {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // descriptors are small
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if time.Since(begun) >= lockWithin {
			return ErrLocked
		}
	}
}

// Unlock releases the lock, and closes the file. Closing alone is not enough: a program that another goroutine is just
// starting has the file open, too, until it executes.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close()) //nolint:gosec // descriptors are small
}
