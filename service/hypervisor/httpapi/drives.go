package httpapi

import (
	"context"
	"slices"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/disk"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// apiDisks returns the disks of a VM beside its system disk.
func apiDisks(r *record.VM) []hypervisorapi.Disk {
	out, running := []hypervisorapi.Disk{}, r.AsRunning()
	for _, d := range r.Disks.V {
		state := hypervisorapi.DiskStateAttached
		switch {
		case d.State == record.DiskMaking:
			continue // until it is acknowledged
		case d.State == record.DiskRemoving:
			state = hypervisorapi.DiskStateRemoving
		case !slices.ContainsFunc(running.Disks.V, func(has record.Disk) bool { return has.ID == d.ID }):
			state = hypervisorapi.DiskStatePending
		}
		out = append(out, hypervisorapi.Disk{
			Name: d.Name, SizeGib: d.SizeGiB, Image: some(d.Image), ReadOnly: d.ReadOnly, Serial: d.Serial,
			Iops: d.Limits.IOPS, BytesPerSecond: d.Limits.BytesPerSecond, State: state, CreatedAt: &d.CreatedAt,
		})
	}
	return out
}

// allDisks returns all disks of a VM, the system disk first.
func (a *API) allDisks(r *record.VM) ([]hypervisorapi.Disk, error) {
	out := apiDisks(r)
	if !r.HasDisk() {
		return out, nil
	}
	size, err := a.disk.SystemGiB(r)
	limits := r.Spec.V.DiskLimits
	return slices.Insert(out, 0, hypervisorapi.Disk{
		Name: record.SystemDisk, SizeGib: size, State: hypervisorapi.DiskStateAttached,
		Iops: limits.IOPS, BytesPerSecond: limits.BytesPerSecond,
	}), err
}

// diskNamed returns a disk of a VM.
func (a *API) diskNamed(r *record.VM, name string) (hypervisorapi.Disk, error) {
	all, err := a.allDisks(r)
	if err != nil {
		return hypervisorapi.Disk{}, err
	}
	if i := slices.IndexFunc(all, func(d hypervisorapi.Disk) bool { return d.Name == name }); i >= 0 {
		return all[i], nil
	}
	return hypervisorapi.Disk{}, record.ErrNoDisk(name)
}

// ListDisks lists the disks of a VM.
func (a *API) ListDisks(
	ctx context.Context, req hypervisorapi.ListDisksRequestObject,
) (hypervisorapi.ListDisksResponseObject, error) {
	r, err := a.store.VM(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	all, err := a.allDisks(&r)
	return hypervisorapi.ListDisks200JSONResponse(all), err
}

// GetDisk returns a disk of a VM.
func (a *API) GetDisk(
	ctx context.Context, req hypervisorapi.GetDiskRequestObject,
) (hypervisorapi.GetDiskResponseObject, error) {
	r, err := a.store.VM(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	d, err := a.diskNamed(&r, req.Disk)
	return hypervisorapi.GetDisk200JSONResponse(d), err
}

// CreateDisk makes a disk of a VM.
func (a *API) CreateDisk(
	ctx context.Context, req hypervisorapi.CreateDiskRequestObject,
) (hypervisorapi.CreateDiskResponseObject, error) {
	b := req.Body
	r, made, err := a.disk.AddDisk(ctx, req.Id, disk.NewDisk{
		Name: b.Name, SizeGiB: value(b.SizeGib), Image: value(b.Image), ReadOnly: value(b.ReadOnly), Serial: value(b.Serial),
		Limits: record.DiskLimits{IOPS: value(b.Iops), BytesPerSecond: value(b.BytesPerSecond)},
	})
	if err != nil {
		return nil, err
	}
	d, err := a.diskNamed(&r, made.Name)
	return hypervisorapi.CreateDisk201JSONResponse(d), err
}

// ChangeDisk changes a disk of a VM.
func (a *API) ChangeDisk(
	ctx context.Context, req hypervisorapi.ChangeDiskRequestObject,
) (hypervisorapi.ChangeDiskResponseObject, error) {
	r, err := a.disk.ChangeDisk(ctx, req.Id, req.Disk, record.DiskChange{
		SizeGiB: req.Body.SizeGib, IOPS: req.Body.Iops, BytesPerSecond: req.Body.BytesPerSecond,
	})
	if err != nil {
		return nil, err
	}
	d, err := a.diskNamed(&r, req.Disk)
	return hypervisorapi.ChangeDisk200JSONResponse(d), err
}

// RemoveDisk removes a disk of a VM.
func (a *API) RemoveDisk(
	ctx context.Context, req hypervisorapi.RemoveDiskRequestObject,
) (hypervisorapi.RemoveDiskResponseObject, error) {
	r, err := a.disk.RemoveDisk(ctx, req.Id, req.Disk)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.RemoveDisk200JSONResponse(a.apiVM(r)), nil
}

// InsertCD puts an image into the CD drive of a VM.
func (a *API) InsertCD(
	ctx context.Context, req hypervisorapi.InsertCDRequestObject,
) (hypervisorapi.InsertCDResponseObject, error) {
	r, err := a.disk.InsertCD(ctx, req.Id, req.Body.Image)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.InsertCD200JSONResponse(a.apiVM(r)), nil
}

// EjectCD empties the CD drive of a VM.
func (a *API) EjectCD(
	ctx context.Context, req hypervisorapi.EjectCDRequestObject,
) (hypervisorapi.EjectCDResponseObject, error) {
	r, err := a.disk.EjectCD(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.EjectCD200JSONResponse(a.apiVM(r)), nil
}
