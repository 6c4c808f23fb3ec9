package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/transfer"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
)

// Kind is what a content is.
type Kind string

// The kinds of contents.
const (
	Disk   Kind = "disk"
	Kernel Kind = "kernel"
	RootFS Kind = "rootfs"
)

// Content is something that VMs can be made of.
type Content struct {
	SHA256      string `json:"sha256"` // of what was taken in
	Kind        Kind   `json:"kind"`
	Size        int64  `json:"size"`         // on the host, in bytes
	VirtualSize int64  `json:"virtual_size"` // of a disk, as its guest sees it
	HasInitrd   bool   `json:"has_initrd,omitempty"`

	folder string
}

// DiskPath is a disk's file, qcow2.
func (c *Content) DiskPath() string { return filepath.Join(c.folder, "disk.qcow2") }

// KernelPath is a kernel's file.
func (c *Content) KernelPath() string { return filepath.Join(c.folder, "kernel") }

// InitrdPath is the file of the initial RAM disk beside a kernel; empty: there is none.
func (c *Content) InitrdPath() string {
	if !c.HasInitrd {
		return ""
	}
	return filepath.Join(c.folder, "initrd")
}

// RootFSPath is the folder of a root file system.
func (c *Content) RootFSPath() string { return filepath.Join(c.folder, "rootfs") }

// Contents are what a folder holds.
type Contents struct {
	folder string
	// MaxVirtualSize is the largest disk that is taken in, in bytes as its guest sees it.
	maxVirtualSize int64
}

// OpenContents makes the folder if it is not there.
func OpenContents(folder string, maxVirtualSize int64) (*Contents, error) {
	s := &Contents{folder, maxVirtualSize}
	for _, sub := range []string{"content", "incoming"} {
		if err := os.MkdirAll(
			filepath.Join(folder, sub), 0o711,
		); err != nil { //nolint:gosec // VMs under other uids read contents
			return nil, err
		}
	}
	return s, os.Chmod(filepath.Join(folder, "incoming"), 0o700)
}

var validSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Get reads what is known of a content.
func (s *Contents) Get(sum string) (Content, error) {
	if !validSum.MatchString(sum) {
		return Content{}, fault.New(fault.NotFound, "there is no such content")
	}
	folder := filepath.Join(s.folder, "content", sum)
	raw, err := os.ReadFile(filepath.Join(folder, "content.json")) //nolint:gosec // below our own folder
	if errors.Is(err, fs.ErrNotExist) {
		return Content{}, fault.New(fault.NotFound, "the content %s is not on this host", sum)
	}
	if err != nil {
		return Content{}, err
	}
	c := Content{folder: folder}
	if err := json.Unmarshal(raw, &c); err != nil {
		return Content{}, fmt.Errorf("content %s: %w", sum, err)
	}
	return c, nil
}

// Incoming is the folder for one thing that is taken in, made if it is not there. Drop
// removes it.
func (s *Contents) Incoming(id string) (string, error) {
	folder := filepath.Join(s.folder, "incoming", filepath.Base(id))
	return folder, os.MkdirAll(folder, 0o700)
}

// Drop removes what is there of something that was not, or was, taken in.
func (s *Contents) Drop(id string) error {
	return os.RemoveAll(filepath.Join(s.folder, "incoming", filepath.Base(id)))
}

