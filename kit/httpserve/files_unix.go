//go:build unix

package httpserve

import (
	"math"
	"syscall"
)

// maxFiles returns how many files the process may have open, including connections. Go has raised
// the soft limit to the hard limit. It is 0 if the limit is unknown or unlimited.
func maxFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur) //nolint:gosec // it is at most MaxInt32
}
