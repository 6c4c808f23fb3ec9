package host

import (
	"context"
	"slices"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// DataVolume returns a disk beside the system disk as its storage identifies it. Such disks are files in the
// VM's folder, whatever the storage of the system disk.
func (h *Host) DataVolume(r *record.VM, d *record.Disk) storage.Volume {
	v := h.Volume(r)
	v.Data, v.Size = d.ID, int64(d.SizeGiB)*record.GiB
	return v
}

// DataDisk returns a disk beside the system disk as its backend accesses it.
func (h *Host) DataDisk(r *record.VM, d *record.Disk) backend.Disk {
	out := storage.DirPool{}.Disk(h.DataVolume(r, d))
	out.ReadOnly, out.Serial, out.Port, out.Limits = d.ReadOnly, d.Serial, d.Port, backend.DiskLimits(d.Limits)
	return out
}

// Medium returns the medium of a CD drive as the backend accesses it.
func Medium(cd *record.CD) backend.Disk {
	return backend.Disk{ID: backend.CDDrive, Target: cd.Path, Format: "qcow2", ReadOnly: true, Medium: true}
}

// MakeDisk creates a disk beside the system disk, as a copy of a base, or empty if base is nil.
func (h *Host) MakeDisk(ctx context.Context, r *record.VM, d *record.Disk, base *storage.Base) error {
	if base == nil {
		return storage.DirPool{}.Create(ctx, h.DataVolume(r, d), nil)
	}
	return storage.DirPool{}.CreateCopy(ctx, h.DataVolume(r, d), base)
}

// RemoveDisk removes the file of a disk beside the system disk, if it exists.
func (h *Host) RemoveDisk(ctx context.Context, r *record.VM, d *record.Disk) error {
	return storage.DirPool{}.Remove(ctx, h.DataVolume(r, d))
}

// DropRemoved removes the disks that the last process of a VM had kept.
func (h *Host) DropRemoved(ctx context.Context, r *record.VM) error {
	for _, d := range slices.Clone(r.Disks.V) {
		if d.State != record.DiskRemoving {
			continue
		}
		if err := h.RemoveDisk(ctx, r, &d); err != nil {
			return err
		}
		row, err := h.store.SettleNoDisk(caller.ByItself(ctx), r.ID, d.ID, "")
		if err != nil {
			return err
		}
		r.Disks = row.Disks
	}
	return nil
}
