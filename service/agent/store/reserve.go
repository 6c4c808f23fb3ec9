package store

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// reserveSize is room for the write-ahead log while the outbox is emptied on a full
	// disk: SQLite moves its log into the database every 4 MiB, and a transaction here
	// has less than 2 MiB.
	reserveSize = 8 << 20
	// reserveStep is given back at a time, so that other programs cannot take it all.
	reserveStep = 2 << 20
	// tight is how much free space is worth an alert.
	tight = 1 << 20
	// reserveRetry is the time between two attempts to fill it again.
	reserveRetry = time.Second
	reserveFile  = "reserve"
)

// reserve is a file that only takes room. Deleting what was sent needs room on disk,
// too, and on a full disk this is where it comes from. Nothing new is accepted
// until the reserve is whole again.
type reserve struct {
	path string

	mu    sync.Mutex
	size  int64
	tried time.Time // when it was last filled, or was to be
}

func newReserve(dir string) *reserve {
	r := &reserve{path: filepath.Join(dir, reserveFile)}
	if info, err := os.Stat(r.path); err == nil {
		r.size = info.Size()
	}
	return r
}

func (r *reserve) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size >= reserveSize
}

// due reports whether it is time for another attempt to fill the reserve.
func (r *reserve) due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.tried) >= reserveRetry
}

// give gives a part of the reserve back to the disk; false: there is nothing left.
func (r *reserve) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size == 0 {
		return false
	}
	left := max(0, r.size-reserveStep)
	if os.Truncate(r.path, left) != nil {
		return false
	}
	r.size, r.tried = left, time.Now()
	return true
}

// fill takes room for the reserve, if there is enough, and reports whether it is
// whole.
func (r *reserve) fill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = time.Now()
	if r.size >= reserveSize {
		return true
	}
	if free, ok := r.free(); ok && free < reserveSize-r.size {
		return false
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	err = allocate(f, reserveSize)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Truncate(r.path, 0) // a part of it could be a hole
		r.size = 0
		return false
	}
	r.size = reserveSize
	return true
}

// missing is how much the reserve lacks.
func (r *reserve) missing() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return reserveSize - r.size
}

// free is how much room the disk has for others.
func (r *reserve) free() (int64, bool) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(r.path), &disk); err != nil {
		return 0, false
	}
	//nolint:gosec,unconvert // its types differ between systems; no disk has 8 EiB
	return int64(disk.Bavail) * int64(disk.Bsize), true
}

// writeAll fills a file with bytes that do not compress, on file systems that
// cannot allocate space otherwise.
func writeAll(f *os.File, size int64) error {
	block, x := make([]byte, 64<<10), uint64(88172645463325252)
	for done := int64(0); done < size; done += int64(len(block)) {
		for i := range block {
			x ^= x << 13 // xorshift: any noise will do
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
