package driver

import (
	"context"
	"net/http"
	"strings"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Disks lists the disks of a VM, the system disk first.
func (d *Driver) Disks(ctx context.Context, at Place) ([]record.Disk, error) {
	all, err := call[[]hypervisorapi.Disk](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.ListDisks(ctx, at.ID)
		})
	if err != nil {
		return nil, err
	}
	out := make([]record.Disk, 0, len(all))
	for i := range all {
		out = append(out, diskOf(&all[i]))
	}
	return out, nil
}

// AddDisk makes a disk and attaches it, at once or at the next start. The image is one of the daemon's
// catalog; an empty one makes an empty disk.
func (d *Driver) AddDisk(ctx context.Context, at Place, disk record.Disk) (record.Disk, error) {
	return d.disk(ctx, at, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.CreateDisk(ctx, at.ID, hypervisorapi.DiskSpec{
			Name: disk.Name, SizeGib: &disk.Size, Image: some(disk.Image), ReadOnly: &disk.ReadOnly, Iops: &disk.IOPS,
			BytesPerSecond: &disk.BytesPerSecond,
		})
	})
}

// DiskChange is a change of a disk. Nil fields stay.
type DiskChange struct {
	Size           *int // GiB
	IOPS           *int64
	BytesPerSecond *int64
}

// ChangeDisk makes a disk larger and changes its limits, at once.
func (d *Driver) ChangeDisk(ctx context.Context, at Place, name string, c DiskChange) (record.Disk, error) {
	body := hypervisorapi.DiskPatch{SizeGib: c.Size, Iops: c.IOPS, BytesPerSecond: c.BytesPerSecond}
	return d.disk(ctx, at, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.ChangeDisk(ctx, at.ID, name, body)
	})
}

// RemoveDisk detaches a disk and removes it.
func (d *Driver) RemoveDisk(ctx context.Context, at Place, name string) (record.Seen, error) {
	return d.vm(ctx, at, workTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.RemoveDisk(ctx, at.ID, name)
	})
}

func (d *Driver) disk(
	ctx context.Context, at Place, send func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error),
) (record.Disk, error) {
	made, err := call[hypervisorapi.Disk](ctx, d, at, workTimeout, send)
	if fault.Is(err, fault.Invalid) { // in the words of this service's contract
		f := *fault.From(err)
		f.Message = strings.Replace(f.Message, "size_gib", "size", 1)
		err = &f
	}
	return diskOf(&made), err
}

// diskOf translates the daemon's disk.
func diskOf(d *hypervisorapi.Disk) record.Disk {
	return record.Disk{
		Name: d.Name, Size: d.SizeGib, Image: deref(d.Image), ReadOnly: d.ReadOnly, Serial: d.Serial, IOPS: d.Iops,
		BytesPerSecond: d.BytesPerSecond, State: string(d.State),
	}
}