// DropAll removes all that is being taken in, but what keep says.
func (s *Contents) DropAll(keep func(id string) bool) error {
	entries, err := os.ReadDir(filepath.Join(s.folder, "incoming"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !keep(e.Name()) {
			err = errors.Join(err, s.Drop(e.Name()))
		}
	}
	return err
}

// Keep copies what r holds, at most limit bytes, to a new file and says its SHA-256.
func Keep(ctx context.Context, r io.Reader, path string, limit int64) (sum string, err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // a file of our own
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash), transfer.Reader(ctx, r, limit, nil))
	if errors.Is(err, transfer.ErrTooLarge) {
		err = errTooLarge
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

var errTooLarge = fault.New(
	fault.TooLarge,
	"the image is larger than is allowed; see images.max_gib in the daemon's document",
)

// MaxSize is the most bytes that a file to take in may have.
func (s *Contents) MaxSize() int64 { return s.maxVirtualSize + s.maxVirtualSize/8 + 1<<20 }

const convertCPU = 4 * time.Hour

// TakeDisk makes a content of a disk image that lies in a folder of Incoming, where
// nobody else can change it. The file stays until Drop, so that this can be repeated.
func (s *Contents) TakeDisk(ctx context.Context, path, sum string, progress func(float64)) (Content, error) {
	if c, err := s.Get(sum); err == nil {
		return c, nil
	}
	f, err := os.Open(path) //nolint:gosec // below our own folder
	if err != nil {
		return Content{}, err
	}
	info, err := inspect(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return Content{}, err
	}
	work := filepath.Join(filepath.Dir(path), "content")
	if err := errors.Join(
		os.RemoveAll(work), os.Mkdir(work, 0o711),
	); err != nil { //nolint:gosec // VMs under other uids read contents
		return Content{}, err
	}
	c := Content{SHA256: sum, Kind: Disk, VirtualSize: info.VirtualSize, folder: work}
	limits := image.Limits{
		VirtualSize: s.maxVirtualSize,
		Written:     s.MaxSize(),
		CPU:         convertCPU,
		Memory:      image.DefaultMemory,
	}
	if err := image.Convert(ctx, path, info, c.DiskPath(), limits, progress); err != nil {
		return Content{}, err
	}
	return s.publish(c, nil)
}

func inspect(f *os.File) (image.Info, error) {
	stat, err := f.Stat()
	if err != nil {
		return image.Info{}, err
	}
	return image.Inspect(f, stat.Size())
}

// TakeKernel makes a content of a kernel and, unless that is nil, an initial RAM disk.
// The id names the folder in which it works. The sum is that of both files.
func (s *Contents) TakeKernel(ctx context.Context, id string, kernel, initrd io.Reader) (Content, error) {
	folder, err := s.Incoming(id)
	if err != nil {
		return Content{}, err
	}
	work := filepath.Join(folder, "content")
	if err := errors.Join(
		os.RemoveAll(work), os.Mkdir(work, 0o711),
	); err != nil { //nolint:gosec // VMs under other uids read contents
		return Content{}, err
	}
	c := Content{Kind: Kernel, HasInitrd: initrd != nil, folder: work}
	const mostBytes = 2 << 30
	sums, err := Keep(ctx, kernel, c.KernelPath(), mostBytes)
	if err == nil && initrd != nil {
		var second string
		second, err = Keep(ctx, initrd, c.InitrdPath(), mostBytes)
		sums += second
	}
	if err != nil {
		return Content{}, err
	}
	both := sha256.Sum256([]byte(sums))
	c.SHA256 = hex.EncodeToString(both[:])
	return s.publish(c, nil)
}

// publish puts a finished content in its place, durably.
func (s *Contents) publish(c Content, err error) (Content, error) {
	if err != nil {
		return Content{}, err
	}
	work := c.folder
	if err := filepath.WalkDir(work, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		c.Size += info.Size()
		if c.Kind == RootFS {
			return nil // its permissions are its own
		}
		return os.Chmod(path, 0o644) //nolint:gosec // VMs under other uids read contents
	}); err != nil {
		return Content{}, err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return Content{}, err
	}
	if err := durable.Create(filepath.Join(work, "content.json"), raw, 0o644); err != nil {
		return Content{}, err
	}
	syscall.Sync() // the files are qemu-img's and ours, and must not be empty after a loss of power
	c.folder = filepath.Join(s.folder, "content", c.SHA256)
	if err := os.Rename(work, c.folder); err != nil {
		if existing, getErr := s.Get(c.SHA256); getErr == nil {
			return existing, os.RemoveAll(work) // somebody was quicker
		}
		return Content{}, err
	}
	return c, durable.SyncFolder(filepath.Dir(c.folder))
}

// Clean removes the contents that keep does not name, and says how many files and bytes
// that were.
func (s *Contents) Clean(keep map[string]bool) (files int, bytes int64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.folder, "content"))
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		if keep[e.Name()] {
			continue
		}
		c, getErr := s.Get(e.Name())
		path := filepath.Join(s.folder, "content", e.Name())
		if strings.HasPrefix(e.Name(), ".") || getErr != nil && !validSum.MatchString(e.Name()) {
			continue // not ours
		}
		if removeErr := os.RemoveAll(path); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		files, bytes = files+1, bytes+c.Size
	}
	return files, bytes, err
}
