//go:build !linux

package reserve

import "os"

// allocate reserves space on disk for a file.
func allocate(f *os.File, size int64) error { return writeAll(f, size) }
