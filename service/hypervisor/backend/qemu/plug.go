//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// fileSuffix ends the names of nodes that are the files of others.
const fileSuffix = "-file"

// peripherals is where the devices with IDs are.
const peripherals = "/machine/peripheral"

// hasDevice reports whether the machine has a device with an ID, such as a port or the device of a disk.
func (i *Instance) hasDevice(ctx context.Context, id string) (bool, error) {
	var all []struct {
		Name string `json:"name"`
	}
	if err := i.monitor.Execute(ctx, "qom-list", map[string]any{"path": peripherals}, &all); err != nil {
		return false, err
	}
	for _, one := range all {
		if one.Name == id {
			return true, nil
		}
	}
	return false, nil
}

// HasDisk reports whether the machine has a disk.
func (i *Instance) HasDisk(ctx context.Context, id string) (bool, error) {
	has, err := i.hasDevice(ctx, "dev-"+id)
	return has, refusal(err, "whether the VM has the disk is not known")
}

// openNodes opens the file of a disk.
func (i *Instance) openNodes(ctx context.Context, d *backend.Disk) error {
	if err := i.closeNodes(ctx, d.ID); err != nil {
		return err
	}
	for _, node := range []map[string]any{
		{"driver": "file", "filename": d.Target, "node-name": d.ID + fileSuffix, "auto-read-only": false},
		{"driver": d.Format, "file": d.ID + fileSuffix, "node-name": d.ID},
	} {
		node["read-only"], node["discard"] = d.ReadOnly, "unmap"
		if err := i.monitor.Execute(ctx, "blockdev-add", node, nil); err != nil {
			return errors.Join(err, i.closeNodes(ctx, d.ID))
		}
	}
	return nil
}

// closeNodes closes the file of a disk that no device uses, if it is open.
func (i *Instance) closeNodes(ctx context.Context, id string) error {
	return errors.Join(i.dropNode(ctx, id), i.dropNode(ctx, id+fileSuffix))
}

// Plug adds a disk to the machine.
func (i *Instance) Plug(ctx context.Context, d backend.Disk) error {
	const what = "the disk was not attached"
	if has, err := i.hasDevice(ctx, portID(d.Port)); err != nil {
		return refusal(err, what)
	} else if !has {
		return backend.ErrNoPort
	}
	if err := i.openNodes(ctx, &d); err != nil {
		return refusal(err, what)
	}
	device := map[string]any{"driver": "virtio-blk-pci", "id": "dev-" + d.ID, "drive": d.ID, "bus": portID(d.Port)}
	if d.Serial != "" {
		device["serial"] = d.Serial
	}
	if err := i.monitor.Execute(ctx, "device_add", device, nil); err != nil {
		return refusal(errors.Join(err, i.closeNodes(context.WithoutCancel(ctx), d.ID)), what)
	}
	return i.SetLimits(ctx, d.ID, d.Limits)
}

// askAgain is how long QEMU takes another request to unplug a disk for the same one.
const askAgain = 6 * time.Second

// Unplug asks the guest to let go of a disk, again and again until ctx ends: a guest that is booting does
// not hear it.
func (i *Instance) Unplug(ctx context.Context, id string) error {
	const what = "the disk was not detached"
	deleted := i.monitor.Subscribe(qmp.EventDeviceDeleted)
	defer deleted.Close()
	for {
		has, err := i.hasDevice(ctx, "dev-"+id)
		if err == nil && !has {
			return refusal(i.closeNodes(context.WithoutCancel(ctx), id), what)
		}
		if err == nil && !i.onPort(ctx, id) {
			return backend.ErrNoPort
		}
		if err == nil {
			// QEMU refuses it while an earlier request is open.
			refused := (*qmp.Error)(nil)
			err = i.monitor.Execute(ctx, "device_del", map[string]any{"id": "dev-" + id}, nil)
			if errors.As(err, &refused) && strings.Contains(refused.Description, "process of unplug") {
				err = nil
			}
		}
		if err == nil {
			err = awaitDeleted(ctx, deleted, "dev-"+id)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return backend.ErrHeld
		}
		if err != nil {
			return refusal(err, what)
		}
	}
}

