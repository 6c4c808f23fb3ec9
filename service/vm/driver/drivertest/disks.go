package drivertest

import (
	"encoding/json"
	"net/http"
	"slices"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// listDisks lists the disks of a VM, the system disk first.
func (d *Daemon) listDisks(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		return 200, slices.Insert(slices.Clone(vm.Disks), 0, d.systemDisk(vm))
	})
}

func (d *Daemon) systemDisk(vm *hypervisorapi.VM) hypervisorapi.Disk {
	return hypervisorapi.Disk{Name: "system", SizeGib: d.sizeOf(vm), State: "attached"}
}

// createDisk attaches a disk to a VM.
func (d *Daemon) createDisk(r *http.Request, tenant string) (int, any) {
	var spec hypervisorapi.DiskSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		return 400, errorBody(400, "%v", err)
	}
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		switch {
		case spec.Name == "full":
			return 507, errorBody(507, "the storage is full")
		case spec.Image != nil && *spec.SizeGib < 2:
			return 400, errorBody(400, "size_gib: is smaller than the image, which has 2 GiB")
		case len(vm.Disks) == 8:
			return 409, errorBody(409, "the VM has 8 disks, and takes no more")
		case diskAt(vm, spec.Name) >= 0:
			return 409, errorBody(409, "the VM has a disk %s already", spec.Name)
		}
		made := hypervisorapi.Disk{
			Name: spec.Name, SizeGib: value(spec.SizeGib, 1), Image: spec.Image, ReadOnly: value(spec.ReadOnly, false),
			Serial: spec.Name, Iops: value(spec.Iops, 0), BytesPerSecond: value(spec.BytesPerSecond, 0), State: "attached",
		}
		vm.Disks, vm.Generation = append(vm.Disks, made), vm.Generation+1
		d.tell(vm, vm.State)
		return 201, made
	})
}

func diskAt(vm *hypervisorapi.VM, name string) int {
	return slices.IndexFunc(vm.Disks, func(d hypervisorapi.Disk) bool { return d.Name == name })
}

// changeDisk makes a disk larger, and changes its limits.
func (d *Daemon) changeDisk(r *http.Request, tenant string) (int, any) {
	var c hypervisorapi.DiskPatch
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		return 400, errorBody(400, "%v", err)
	}
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		vm.Generation++
		if r.PathValue("disk") == "system" {
			vm.DiskGib = value(c.SizeGib, vm.DiskGib)
			return 200, d.systemDisk(vm)
		}
		i := diskAt(vm, r.PathValue("disk"))
		if i < 0 {
			return 404, errorBody(404, "the VM has no disk %s", r.PathValue("disk"))
		}
		vm.Disks = slices.Clone(vm.Disks) // the test may hold the old ones
		disk := &vm.Disks[i]
		disk.SizeGib, disk.Iops = value(c.SizeGib, disk.SizeGib), value(c.Iops, disk.Iops)
		disk.BytesPerSecond = value(c.BytesPerSecond, disk.BytesPerSecond)
		return 200, *disk
	})
}

// removeDisk removes a disk from a VM.
func (d *Daemon) removeDisk(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		i := diskAt(vm, r.PathValue("disk"))
		if i < 0 {
			return 404, errorBody(404, "the VM has no disk %s", r.PathValue("disk"))
		}
		vm.Disks, vm.Generation = slices.Delete(slices.Clone(vm.Disks), i, i+1), vm.Generation+1
		return 200, *vm
	})
}
