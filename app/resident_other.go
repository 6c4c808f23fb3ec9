//go:build !linux

package app

import "runtime/debug"

// releaseUnused gives back memory that is not used any more.
func releaseUnused() error {
	debug.FreeOSMemory()
	return nil
}
