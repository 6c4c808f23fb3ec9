package image

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// resizeArgs are the arguments of the job image.resize.
type resizeArgs struct {
	Image string `json:"image"`
	Size  int64  `json:"size"` // bytes
	Actor string `json:"actor"`
}

// resizeWait is how long a request waits for the end of its job.
const resizeWait = 10 * time.Minute

// Resize makes the disk of an image larger, and returns the image when that is done. VMs that were made of it
// keep the disks that they have.
func (m *Manager) Resize(ctx context.Context, id string, size int64) (record.Image, error) {
	if size > m.cfg.MaxSize {
		return record.Image{}, fault.InvalidField("size_gb", "must be at most %d, as the setting image-max-gib says",
			m.cfg.MaxSize/gib)
	}
	i, err := m.cfg.Store.ResizeImage(ctx, id, size, func(tx *db.Tx, i *record.Image) (string, error) {
		j := record.Job{Operation: operation.Operation{Kind: record.JobImageResize, Tenant: i.Tenant}}
		err := m.cfg.Jobs.Begin(ctx, tx, &j, resizeArgs{Image: id, Size: size, Actor: caller.From(ctx).Person()})
		return j.ID, err
	})
	if err != nil {
		return i, err
	}
	j, err := m.cfg.Jobs.Await(ctx, i.Job, resizeWait)
	switch {
	case err != nil:
		return i, err
	case !j.Job.State.Finished():
		return i, fault.New(fault.Unavailable, "the image is being resized by the job %s, which takes longer", i.Job)
	case j.Job.Error != "":
		return i, fault.New(fault.Conflict, "the image was not resized: %s", j.Job.Error)
	}
	return m.cfg.Store.Image(ctx, id)
}

// resize is the job image.resize.
func (m *Manager) resize(ctx context.Context, a resizeArgs, _ func(float64)) error {
	ctx = caller.Acting(ctx, a.Actor)
	i, err := m.cfg.Store.Image(ctx, a.Image)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	made, err := m.cfg.Driver.ResizeImage(ctx, i.Catalog, a.Size)
	if err != nil {
		return err
	}
	return m.cfg.Store.Resized(ctx, i.ID, made.Size, made.VirtualSize)
}
