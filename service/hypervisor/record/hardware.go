package record

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Hardware is what a VM's process is started with. A change waits for the next start.
type Hardware struct {
	VCPUs     int     `json:"vcpus"`
	MemoryMiB int     `json:"memory_mib"`
	Network   Network `json:"network"`
	MAC       string  `json:"mac"` // empty: no network

	Disks []string `json:"disks,omitempty"` // the ids of the disks beside the system disk
	CD    *CD      `json:"cd,omitempty"`    // the medium of the CD drive; nil: none
}

// Hardware returns what is wanted of a VM. Of AsRunning, that is what its process has.
func (r *VM) Hardware() Hardware {
	h := Hardware{VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB, Network: r.Spec.V.Network, MAC: r.MAC, CD: r.CD.V}
	for _, d := range r.Disks.V {
		if d.State == DiskReady || d.State == DiskUnplugging {
			h.Disks = append(h.Disks, d.ID)
		}
	}
	return h
}

func (r *VM) setHardware(h Hardware) {
	r.VCPUs, r.MemoryMiB, r.MAC = h.VCPUs, h.MemoryMiB, h.MAC
	r.Spec.V.VCPUs, r.Spec.V.MemoryMiB, r.Spec.V.Network = h.VCPUs, h.MemoryMiB, h.Network
}

// AsRunning returns a VM with what its process has in place of what is wanted. Without a process, both
// are the same. What is done to the process, or to its resources on the host, goes by this.
func (r VM) AsRunning() VM {
	has := r.Hardware()
	if r.Running.V != nil {
		has = *r.Running.V
	}
	r.setHardware(has)
	r.CD.V = has.CD
	r.Disks.V = slices.DeleteFunc(slices.Clone(r.Disks.V), func(d Disk) bool { return !slices.Contains(has.Disks, d.ID) })
	if r.StartedWith.V != nil {
		r.Spec.V.Boot = r.StartedWith.V.Boot
	}
	return r
}

// Equal reports whether a process that is started with either is the same.
func (h Hardware) Equal(other Hardware) bool { return len(differences(h, other)) == 0 }

// Pending returns the fields, as in requests, whose change waits for the next start.
func (r *VM) Pending() []string {
	if r.Running.V == nil {
		return []string{}
	}
	return differences(*r.Running.V, r.Hardware())
}

// SameDisks reports whether two machines have the same disks beside the system disk.
func (h *Hardware) SameDisks(other *Hardware) bool {
	return slices.Equal(slices.Sorted(slices.Values(h.Disks)), slices.Sorted(slices.Values(other.Disks)))
}

func differences(a, b Hardware) []string {
	fields := []string{}
	if a.VCPUs != b.VCPUs {
		fields = append(fields, "vcpus")
	}
	if a.MemoryMiB != b.MemoryMiB {
		fields = append(fields, "memory_mib")
	}
	if !a.Network.Equal(b.Network) || a.MAC != b.MAC {
		fields = append(fields, "network")
	}
	if !a.SameDisks(&b) {
		fields = append(fields, "disks")
	}
	if !a.CD.Equal(b.CD) {
		fields = append(fields, "cd")
	}
	return fields
}

// settleHardware completes the fields that follow from others, before a row is written.
func (r *VM) settleHardware() {
	if r.Running.V != nil && len(r.Pending()) == 0 {
		r.Running.V = nil
	}
	r.CountedVCPUs, r.CountedMemoryMiB = r.VCPUs, r.MemoryMiB
	if h := r.Running.V; h != nil {
		r.CountedVCPUs, r.CountedMemoryMiB = max(r.VCPUs, h.VCPUs), max(r.MemoryMiB, h.MemoryMiB)
	}
}

// Reconfiguration is a change to a VM. Nil fields stay as they are.
type Reconfiguration struct {
	Name      *string
	Labels    map[string]string
	Autostart *bool
	VCPUs     *int
	MemoryMiB *int
	Network   *Network
	MAC       string // with Network: of the device; empty: none
	// NetworkLimits is for VMs with a device on the host.
	NetworkLimits *NetworkLimits
}

