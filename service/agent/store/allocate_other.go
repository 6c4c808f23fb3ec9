//go:build !linux

package store

import "os"

// allocate reserves space on disk for a file.
func allocate(f *os.File, size int64) error { return writeAll(f, size) }
