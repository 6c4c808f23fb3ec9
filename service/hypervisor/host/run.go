package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/cgroup"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Equip creates a VM's runtime resources on the host and returns the Spec to start it with, which the
// caller must release. Strip removes them.
func (h *Host) Equip(ctx context.Context, r *record.VM) (*backend.Spec, error) {
	if err := h.connect(ctx, r); err != nil {
		return nil, err
	}
	spec := h.Spec(r)
	if r.StartedWith.V == nil {
		return spec, nil
	}
	for _, share := range r.StartedWith.V.Shares {
		folder, err := h.policy.Share(share.Source)
		if err != nil {
			spec.Release()
			h.Strip(ctx, r)
			return nil, fmt.Errorf("the shared folder %s: %w", share.Tag, err)
		}
		spec.Shares = append(spec.Shares, backend.Share{Tag: share.Tag, ReadOnly: share.ReadOnly, Folder: folder})
	}
	return spec, nil
}

// connect creates a VM's network device on the host, if it takes one.
func (h *Host) connect(ctx context.Context, r *record.VM) error {
	r.Tap, r.IPs.V = "", []string{}
	running := r.AsRunning()
	if wanted := running.Spec.V.Network; running.HasTap() {
		if h.network == nil {
			return fault.New(fault.Unavailable,
				"networks of mode %s take root on the host; network.mode user and none work without", wanted.Mode)
		}
		mac, err := net.ParseMAC(running.MAC)
		if err != nil {
			return err
		}
		uid, _ := h.Owner(r)
		owner := uint32(uid) //nolint:gosec // checked with the document
		port := network.Port{VM: r.ID, Tenant: r.Tenant, MAC: mac, OwnerUID: owner, Hostname: r.Name}
		port.Limits = network.Limits(r.Spec.V.NetworkLimits)
		if b := wanted.Bridge; b != h.doc.Network.Bridge {
			port.Bridge = b
		}
		if ip := wanted.IP; ip != "" {
			if port.IP, err = netip.ParseAddr(ip); err != nil {
				return err
			}
		}
		attached, err := h.network.Attach(ctx, port)
		if err == nil && port.IP.IsValid() && attached.IP != port.IP {
			// It still has the address from before it was given this one.
			if err = h.network.Release(ctx, r.ID); err == nil {
				attached, err = h.network.Attach(ctx, port)
			}
		}
		if err != nil {
			return err
		}
		r.Tap = attached.Tap
		if attached.IP.IsValid() {
			r.IPs.V = []string{attached.IP.String()}
		}
		if port.IP.IsValid() && attached.IP != port.IP {
			h.Strip(ctx, r)
			return fault.New(fault.Conflict,
				"the address %s is another VM's, or not one of the bridge's network", port.IP)
		}
	}
	return nil
}

// Confine limits the resources of a VM's processes. If that fails, it adds an event to the VM, or
// with jailer.enforce returns an error, so that the VM does not run.
func (h *Host) Confine(ctx context.Context, r *record.VM, instance backend.Instance) error {
	if h.groups == nil {
		return nil
	}
	err := h.groups.Create(r.ID, limitsOf(r))
	for _, pid := range append([]int{instance.PID()}, process.Descendants(instance.PID())...) {
		if err == nil {
			err = h.groups.Add(r.ID, pid)
		}
	}
	if err == nil {
		return nil
	}
	if h.doc.Jailer.Enforce {
		return fault.Wrap(fault.Unavailable, err, "the VM cannot be confined (jailer.enforce): %v", err)
	}
	_, tellErr := h.store.Change(caller.ByItself(ctx), r.ID, record.EventConfinement, "",
		"not confined by control groups: "+err.Error(), nil)
	return tellErr
}

// limitsOf returns the limits of a VM's processes: the guest's share plus the overhead of running
// it (translated code, buffers, devices).
func limitsOf(of *record.VM) cgroup.Limits {
	r := of.AsRunning()
	const beside = 5 << 28 // 1.25 GiB, most of it for TCG's translated code
	memory := int64(r.MemoryMiB) << 20
	return cgroup.Limits{Memory: memory + memory/8 + beside, CPUs: r.VCPUs + 1, Processes: 4096}
}

// Strip removes the runtime resources of a VM without a process and keeps its folder. Errors are
// logged.
func (h *Host) Strip(ctx context.Context, r *record.VM) {
	remains, group, device := h.takeAway(ctx, r)
	if remains != nil {
		h.log.Error("a VM's remains on the host", "vm", r.ID, "error", remains)
	}
	if group != nil {
		h.log.Error("a VM's control group is not removed", "vm", r.ID, "error", group)
	}
	if device != nil {
		h.log.Error("a VM's network device is not removed", "vm", r.ID, "error", device)
	}
}

func (h *Host) takeAway(ctx context.Context, r *record.VM) (remains, group, device error) {
	if b, err := h.Backend(r); err == nil {
		remains = b.Clean(ctx, h.Spec(r))
	}
	if h.groups != nil {
		group = h.groups.Remove(r.ID)
	}
	// The row names the device only once the VM runs. A daemon that is killed before that leaves a
	// device that the row does not name.
	if running := r.AsRunning(); h.network != nil && (r.HasTap() || running.HasTap()) {
		device = h.network.Detach(ctx, r.ID)
	}
	return remains, group, device
}

// CleanLimit is the timeout for removing a VM's resources.
const CleanLimit = time.Minute

// Clean removes everything that a VM without a process has on the host, including its address, disk
// and folder. It is idempotent.
func (h *Host) Clean(ctx context.Context, r *record.VM) error {
	if err := h.release(ctx, r); err != nil {
		return err
	}
	if r.HasDisk() {
		if err := h.pool(r).Remove(ctx, h.Volume(r)); err != nil {
			return err
		}
	}
	return os.RemoveAll(h.Folder(r.ID))
}

// release does what Strip does, but also releases the VM's address, and returns errors.
func (h *Host) release(ctx context.Context, r *record.VM) error {
	ctx, cancel := context.WithTimeout(ctx, CleanLimit)
	defer cancel()
	err := errors.Join(h.takeAway(ctx, r))
	if h.network != nil { // an earlier network may have given it an address
		err = errors.Join(err, h.network.Release(ctx, r.ID), h.network.SetPolicy(ctx, r.ID, nil))
	}
	return err
}

// Sweep removes the folders, network devices and control groups of unknown VMs, and working copies
// of disks that a killed daemon left.
func (h *Host) Sweep(ctx context.Context, known func(id string) bool) error {
	if h.network != nil {
		swept, err := h.network.Sweep(ctx, known)
		if err != nil {
			h.log.Error("network devices of VMs that are gone are not removed", "error", err)
		} else if swept.Taps > 0 {
			h.log.Info("removed network devices of VMs that are gone", "devices", swept.Taps)
		}
	}
	if h.groups != nil {
		if _, err := h.groups.Sweep(known); err != nil {
			h.log.Error("control groups of VMs that are gone are not removed", "error", err)
		}
	}
	return h.sweepFolders(known)
}

// NetworkCounters returns the bytes that a VM's network device has received and sent.
func NetworkCounters(r *record.VM) (received, sent int64) { return tapCounters(r.Tap) }

// Memory returns the host's memory in MiB.
func Memory() int { return memoryOfHost() }