func (c *Reconfiguration) apply(r *VM) (changed []string) {
	set := func(field string, from, to any) {
		if from != to {
			changed = append(changed, fmt.Sprintf("%s %v is now %v", field, from, to))
		}
	}
	if c.Name != nil {
		set("name", r.Name, *c.Name)
		r.Name = *c.Name
	}
	if c.Labels != nil {
		set("labels", fmt.Sprint(r.Labels.V), fmt.Sprint(c.Labels)) // maps are printed in order
		r.Labels.V = c.Labels
	}
	if c.Autostart != nil {
		set("autostart", r.Autostart, *c.Autostart)
		r.Autostart = *c.Autostart
	}
	want := r.Hardware()
	if c.VCPUs != nil {
		set("vcpus", want.VCPUs, *c.VCPUs)
		want.VCPUs = *c.VCPUs
	}
	if c.MemoryMiB != nil {
		set("memory_mib", want.MemoryMiB, *c.MemoryMiB)
		want.MemoryMiB = *c.MemoryMiB
	}
	if c.Network != nil {
		set("network", fmt.Sprint(want.Network), fmt.Sprint(*c.Network))
		set("network.mac", want.MAC, c.MAC)
		want.Network, want.MAC = *c.Network, c.MAC
	}
	if had := r.Hardware(); r.State.HasProcess() && r.Running.V == nil && !had.Equal(want) {
		r.Running.V = &had
	}
	r.setHardware(want)
	limits := r.Spec.V.NetworkLimits
	if c.NetworkLimits != nil {
		limits = *c.NetworkLimits
	}
	if !r.HasTap() {
		limits = NetworkLimits{} // there is nothing to limit
	}
	set("network_limits", r.Spec.V.NetworkLimits, limits)
	r.Spec.V.NetworkLimits = limits
	return changed
}

// Reconfigure changes a VM, and checks what it gets against the policy, under one lock and in one
// transaction, as Admit does. What a process has already waits for the next start (VM.Pending). Repeated,
// it changes nothing.
func (s *Store) Reconfigure(ctx context.Context, id string, c Reconfiguration) (VM, error) {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		if r, err = vmIn(ctx, tx, id); err != nil {
			return err
		}
		if r.State == vm.Creating || r.State == vm.Deleting {
			return fault.New(fault.Conflict, "the VM is %s; it cannot be changed now", r.State).WithCode("wrong_state")
		}
		if err := r.IsHere(); err != nil {
			return err
		}
		hadVCPUs, hadMemory := r.CountedVCPUs, r.CountedMemoryMiB
		changed := c.apply(&r)
		r.settleHardware()
		usage, err := usageOf(ctx, tx, r.Tenant)
		if err != nil {
			return err
		}
		if err := s.policy.CheckGrowth(r.Tenant, usage,
			admission.Size{VCPUs: hadVCPUs, MemoryMiB: hadMemory},
			admission.Size{VCPUs: r.CountedVCPUs, MemoryMiB: r.CountedMemoryMiB},
		); err != nil {
			return err
		}
		if c.Network != nil {
			if err := checkForwards(ctx, tx, &r); err != nil {
				return err
			}
		}
		message := strings.Join(changed, "; ")
		if waiting := r.Pending(); message != "" && len(waiting) > 0 {
			message += "; the next start applies " + strings.Join(waiting, ", ")
		}
		if message != "" {
			if err := s.tell(ctx, tx, &r, EventConfig, message); err != nil {
				return err
			}
			if err := save(ctx, tx, &r); db.IsUnique(err) {
				return fault.New(fault.Conflict, "there is a VM named %s already", r.Name).WithCode("name_taken")
			} else if err != nil {
				return err
			}
		}
		e := audit.Entry{Action: "vm.update", Target: id, Tenant: r.Tenant, Message: strings.TrimSuffix(r.Name+": "+message, ": ")}
		return s.note(ctx, tx, e)
	})
	if err == nil {
		s.moved(id)
	}
	return r, err
}
