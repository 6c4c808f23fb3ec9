package httpapi

import (
	"context"
	"strings"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func apiDisk(d record.Disk) vmapi.Disk {
	return vmapi.Disk{
		Name: d.Name, Size: d.Size, Image: d.Image, ReadOnly: d.ReadOnly, Serial: d.Serial, Iops: d.IOPS,
		BytesPerSecond: d.BytesPerSecond, State: vmapi.DiskState(d.State),
	}
}

// checkLimits refuses limits of a disk from callers who have a tenant: they are the operator's.
func checkLimits(ctx context.Context, iops, bytesPerSecond *int64) error {
	if (iops != nil || bytesPerSecond != nil) && !caller.From(ctx).SeesAll() {
		return fault.New(fault.Denied, "iops and bytes_per_second: only an admin without a tenant sets the limits of a disk")
	}
	return nil
}

// ListDisks lists the disks of a VM, as the daemon has them.
func (a *API) ListDisks(ctx context.Context, req vmapi.ListDisksRequestObject) (vmapi.ListDisksResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	var all []record.Disk
	if r.Provisioned() && r.State != record.Missing {
		if all, err = a.driver.Disks(ctx, driver.PlaceOf(&r)); err != nil {
			return nil, err
		}
	}
	return vmapi.ListDisks200JSONResponse(orEmpty(list.Each(all, apiDisk))), nil
}

// AddDisk makes a disk of a VM.
func (a *API) AddDisk(ctx context.Context, req vmapi.AddDiskRequestObject) (vmapi.AddDiskResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b := req.Body
	if err := checkLimits(ctx, b.Iops, b.BytesPerSecond); err != nil {
		return nil, err
	}
	image := value(b.Image)
	if strings.Contains(image, "/") {
		return nil, fault.InvalidField("image", "must be the name of an image")
	}
	if image != "" {
		if image, err = a.store.ResolveImage(ctx, r.Tenant, image); err != nil {
			return nil, err
		}
	}
	d, err := a.life.AddDisk(ctx, r.ID, record.Disk{
		Name: b.Name, Size: b.Size, Image: image, ReadOnly: value(b.ReadOnly), IOPS: value(b.Iops),
		BytesPerSecond: value(b.BytesPerSecond),
	})
	return vmapi.AddDisk201JSONResponse(apiDisk(d)), err
}

// ChangeDisk makes a disk of a VM larger, or changes its limits.
func (a *API) ChangeDisk(
	ctx context.Context, req vmapi.ChangeDiskRequestObject,
) (vmapi.ChangeDiskResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b := req.Body
	if err := checkLimits(ctx, b.Iops, b.BytesPerSecond); err != nil {
		return nil, err
	}
	d, err := a.life.ChangeDisk(ctx, r.ID, req.Disk, driver.DiskChange{
		Size: b.Size, IOPS: b.Iops, BytesPerSecond: b.BytesPerSecond,
	})
	return vmapi.ChangeDisk200JSONResponse(apiDisk(d)), err
}

// RemoveDisk removes a disk of a VM.
func (a *API) RemoveDisk(
	ctx context.Context, req vmapi.RemoveDiskRequestObject,
) (vmapi.RemoveDiskResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err == nil {
		err = a.life.RemoveDisk(ctx, r.ID, req.Disk)
	}
	if err == nil {
		r, err = a.store.VM(ctx, r.ID)
	}
	return vmapi.RemoveDisk200JSONResponse(apiVM(ctx, r)), err
}
