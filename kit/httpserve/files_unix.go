//go:build unix

package httpserve

import (
	"math"
	"syscall"
)

// maxFiles is how many files the process may have open, connections included. Go has raised the soft
// limit to the hard one. It is 0 if that is unknown or unlimited.
func maxFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur) //nolint:gosec // it is at most MaxInt32
}
