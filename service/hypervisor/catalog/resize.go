package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// resizing is the argument of an operation that makes the disk of an image larger.
type resizing struct {
	Name     string        `json:"name"`
	Size     int64         `json:"size"` // bytes
	Incoming string        `json:"incoming"`
	Actor    caller.Caller `json:"actor"`
}

// Resize starts an operation that makes the disk of an image larger. The image gets a content of its own: VMs
// that were made of it keep theirs.
func (c *Catalog) Resize(ctx context.Context, name string, size int64) (record.Operation, error) {
	i, err := c.store.Image(ctx, name)
	if err != nil {
		return record.Operation{}, err
	}
	if err := c.resizable(&i, size); err != nil {
		return record.Operation{}, err
	}
	op := record.NewOperation(record.OperationResize, "")
	op.Image = name
	a := resizing{Name: name, Size: size, Incoming: record.NewID(), Actor: caller.From(ctx)}
	return c.operate.Begin(ctx, op, a,
		audit.Entry{Action: "image.resize", Target: name, Message: fmt.Sprintf("%d bytes", size)})
}

func (c *Catalog) resizable(i *record.Image, size int64) error {
	const sector = 512
	switch {
	case Kind(i.Kind) != Disk:
		return fault.New(fault.Conflict, "the image %s is not a disk", i.Name).WithCode("not_a_disk")
	case i.ReadOnly:
		return record.ErrImageReadOnly(i.Name)
	case size < i.VirtualSize || size%sector != 0:
		return fault.InvalidField("size_bytes", "must be a multiple of %d, and not less than the %d bytes that the disk has",
			sector, i.VirtualSize)
	case size > c.contents.maxVirtualSize:
		return fault.InvalidField("size_bytes", "must be at most %d, as images.max_gib says", c.contents.maxVirtualSize)
	}
	return nil
}

// runResize is the job of Resize. It can be repeated.
func (c *Catalog) runResize(ctx context.Context, a resizing, progress func(float64)) error {
	defer c.Hold()()
	defer func() {
		if !operation.BrokenOff(ctx) {
			_ = c.contents.Drop(a.Incoming) // otherwise removed on the next start
		}
	}()
	i, err := c.store.Image(ctx, a.Name)
	if err != nil {
		return err
	}
	if i.VirtualSize == a.Size {
		return nil
	}
	if err := c.resizable(&i, a.Size); err != nil {
		return err
	}
	content, err := c.contents.grow(ctx, a.Incoming, i.SHA256, a.Size, progress)
	if err != nil {
		return err
	}
	return c.store.ReplaceContent(ctx, &i, content.SHA256, content.Size, content.VirtualSize)
}

// grow makes a content with a larger disk of another one. Its sum is derived from that of the other one.
func (s *Contents) grow(
	ctx context.Context, id, sum string, size int64, progress func(float64),
) (Content, error) {
	from, err := s.Get(sum)
	if err != nil {
		return Content{}, err
	}
	derived := sha256.Sum256(fmt.Appendf(nil, "%s resized to %d", sum, size))
	c := Content{SHA256: hex.EncodeToString(derived[:]), Kind: Disk, VirtualSize: size}
	if made, err := s.Get(c.SHA256); err == nil {
		return made, nil
	}
	folder, err := s.Incoming(id)
	if err != nil {
		return Content{}, err
	}
	c.folder = filepath.Join(folder, "content")
	if err := errors.Join(
		os.RemoveAll(c.folder), os.Mkdir(c.folder, 0o711), //nolint:gosec // VMs under other uids read contents
	); err != nil {
		return Content{}, err
	}
	info := image.Info{Format: image.Qcow2, VirtualSize: from.VirtualSize}
	limits := image.LimitsOf(from.VirtualSize)
	if err := image.Convert(ctx, from.DiskPath(), info, c.DiskPath(), limits, progress); err != nil {
		return Content{}, err
	}
	if err := image.Grow(ctx, c.DiskPath(), image.LimitsOf(size)); err != nil {
		return Content{}, err
	}
	return s.publish(c, nil)
}
