// Package reserve keeps space on a disk for what makes room there. Deleting something from a database needs space, too,
// and on a full disk a File provides it: a file that only takes up space, and gives it up when it is needed.
//
//	full ── the disk is full: Give ──► smaller ──► empty
//	  ▲                                   │          │
//	  └────── there is room again: Fill ──┴──────────┘
//
// While a File is not full, its owner refuses whatever needs more room.
package reserve

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// fillEvery is the time between two attempts to fill a File.
const fillEvery = time.Second

// Config describes a File.
type Config struct {
	Path string
	Size int64 // bytes
	Step int64 // bytes that Give releases at once, so that other programs cannot take them all
	Room int64 // bytes that must be free to fill it, beside those that it lacks
}

// File is a file that only takes up space. It is safe for concurrent use. A process that was killed leaves one that the
// next process continues with.
type File struct {
	cfg Config

	mu    sync.Mutex
	size  int64
	tried time.Time // when filling it was last attempted, or a part of it was released
}

// Open returns the file of a Config as it is. It does not create it.
func Open(cfg Config) *File {
	f := &File{cfg: cfg}
	if info, err := os.Lstat(cfg.Path); err == nil && info.Mode().IsRegular() {
		f.size = info.Size()
	}
	return f
}

// Full reports whether nothing is missing.
func (f *File) Full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size >= f.cfg.Size
}

// Due reports whether it is time for another attempt to fill it.
func (f *File) Due() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.tried) >= fillEvery
}

// Give releases a step. It returns false if nothing is left.
func (f *File) Give() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size == 0 {
		return false
	}
	left := max(0, f.size-f.cfg.Step)
	if os.Truncate(f.cfg.Path, left) != nil {
		return false
	}
	f.size, f.tried = left, time.Now()
	return true
}

// Fill allocates what is missing, if there is enough space, and reports whether the file is full.
func (f *File) Fill() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried = time.Now()
	if f.size >= f.cfg.Size {
		return true
	}
	if free, ok := f.Free(); ok && free < f.cfg.Size-f.size+f.cfg.Room {
		return false
	}
	to, err := os.OpenFile(f.cfg.Path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return false
	}
	err = allocate(to, f.cfg.Size)
	if closeErr := to.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Truncate(f.cfg.Path, 0) // it could be partly a hole
		f.size = 0
		return false
	}
	f.size = f.cfg.Size
	return true
}

// Missing returns how many bytes it lacks.
func (f *File) Missing() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Size - f.size
}

// Free returns the free space on its disk, in bytes. ok is false if that is not known.
func (f *File) Free() (free int64, ok bool) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(f.cfg.Path), &disk); err != nil {
		return 0, false
	}
	//nolint:gosec,unconvert // its types differ between systems; no disk has 8 EiB
	return int64(disk.Bavail) * int64(disk.Bsize), true
}

// writeAll fills a file with incompressible bytes. It is for file systems that cannot allocate
// space otherwise.
func writeAll(f *os.File, size int64) error {
	block, x := make([]byte, 64<<10), uint64(88172645463325252)
	for done := int64(0); done < size; done += int64(len(block)) {
		for i := range block {
			x ^= x << 13 // xorshift: any noise is good enough
			x ^= x >> 7
			x ^= x << 17
			block[i] = byte(x)
		}
		if _, err := f.WriteAt(block, done); err != nil {
			return err
		}
	}
	return f.Sync()
}
