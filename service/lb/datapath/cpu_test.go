//go:build linux

package datapath_test

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onCPU runs fn on one of the machine's CPUs, by number.
func onCPU(number int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with its binding
		var set unix.CPUSet
		set.Set(number % runtime.NumCPU())
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}