// awaitDeleted waits for the end of a device, but not longer than askAgain.
func awaitDeleted(ctx context.Context, events *qmp.Subscription, device string) error {
	wait, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	for {
		e, err := events.Next(wait)
		if err != nil && ctx.Err() == nil && wait.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var gone struct {
			Device string `json:"device"`
		}
		if e.Missed > 0 || e.Decode(&gone) == nil && gone.Device == device {
			return nil
		}
	}
}

// onPort reports whether a disk is on a port, from which it can be unplugged.
func (i *Instance) onPort(ctx context.Context, id string) bool {
	var bus string
	err := i.monitor.Execute(
		ctx, "qom-get", map[string]any{"path": peripherals + "/dev-" + id, "property": "parent_bus"}, &bus,
	)
	return err == nil && strings.Contains(bus, "/port")
}

// SetMedium changes the medium of the CD drive.
func (i *Instance) SetMedium(ctx context.Context, d *backend.Disk) error {
	const what = "the CD was not changed"
	if has, err := i.hasDevice(ctx, cdDevice); err != nil {
		return refusal(err, what)
	} else if !has || !i.isDrive(ctx) {
		return backend.ErrNoPort
	}
	drive := map[string]any{"id": cdDevice}
	refused := (*qmp.Error)(nil)
	err := i.monitor.Execute(ctx, "blockdev-open-tray", drive, nil)
	if errors.As(err, &refused) && strings.Contains(refused.Description, "is locked") {
		return backend.ErrHeld
	}
	if err == nil {
		err = i.monitor.Execute(ctx, "blockdev-remove-medium", drive, nil)
	}
	if err == nil {
		err = i.closeNodes(ctx, backend.CDDrive)
	}
	if d != nil && err == nil {
		err = i.openNodes(ctx, d)
	}
	if d != nil && err == nil {
		err = i.monitor.Execute(
			ctx, "blockdev-insert-medium", map[string]any{"id": cdDevice, "node-name": d.ID}, nil,
		)
	}
	if err == nil {
		err = i.monitor.Execute(ctx, "blockdev-close-tray", drive, nil)
	}
	return refusal(err, what)
}

// isDrive reports whether the device of the CD is a drive, whose medium can be changed, and not a disk.
func (i *Instance) isDrive(ctx context.Context) bool {
	var kind string
	err := i.monitor.Execute(
		ctx, "qom-get", map[string]any{"path": peripherals + "/" + cdDevice, "property": "type"}, &kind,
	)
	return err == nil && kind == "ide-cd"
}

// SetLimits limits a disk.
func (i *Instance) SetLimits(ctx context.Context, id string, l backend.DiskLimits) error {
	const what = "the limits of the disk were not set"
	type user struct {
		Path string `json:"qdev"`
	}
	var devices []user
	if err := i.monitor.Execute(ctx, "query-block", nil, &devices); err != nil {
		return refusal(err, what)
	}
	at := slices.IndexFunc(devices, func(d user) bool {
		device := peripherals + "/dev-" + id
		return d.Path == "dev-"+id || d.Path == device || strings.HasPrefix(d.Path, device+"/")
	})
	if at < 0 {
		return fmt.Errorf("QEMU has no device for the disk %s", id)
	}
	err := i.monitor.Execute(ctx, "block_set_io_throttle", map[string]any{
		"id": devices[at].Path, "bps": l.BytesPerSecond, "bps_rd": 0, "bps_wr": 0, "iops": l.IOPS, "iops_rd": 0, "iops_wr": 0,
	}, nil)
	return refusal(err, what)
}

// limitAll sets the limits of all disks that a guest can write to.
func (i *Instance) limitAll(ctx context.Context, disks []backend.Disk) error {
	var errs []error
	for _, d := range disks {
		if !d.Seed && !d.Medium {
			errs = append(errs, i.SetLimits(ctx, d.ID, d.Limits))
		}
	}
	return errors.Join(errs...)
}

// ResizeDisk grows a disk.
func (i *Instance) ResizeDisk(ctx context.Context, id string, size int64) error {
	err := i.monitor.Execute(ctx, "block_resize", map[string]any{"node-name": id, "size": size}, nil)
	return refusal(err, "the disk keeps its size")
}

var _ backend.Plugger = (*Instance)(nil)
