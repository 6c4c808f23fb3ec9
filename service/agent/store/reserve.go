package store

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// reserveSize is the space for the write-ahead log while the outbox is emptied on a full disk.
	// SQLite moves its log into the database every 4 MiB, and a transaction has less than 2 MiB.
	reserveSize = 8 << 20
	// reserveStep is the part that is released at once, so that other programs cannot take it all.
	reserveStep = 2 << 20
	// tight is the amount of free space below which there is an alert.
	tight = 1 << 20
	// reserveRetry is the time between two attempts to refill the reserve.
	reserveRetry = time.Second
	reserveFile  = "reserve"
)

// reserve is a file that only takes up space. Deleting events that were sent needs space on disk
// too, and on a full disk the reserve provides it. Nothing new is accepted until the reserve is
// full again.
type reserve struct {
	path string

	mu    sync.Mutex
	size  int64
	tried time.Time // when filling it was last attempted, or a part of it was released
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

// give releases a part of the reserve. It returns false if nothing is left.
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

// fill allocates the reserve, if there is enough space, and reports whether it is full.
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
		_ = os.Truncate(r.path, 0) // it could be partly a hole
		r.size = 0
		return false
	}
	r.size = reserveSize
	return true
}

// missing returns how many bytes the reserve lacks.
func (r *reserve) missing() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return reserveSize - r.size
}

// free returns the free space on disk, in bytes.
func (r *reserve) free() (int64, bool) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(r.path), &disk); err != nil {
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
