//go:build linux

package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

const maxFreeze = 10 * time.Minute

// Of <linux/fs.h>; they take no argument. _IOWR('X', 119, int) and 120.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// Mount is a mounted file system on a disk.
type Mount struct {
	Device string // major:minor, of the file system
	Path   string
}

// diskMounts returns the writable disk file systems of this guest, each once, in the order
// in which they were mounted.
func diskMounts() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads the format of proc_pid_mountinfo(5).
func parseMounts(r io.Reader) ([]Mount, error) {
	var mounts []Mount
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		mount, super, ok := strings.Cut(lines.Text(), " - ")
		fields, of := strings.Fields(mount), strings.Fields(super)
		if !ok || len(fields) < 6 || len(of) < 3 {
			continue
		}
		device := fields[2]
		readOnly := slices.Contains(strings.Split(of[2], ","), "ro")
		if !strings.HasPrefix(of[1], "/dev/") || readOnly || seen[device] {
			continue
		}
		seen[device] = true
		mounts = append(mounts, Mount{Device: device, Path: unescape(fields[4])})
	}
	return mounts, lines.Err()
}

// unescape reads the octal escapes of mountinfo, as in \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// freezer holds open files on the frozen file systems, through which they are thawed.
type freezer struct {
	log   *slog.Logger
	mu    sync.Mutex
	files []*os.File
	owner *session
	timer *time.Timer
}

func (f *freezer) frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.files) > 0
}

// freeze freezes all mounts or none. It starts with the last mounted, since a file system may be in
// a file of an earlier one.
func (f *freezer) freeze(ctx context.Context, owner *session, mounts []Mount, limit time.Duration) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.files) > 0 {
		return 0, wire.Errorf(wire.Busy, "file systems are frozen already")
	}
	for _, m := range slices.Backward(mounts) {
		err := ctx.Err() // of a session that is over, whose endOf may have been before
		if err == nil {
			err = f.freezeOne(m)
		}
		if err != nil {
			f.thawLocked()
			return 0, err
		}
	}
	if len(f.files) == 0 {
		return 0, wire.Errorf(wire.Unsupported, "no disk file system that can be frozen is mounted")
	}
	f.owner = owner
	f.timer = time.AfterFunc(limit, func() {
		f.log.Warn("file systems thawed by themselves", "after", limit)
		f.thaw()
	})
	return len(f.files), nil
}

// freezeOne skips file systems that cannot be frozen, such as vfat, or are frozen already.
func (f *freezer) freezeOne(m Mount) error {
	file, err := os.Open(m.Path)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(file.Fd()), fiFreeze, 0)
	if err == nil {
		f.files = append(f.files, file)
		return nil
	}
	file.Close()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EBUSY) {
		f.log.Info("file system left as it is", "path", m.Path, "reason", err)
		return nil
	}
	return wire.Errorf(wire.Failed, "freeze %s: %v", m.Path, err)
}

// thaw thaws all frozen file systems and returns their number.
func (f *freezer) thaw() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawLocked()
}

func (f *freezer) thawLocked() int {
	n := 0
	for _, file := range slices.Backward(f.files) {
		if err := unix.IoctlSetInt(int(file.Fd()), fiThaw, 0); err == nil {
			n++
		} else {
			f.log.Error("thaw", "path", file.Name(), "error", err)
		}
		file.Close()
	}
	f.files, f.owner = nil, nil
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	return n
}

// endOf thaws what an ended session froze.
func (f *freezer) endOf(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owner == s {
		f.thawLocked()
	}
}

func (c *call) freeze(ctx context.Context, args wire.Freeze) (any, error) {
	if args.LimitMS < 1000 || args.LimitMS > maxFreeze.Milliseconds() {
		return nil, wire.Errorf(
			wire.Invalid, "limit_ms: must be 1000 to %d, not %d", maxFreeze.Milliseconds(), args.LimitMS,
		)
	}
	mounts, err := c.config.Mounts()
	if err != nil {
		return nil, err
	}
	n, err := c.freezer.freeze(ctx, c.session, mounts, time.Duration(args.LimitMS)*time.Millisecond)
	return wire.Frozens{FileSystems: n}, err
}

func (c *call) thaw(context.Context, struct{}) (any, error) {
	return wire.Frozens{FileSystems: c.freezer.thaw()}, nil
}
