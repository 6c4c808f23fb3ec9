package host

import (
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Folder returns a VM's own folder.
func (h *Host) Folder(id string) string { return filepath.Join(h.data, "vms", filepath.Base(id)) }

// Owner returns the user and group that a VM's process runs as, or zeros for the daemon's.
func (h *Host) Owner(r *record.VM) (uid, gid int) {
	if !h.doc.Jailer.Enabled {
		return 0, 0
	}
	return h.doc.Jailer.UID + r.Slot, h.doc.Jailer.GID
}

// pool returns the storage of a VM's disk.
func (h *Host) pool(r *record.VM) storage.Pool {
	if r.Backend == backend.Firecracker && r.Spec.V.Storage == storage.Dir {
		return storage.RawPool{} // Firecracker reads only raw disks
	}
	if p := h.pools[r.Spec.V.Storage]; p != nil {
		return p
	}
	return h.pools[storage.Dir]
}

// Volume returns a VM's disk as its storage identifies it.
func (h *Host) Volume(r *record.VM) storage.Volume {
	uid, gid := h.Owner(r)
	size := int64(r.Spec.V.DiskGiB) * record.GiB
	return storage.Volume{VM: r.ID, Folder: h.Folder(r.ID), Size: size, UID: uid, GID: gid}
}

// Disk returns a VM's disk as its backend accesses it.
func (h *Host) Disk(r *record.VM) backend.Disk { return h.pool(r).Disk(h.Volume(r)) }

// WorkCopy returns the file in a VM's folder to which its disk is being copied.
func (h *Host) WorkCopy(id string) string { return filepath.Join(h.Folder(id), workCopy) }

// Scratch returns the file in a VM's folder to which its process saves what its guest overwrites
// while the disk is read. It exists during that, and after a daemon was killed during that.
func (h *Host) Scratch(id string) string { return filepath.Join(h.Folder(id), "scratch.qcow2") }

const workCopy = "copy.qcow2"

// CheckpointFolder returns the folder of a sandbox's full snapshot.
func (h *Host) CheckpointFolder(id, snapshot string) string {
	return filepath.Join(h.Folder(id), "snapshots", filepath.Base(snapshot))
}

// BackupFile returns the disk file of a backup.
func (h *Host) BackupFile(id string) string {
	return filepath.Join(h.BackupFolder(), filepath.Base(id)+".qcow2")
}

// BackupBoot returns the folder with a backup's boot files.
func (h *Host) BackupBoot(id string) string {
	return filepath.Join(h.BackupFolder(), filepath.Base(id)+".boot")
}

// BackupFolder returns the folder of all backups.
func (h *Host) BackupFolder() string { return filepath.Join(h.data, "backups") }

// Backend returns the backend of a VM. It fails with Unavailable if this daemon lacks it.
func (h *Host) Backend(r *record.VM) (backend.Backend, error) {
	b := h.backends[r.Backend]
	if b == nil {
		return nil, fault.New(fault.Unavailable, "this daemon has no backend %s", r.Backend)
	}
	return b, nil
}

// Spec returns a VM as its backend sees it, without the resources that exist only while it runs.
func (h *Host) Spec(of *record.VM) *backend.Spec {
	running := of.AsRunning()
	r, v := &running, &running.Spec.V
	out := &backend.Spec{
		ID: r.ID, Name: r.Name, Folder: h.Folder(r.ID), VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB,
		Kernel: h.within(r, v.Boot.Kernel), Initrd: h.within(r, v.Boot.Initrd), KernelArgs: v.Boot.KernelArgs,
		Firmware: h.within(r, v.Boot.Firmware), RootFS: v.Boot.RootFS, Agent: v.Agent,
	}
	if r.Backend == backend.CloudHypervisor && v.Firmware == "uefi" {
		out.Firmware = "" // it brings its own firmware
	}
	if start := r.StartedWith.V; start != nil {
		out.ExtraArgs = start.ExtraArgs
		if start.Firmware != "" {
			out.FirmwareVars = filepath.Join(out.Folder, startVars)
		}
	}
	out.UID, out.GID = h.Owner(r)
	if r.HasDisk() {
		system := h.Disk(r)
		system.Limits = backend.DiskLimits(v.DiskLimits)
		out.Disks = append(out.Disks, system)
	}
	if r.Backend != backend.Sandbox {
		at := filepath.Join(h.Folder(r.ID), seedFile)
		out.Disks = append(out.Disks, backend.Disk{ID: "seed", Target: at, Format: "raw", ReadOnly: true, Seed: true})
	}
	if v.ServedDisk {
		out.Disks = append(out.Disks, backend.Disk{ID: backend.ServedDisk, Target: "nbd:unix:" + servedSocket, Format: "raw"})
	}
	for i := range r.Disks.V {
		out.Disks = append(out.Disks, h.DataDisk(r, &r.Disks.V[i]))
	}
	if cd := r.CD.V; cd != nil {
		out.Disks = append(out.Disks, Medium(cd))
	}
	if v.Network.Mode != record.NetworkNone {
		out.NICs = []backend.NIC{{MAC: r.MAC, Tap: r.Tap}}
		for _, f := range v.Network.Forwards {
			out.NICs[0].Forwards = append(out.NICs[0].Forwards, backend.Forward(f))
		}
	}
	return out
}

// within resolves a path relative to the VM's folder. Absolute and empty paths are unchanged.
func (h *Host) within(r *record.VM, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(h.Folder(r.ID), path)
}
