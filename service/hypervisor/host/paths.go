package host

import (
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Folder is a VM's own.
func (h *Host) Folder(id string) string { return filepath.Join(h.data, "vms", filepath.Base(id)) }

// Owner is whom a VM's process runs as; zeros: as the daemon.
func (h *Host) Owner(r *record.VM) (uid, gid int) {
	if !h.doc.Jailer.Enabled {
		return 0, 0
	}
	return h.doc.Jailer.UID + r.Slot, h.doc.Jailer.GID
}

// pool is the storage of a VM's disk.
func (h *Host) pool(r *record.VM) storage.Pool {
	if r.Backend == backend.Firecracker && r.Spec.V.Storage == storage.Dir {
		return storage.RawPool{} // it reads nothing else
	}
	if p := h.pools[r.Spec.V.Storage]; p != nil {
		return p
	}
	return h.pools[storage.Dir]
}

// Volume is a VM's disk as its storage knows it.
func (h *Host) Volume(r *record.VM) storage.Volume {
	uid, gid := h.Owner(r)
	size := int64(r.Spec.V.DiskGiB) * record.GiB
	return storage.Volume{VM: r.ID, Folder: h.Folder(r.ID), Size: size, UID: uid, GID: gid}
}

// Disk is a VM's disk as its backend reaches it.
func (h *Host) Disk(r *record.VM) backend.Disk { return h.pool(r).Disk(h.Volume(r)) }

// WorkCopy is the file in a VM's folder that its disk is copied to, while that is under way.
func (h *Host) WorkCopy(id string) string { return filepath.Join(h.Folder(id), workCopy) }

const workCopy = "copy.qcow2"

// CheckpointFolder is where a sandbox's full snapshot is.
func (h *Host) CheckpointFolder(id, snapshot string) string {
	return filepath.Join(h.Folder(id), "snapshots", filepath.Base(snapshot))
}

// BackupFile is the disk of a backup.
func (h *Host) BackupFile(id string) string {
	return filepath.Join(h.BackupFolder(), filepath.Base(id)+".qcow2")
}

// BackupBoot is the folder with what the VM of a backup boots from beside its disk.
func (h *Host) BackupBoot(id string) string {
	return filepath.Join(h.BackupFolder(), filepath.Base(id)+".boot")
}

// BackupFolder is the folder of all backups.
func (h *Host) BackupFolder() string { return filepath.Join(h.data, "backups") }

// Backend is what runs a VM.
func (h *Host) Backend(r *record.VM) (backend.Backend, error) {
	b := h.backends[r.Backend]
	if b == nil {
		return nil, fault.New(fault.Unavailable, "this daemon has no backend %s", r.Backend)
	}
	return b, nil
}

// Spec is a VM as its backend knows it, without what it only has while it runs.
func (h *Host) Spec(r *record.VM) *backend.Spec {
	v := &r.Spec.V
	out := &backend.Spec{
		ID: r.ID, Name: r.Name, Folder: h.Folder(r.ID), VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB,
		Kernel: h.within(r, v.Boot.Kernel), Initrd: h.within(r, v.Boot.Initrd), KernelArgs: v.Boot.KernelArgs,
		Firmware: h.within(r, v.Boot.Firmware), RootFS: v.Boot.RootFS, Agent: v.Agent,
	}
	if r.Backend == backend.CloudHypervisor && v.Firmware == "uefi" {
		out.Firmware = "" // it has firmware of its own
	}
	out.UID, out.GID = h.Owner(r)
	if r.HasDisk() {
		out.Disks = append(out.Disks, h.Disk(r))
	}
	if r.Backend != backend.Sandbox {
		at := filepath.Join(h.Folder(r.ID), seedFile)
		out.Disks = append(out.Disks, backend.Disk{ID: "seed", Target: at, Format: "raw", ReadOnly: true, CD: true})
	}
	if v.Network.Mode != record.NetworkNone {
		out.NICs = []backend.NIC{{MAC: r.MAC, Tap: r.Tap}}
	}
	return out
}

// within is a file in the VM's folder, unless the path says otherwise.
func (h *Host) within(r *record.VM, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(h.Folder(r.ID), path)
}
