//go:build !linux

package app

import "runtime/debug"

// releaseUnused releases unused memory.
func releaseUnused() error {
	debug.FreeOSMemory()
	return nil
}
