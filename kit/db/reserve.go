package db

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// reserveSize is the size of a reserve, in bytes: room for thousands of small changes.
	reserveSize = 4 << 20
	// reserveFrom is how many bytes must be free to make one.
	reserveFrom = 4 * reserveSize
	// reserveEvery is how often that is tried.
	reserveEvery = time.Second
)

// reserve is a file beside an SQLite file that only takes room. When the disk is full, it is removed, so that what
// makes room elsewhere, such as the deletion of something, can be stored.
//
//	held ── the disk is full: release ──► gone ── there is room again ──► held
type reserve struct {
	path string

	mu    sync.Mutex
	held  bool
	tried time.Time
}

func newReserve(database string) *reserve {
	r := &reserve{path: database + "-reserve"}
	r.renew()
	return r
}

// release removes the file, and reports whether that has made room.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = false
	return os.Remove(r.path) == nil
}

// renew makes the file if there is room for it, and reports whether it is there.
func (r *reserve) renew() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || time.Since(r.tried) < reserveEvery {
		return r.held
	}
	r.tried = time.Now()
	if info, err := os.Lstat(r.path); err == nil && info.Mode().IsRegular() && info.Size() == reserveSize {
		r.held = true
		return true
	}
	var room unix.Statfs_t
	if err := unix.Statfs(r.path[:len(r.path)-len("-reserve")], &room); err != nil ||
		int64(room.Bavail)*int64(room.Bsize) < reserveFrom { //nolint:gosec,unconvert // types differ by system
		return false
	}
	r.held = r.fill() == nil
	return r.held
}

// fill writes the file. Holes would take no room.
func (r *reserve) fill() error {
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, reserveSize))
	if err = errors.Join(err, f.Close()); err == nil {
		return nil
	}
	if gone := os.Remove(r.path); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// isFull reports whether a write has failed because the disk is full.
func isFull(err error) bool { return err != nil && fault.From(err).Code == "storage_full" }

// Low reports whether the disk of an SQLite file is, or was until a moment ago, so full that the reserve for deletions
// was taken. Services then refuse what needs more room.
func (d *DB) Low() bool { return d.reserve != nil && !d.reserve.renew() }
