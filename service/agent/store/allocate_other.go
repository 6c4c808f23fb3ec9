//go:build !linux

package store

import "os"

// allocate makes a file take so much room on disk.
func allocate(f *os.File, size int64) error { return writeAll(f, size) }
