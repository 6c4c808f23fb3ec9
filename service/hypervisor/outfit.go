package hypervisor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/cgroup"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// folder is a VM's own.
func (s *Service) folder(id string) string { return filepath.Join(s.data, "vms", filepath.Base(id)) }

// owner is whom a VM's process runs as; zeros: as the daemon.
func (s *Service) owner(r *record.VM) (uid, gid int) {
	if !s.doc.Jailer.Enabled {
		return 0, 0
	}
	return s.doc.Jailer.UID + r.Slot, s.doc.Jailer.GID
}

func (s *Service) pool(r *record.VM) storage.Pool {
	if r.Backend == backend.Firecracker && r.Spec.V.Storage == storage.Dir {
		return storage.RawPool{} // it reads nothing else
	}
	if p := s.pools[r.Spec.V.Storage]; p != nil {
		return p
	}
	return s.pools[storage.Dir]
}

func (s *Service) volume(r *record.VM) storage.Volume {
	uid, gid := s.owner(r)
	return storage.Volume{VM: r.ID, Folder: s.folder(r.ID), Size: int64(r.Spec.V.DiskGiB) * record.GiB, UID: uid, GID: gid}
}

func (s *Service) backendOf(r *record.VM) (backend.Backend, error) {
	b := s.backends[r.Backend]
	if b == nil {
		return nil, fault.New(fault.Unavailable, "this daemon has no backend %s", r.Backend)
	}
	return b, nil
}

// spec is a VM as its backend knows it, without what it only has while it runs.
func (s *Service) spec(r *record.VM) *backend.Spec {
	v := &r.Spec.V
	out := &backend.Spec{
		ID: r.ID, Name: r.Name, Folder: s.folder(r.ID), VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB,
		Kernel: s.within(r, v.Boot.Kernel), Initrd: s.within(r, v.Boot.Initrd), KernelArgs: v.Boot.KernelArgs, Firmware: s.within(r, v.Boot.Firmware), RootFS: v.Boot.RootFS, Agent: v.Agent,
	}
	if r.Backend == backend.CloudHypervisor && v.Firmware == "uefi" {
		out.Firmware = "" // it has firmware of its own
	}
	out.UID, out.GID = s.owner(r)
	if r.HasDisk() {
		out.Disks = append(out.Disks, s.pool(r).Disk(s.volume(r)))
	}
	if r.Backend != backend.Sandbox {
		out.Disks = append(out.Disks, backend.Disk{ID: "seed", Target: filepath.Join(s.folder(r.ID), seedFile), Format: "raw", ReadOnly: true, CD: true})
	}
	if v.Network.Mode != record.NetworkNone {
		out.NICs = []backend.NIC{{MAC: r.MAC, Tap: r.Tap}}
	}
	return out
}

// within is a file in the VM's folder, unless the path says otherwise.
func (s *Service) within(r *record.VM, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.folder(r.ID), path)
}

// outfit gives a VM what it has on the host while it runs, and says how it is started.
// Strip takes it away.
func (s *Service) outfit(ctx context.Context, r *record.VM) (*backend.Spec, error) {
	r.Tap, r.IPs.V = "", []string{}
	if mode := r.Spec.V.Network.Mode; mode == record.NetworkBridge || mode == record.NetworkTap {
		if s.network == nil {
			return nil, fault.New(fault.Unavailable, "networks of mode %s take root on the host; network.mode user and none work without", mode)
		}
		mac, err := net.ParseMAC(r.MAC)
		if err != nil {
			return nil, err
		}
		uid, _ := s.owner(r)
		port := network.Port{VM: r.ID, Tenant: r.Tenant, MAC: mac, OwnerUID: uint32(uid), Hostname: r.Name} //nolint:gosec // checked with the document
		if b := r.Spec.V.Network.Bridge; b != s.doc.Network.Bridge {
			port.Bridge = b
		}
		if ip := r.Spec.V.Network.IP; ip != "" {
			if port.IP, err = netip.ParseAddr(ip); err != nil {
				return nil, err
			}
		}
		attached, err := s.network.Attach(ctx, port)
		if err != nil {
			return nil, err
		}
		r.Tap = attached.Tap
		if attached.IP.IsValid() {
			r.IPs.V = []string{attached.IP.String()}
		}
		if port.IP.IsValid() && attached.IP != port.IP {
			s.strip(ctx, r)
			return nil, fault.New(fault.Conflict, "the address %s is another VM's, or not one of the bridge's network", port.IP)
		}
	}
	return s.spec(r), nil
}

// confine bounds what a VM's processes may take. What is missing for that is told in the
// VM's events, or with jailer.enforce the reason not to run it.
func (s *Service) confine(ctx context.Context, r *record.VM, instance backend.Instance) error {
	if s.groups == nil {
		return nil
	}
	err := s.groups.Create(r.ID, limitsOf(r))
	for _, pid := range append([]int{instance.PID()}, descendants(instance.PID())...) {
		if err == nil {
			err = s.groups.Add(r.ID, pid)
		}
	}
	if err == nil {
		return nil
	}
	if s.doc.Jailer.Enforce {
		return fault.Wrap(fault.Unavailable, err, "the VM cannot be confined (jailer.enforce): %v", err)
	}
	_, tellErr := s.store.Change(caller.ByItself(ctx), r.ID, record.EventConfinement, "", "not confined by control groups: "+err.Error(), nil)
	return tellErr
}

// limitsOf is what a VM's processes may take: what the guest may, and what running it
// takes beside: translated code, buffers, devices.
func limitsOf(r *record.VM) cgroup.Limits {
	const beside = 5 << 28 // 1.25 GiB, most of it for TCG's translated code
	memory := int64(r.MemoryMiB) << 20
	return cgroup.Limits{Memory: memory + memory/8 + beside, CPUs: r.VCPUs + 1, Processes: 4096}
}

// strip takes away what a VM without a process has on the host beside its folder.
func (s *Service) strip(ctx context.Context, r *record.VM) {
	if b, err := s.backendOf(r); err == nil {
		if err := b.Clean(ctx, s.spec(r)); err != nil {
			s.log.Error("a VM's remains on the host", "vm", r.ID, "error", err)
		}
	}
	if s.groups != nil {
		if err := s.groups.Remove(r.ID); err != nil {
			s.log.Error("a VM's control group is not removed", "vm", r.ID, "error", err)
		}
	}
	// The row names the device only once the VM runs: a daemon that is killed before leaves it unnamed.
	if mode := r.Spec.V.Network.Mode; s.network == nil || mode != record.NetworkBridge && mode != record.NetworkTap {
		return
	}
	if err := s.network.Detach(ctx, r.ID); err != nil {
		s.log.Error("a VM's network device is not removed", "vm", r.ID, "error", err)
	}
}

// cleanLimit is how long removing a VM's remains may take.
const cleanLimit = time.Minute

// clean is strip for good: the VM's address is given back, too.
func (s *Service) clean(ctx context.Context, r *record.VM) error {
	ctx, cancel := context.WithTimeout(ctx, cleanLimit)
	defer cancel()
	var errs []error
	if b, err := s.backendOf(r); err == nil {
		errs = append(errs, b.Clean(ctx, s.spec(r)))
	}
	if s.groups != nil {
		errs = append(errs, s.groups.Remove(r.ID))
	}
	if mode := r.Spec.V.Network.Mode; s.network != nil && (mode == record.NetworkBridge || mode == record.NetworkTap) {
		errs = append(errs, s.network.Detach(ctx, r.ID), s.network.Release(ctx, r.ID))
	}
	return errors.Join(errs...)
}
