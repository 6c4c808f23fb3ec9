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

// Kind is the kind of a content.
type Kind string

// Kinds of contents.
const (
	Disk   Kind = "disk"
	Kernel Kind = "kernel"
	RootFS Kind = "rootfs"
)

// Content is something that VMs can be made from.
type Content struct {
	SHA256      string `json:"sha256"` // of the source
	Kind        Kind   `json:"kind"`
	Size        int64  `json:"size"`         // on the host, in bytes
	VirtualSize int64  `json:"virtual_size"` // of a disk, as the guest sees it
	HasInitrd   bool   `json:"has_initrd,omitempty"`

	folder string
}

// DiskPath returns a disk's qcow2 file.
func (c *Content) DiskPath() string { return filepath.Join(c.folder, "disk.qcow2") }

// KernelPath returns a kernel's file.
func (c *Content) KernelPath() string { return filepath.Join(c.folder, "kernel") }

// InitrdPath returns the initial RAM disk of a kernel, or "" if it has none.
func (c *Content) InitrdPath() string {
	if !c.HasInitrd {
		return ""
	}
	return filepath.Join(c.folder, "initrd")
}

// RootFSPath returns the folder of a root file system.
func (c *Content) RootFSPath() string { return filepath.Join(c.folder, "rootfs") }

// Contents stores contents in a folder.
type Contents struct {
	folder string
	// maxVirtualSize is the largest disk that can be imported, in bytes as its guest sees it.
	maxVirtualSize int64
}

// OpenContents creates the folder if needed.
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

// Get returns a content by its SHA-256. It fails with NotFound if there is none.
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

// Incoming returns the folder for one import and creates it if needed. Drop removes it.
func (s *Contents) Incoming(id string) (string, error) {
	folder := filepath.Join(s.folder, "incoming", filepath.Base(id))
	return folder, os.MkdirAll(folder, 0o700)
}

// Drop removes the incoming folder of an import, finished or not.
func (s *Contents) Drop(id string) error {
	return os.RemoveAll(filepath.Join(s.folder, "incoming", filepath.Base(id)))
}

// DropAll removes all incoming folders except those that keep reports.
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

// Keep copies r, at most limit bytes, to a file and returns its SHA-256.
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

// MaxSize returns the maximum size of an imported file, in bytes.
func (s *Contents) MaxSize() int64 { return s.maxVirtualSize + s.maxVirtualSize/8 + 1<<20 }

const convertCPU = 4 * time.Hour

// TakeDisk makes a content from a disk image in a folder of Incoming, where nobody else can change
// it. The file stays until Drop, so that this can be repeated.
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

// TakeKernel makes a content from a kernel and, unless nil, an initial RAM disk. id names the
// incoming folder in which it works. The content's sum is derived from both files.
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

// publish moves a finished content to its place, durably.
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
	syscall.Sync() // qemu-img and we wrote the files; they must survive a power loss
	c.folder = filepath.Join(s.folder, "content", c.SHA256)
	if err := os.Rename(work, c.folder); err != nil {
		if existing, getErr := s.Get(c.SHA256); getErr == nil {
			return existing, os.RemoveAll(work) // another import of the same content finished first
		}
		return Content{}, err
	}
	return c, durable.SyncFolder(filepath.Dir(c.folder))
}

// Clean removes the contents that keep does not name, and returns how many files and bytes it
// removed.
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
