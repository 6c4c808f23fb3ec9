package disk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// MaxDisks is how many disks a VM may have beside its system disk.
const MaxDisks = backend.MaxPorts

// letGoLimit is how long a guest has to let go of a disk.
const letGoLimit = 20 * time.Second

// withDisks calls do with exclusive access to a VM whose disks can be added and removed, after settling what
// a killed daemon left. p is nil without a process.
func (w *Manager) withDisks(
	ctx context.Context, id, field string, do func(ctx context.Context, r record.VM, p backend.Plugger) error,
) error {
	check := func(_ context.Context, r *record.VM) error {
		switch r.State {
		case vm.Running, vm.Paused, vm.Stopped, vm.Failed:
		case vm.Creating, vm.Starting, vm.Stopping, vm.Deleting:
			return fault.New(fault.Conflict, "the VM is %s; try again when that is over", r.State).WithCode("wrong_state")
		}
		if r.Backend != backend.QEMU {
			return fault.InvalidField(field, "is for VMs of the backend qemu, and this one has %s", r.Backend)
		}
		return nil
	}
	return w.machines.With(ctx, id, check, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		ctx, done := m.Breakable(ctx)
		defer done()
		r, err := w.settleDisks(ctx, m, r)
		if err != nil {
			return err
		}
		p, err := plugger(m, &r)
		if err != nil {
			return err
		}
		return do(ctx, r, p)
	})
}

// plugger returns the process of a VM, or nil if it has none.
func plugger(m *machine.Machine, r *record.VM) (backend.Plugger, error) {
	if !r.State.HasProcess() {
		return nil, nil
	}
	instance, _ := m.Process()
	p, ok := instance.(backend.Plugger)
	if !ok {
		return nil, fault.New(fault.Conflict, "the VM is ending")
	}
	return p, nil
}

// settleDisks finishes or undoes what a killed daemon was doing to the disks beside the system disk. The
// caller holds the VM's work lock.
func (w *Manager) settleDisks(ctx context.Context, m *machine.Machine, r record.VM) (record.VM, error) {
	unsettled := r.Unsettled()
	if len(unsettled) == 0 {
		return r, nil
	}
	ctx = caller.ByItself(context.WithoutCancel(ctx))
	p, err := plugger(m, &r)
	for _, d := range unsettled {
		if err != nil {
			return r, err
		}
		r, err = w.settleDisk(ctx, r, p, d)
	}
	return r, err
}

func (w *Manager) settleDisk(
	ctx context.Context, r record.VM, p backend.Plugger, d record.Disk,
) (_ record.VM, err error) {
	has := false
	if p != nil {
		if has, err = p.HasDisk(ctx, w.host.DataDisk(&r, &d).ID); err != nil {
			return r, err
		}
	}
	switch {
	case d.State == record.DiskMaking && has:
		return w.store.SettleNewDisk(ctx, r.ID, d.ID, true)
	case d.State == record.DiskMaking:
		return w.undoDisk(ctx, r, p, &d)
	case d.State == record.DiskUnplugging && p == nil:
		return w.store.KeepDisk(ctx, r.ID, d.ID)
	case d.State == record.DiskUnplugging:
		out, err := w.unplug(ctx, r, p, d) // the guest may be about to let go
		if fault.Is(err, fault.Conflict) {
			err = nil // it stays
		}
		return out, err
	case has:
		return r, nil // it goes with the process
	}
	return w.finishRemoval(ctx, r, p, &d, "")
}

// undoDisk removes what there is of a disk that was not made.
func (w *Manager) undoDisk(ctx context.Context, r record.VM, p backend.Plugger, d *record.Disk) (record.VM, error) {
	if p != nil {
		// Its device is not there, but its file may be open.
		if err := p.Unplug(ctx, w.host.DataDisk(&r, d).ID); err != nil {
			return r, err
		}
	}
	if err := w.host.RemoveDisk(ctx, &r, d); err != nil {
		return r, err
	}
	return w.store.DropDisk(ctx, r.ID, d.ID)
}

// finishRemoval removes a disk that no process uses.
func (w *Manager) finishRemoval(
	ctx context.Context, r record.VM, p backend.Plugger, d *record.Disk, action string,
) (record.VM, error) {
	if p != nil {
		if err := p.Unplug(ctx, w.host.DataDisk(&r, d).ID); err != nil { // its file may be open
			return r, err
		}
	}
	if err := w.host.RemoveDisk(ctx, &r, d); err != nil {
		return r, err
	}
	return w.store.SettleNoDisk(ctx, r.ID, d.ID, action)
}

// NewDisk is a request for a disk beside the system disk.
type NewDisk struct {
	Name     string
	SizeGiB  int    // 0: as large as the image
	Image    string // in the catalog, that it is a copy of; empty: it is empty
	ReadOnly bool
	Serial   string // empty: the name
	Limits   record.DiskLimits
}

// AddDisk makes a disk and attaches it, at once or at the next start.
func (w *Manager) AddDisk(ctx context.Context, id string, n NewDisk) (record.VM, record.Disk, error) {
	var out record.VM
	d := record.Disk{
		ID: newDiskID(), Name: n.Name, SizeGiB: n.SizeGiB, Image: n.Image, ReadOnly: n.ReadOnly, Serial: n.Serial,
		Limits: n.Limits,
	}
	if d.Serial == "" {
		d.Serial = d.Name
	}
	err := w.withDisks(ctx, id, "name", func(ctx context.Context, r record.VM, p backend.Plugger) error {
		defer w.catalog.Hold()()
		base, err := w.baseOf(ctx, &d)
		if err != nil {
			return err
		}
		if err := w.diskFits(&r, &d); err != nil {
			return err
		}
		if r, err = w.store.IntendDisk(ctx, id, d); err != nil {
			return err
		}
		plugged := false
		err = w.host.MakeDisk(ctx, &r, &d, base)
		if err == nil && p != nil {
			if err = p.Plug(context.WithoutCancel(ctx), w.host.DataDisk(&r, &d)); errors.Is(err, backend.ErrNoPort) {
				err = nil
			} else {
				plugged = err == nil
			}
		}
		after := context.WithoutCancel(ctx)
		if err == nil {
			out, err = w.store.SettleNewDisk(after, id, d.ID, plugged)
		}
		if err != nil {
			if _, undoErr := w.settleDisk(after, r, p, *diskOf(&r, d.ID)); undoErr != nil {
				w.log.Warn("what there is of a disk that was not made is not removed yet", "vm", id, "error", undoErr)
			}
		}
		return cause(ctx, err)
	})
	if err != nil {
		return out, d, err
	}
	return out, *diskOf(&out, d.ID), nil
}

// cause returns why work was broken off, in place of its error.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); err != nil && errors.Is(why, life.ErrDeleted) {
		return why
	}
	return err
}

func diskOf(r *record.VM, id string) *record.Disk {
	return &r.Disks.V[slices.IndexFunc(r.Disks.V, func(d record.Disk) bool { return d.ID == id })]
}

// newDiskID returns the id of a disk. QEMU's names have at most 31 characters.
func newDiskID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// baseOf returns the content that a disk becomes a copy of, or nil, and completes the size.
func (w *Manager) baseOf(ctx context.Context, d *record.Disk) (*storage.Base, error) {
	if d.Image == "" {
		if d.SizeGiB == 0 {
			return nil, fault.InvalidField("size_gib", "is required without an image")
		}
		return nil, nil
	}
	content, err := w.catalogDisk(ctx, d.Image)
	if err != nil {
		return nil, err
	}
	least := gib(content.VirtualSize)
	if d.SizeGiB == 0 {
		d.SizeGiB = least
	}
	if d.SizeGiB < least {
		return nil, fault.InvalidField("size_gib", "is smaller than the image, which has %d GiB", least)
	}
	return &storage.Base{Path: content.DiskPath(), Format: "qcow2", Size: content.VirtualSize}, nil
}

// gib returns a size in GiB, rounded up.
func gib(bytes int64) int { return int((bytes + record.GiB - 1) / record.GiB) }

// catalogDisk returns the content of a disk image of the catalog.
func (w *Manager) catalogDisk(ctx context.Context, name string) (catalog.Content, error) {
	if strings.Contains(name, "/") {
		return catalog.Content{}, fault.InvalidField("image", "must be the name of an image of the catalog")
	}
	content, _, err := w.catalog.Find(ctx, w.policy.Files(false), name)
	if err == nil && content.Kind != catalog.Disk {
		err = fault.InvalidField("image", "%s is not a disk, but a %s", name, content.Kind)
	}
	return content, err
}

// diskFits checks a new disk against those that the VM has and the policy, and gives it a port.
func (w *Manager) diskFits(r *record.VM, d *record.Disk) error {
	if d.Name == record.SystemDisk {
		return fault.InvalidField("name", "%s is the VM's system disk", d.Name)
	}
	ports := map[int]bool{}
	for _, other := range r.Disks.V {
		ports[other.Port] = true
		switch {
		case other.Name == d.Name:
			return fault.New(fault.Conflict, "the VM has a disk %s already", d.Name).WithCode("name_taken")
		case other.Serial == d.Serial:
			return fault.New(fault.Conflict, "the disk %s of the VM has the serial number %s already", other.Name, d.Serial).
				WithCode("serial_taken")
		}
	}
	for d.Port = 1; ports[d.Port]; {
		d.Port++
	}
	if d.Port > MaxDisks {
		return fault.New(fault.Conflict, "a VM may have %d disks beside its system disk; remove one", MaxDisks).
			WithCode("too_many_disks")
	}
	return w.roomFor(r, "size_gib", d.SizeGiB)
}

// roomFor checks that a VM may have so many GiB of disk more.
func (w *Manager) roomFor(r *record.VM, field string, more int) error {
	limit := w.policy.MaxDiskGiB
	if limit == 0 {
		return nil
	}
	has, err := w.SystemGiB(r)
	if err != nil {
		return err
	}
	if has += r.DataGiB(); more > limit-has {
		return admission.RefuseField("policy.max_disk_gib", field,
			"the disks of a VM may have %d together, and this one has %d; the limit is policy.max_disk_gib", limit, has)
	}
	return nil
}

// SystemGiB returns the size of a VM's system disk, or 0 if it has none.
func (w *Manager) SystemGiB(r *record.VM) (int, error) {
	if d := w.host.Disk(r); r.HasDisk() && r.Spec.V.DiskGiB == 0 && d.Format == "qcow2" {
		bytes, err := image.VirtualSize(d.Target)
		return gib(bytes), err
	}
	return r.Spec.V.DiskGiB, nil
}

// removeAction is the action of the audit entry of a disk that was removed.
const removeAction = "vm.disk.remove"

// RemoveDisk detaches a disk and removes it with what it holds, at once or when the VM stops.
func (w *Manager) RemoveDisk(ctx context.Context, id, name string) (record.VM, error) {
	var out record.VM
	err := w.withDisks(ctx, id, "disk", func(ctx context.Context, r record.VM, p backend.Plugger) error {
		if name == record.SystemDisk {
			return fault.New(fault.Conflict, "the system disk goes with the VM").WithCode("system_disk")
		}
		d, err := r.Disk(name)
		if err != nil || d.State == record.DiskRemoving {
			out = r
			return err
		}
		if err := w.inNoSnapshot(ctx, id, &d); err != nil {
			return err
		}
		out, err = w.removeDisk(ctx, r, p, d)
		return err
	})
	return out, err
}

// inNoSnapshot checks that no snapshot holds a disk.
func (w *Manager) inNoSnapshot(ctx context.Context, id string, d *record.Disk) error {
	snapshots, err := w.store.Snapshots(ctx, id)
	if err != nil {
		return err
	}
	for _, s := range snapshots {
		if slices.Contains(s.Disks.V, d.ID) {
			return fault.New(fault.Conflict, "the snapshot %s holds the disk %s; remove the snapshot first", s.Name, d.Name).
				WithCode("has_snapshots")
		}
	}
	return nil
}

func (w *Manager) removeDisk(ctx context.Context, r record.VM, p backend.Plugger, d record.Disk) (record.VM, error) {
	running := r.AsRunning()
	if p == nil || !slices.ContainsFunc(running.Disks.V, func(has record.Disk) bool { return has.ID == d.ID }) {
		after := context.WithoutCancel(ctx)
		r, err := w.store.IntendNoDisk(after, r.ID, d.ID, record.DiskRemoving)
		if err != nil {
			return r, err
		}
		return w.finishRemoval(after, r, p, &d, removeAction)
	}
	if r.State == vm.Paused {
		return r, fault.New(fault.Conflict, "the VM is paused, and its guest cannot let go of the disk; resume or stop it").
			WithCode("wrong_state")
	}
	r, err := w.store.IntendNoDisk(ctx, r.ID, d.ID, record.DiskUnplugging)
	if err != nil {
		return r, err
	}
	return w.unplug(ctx, r, p, d)
}

// unplug removes a disk whose guest is to let go of it. If the guest does not, the disk stays.
func (w *Manager) unplug(ctx context.Context, r record.VM, p backend.Plugger, d record.Disk) (record.VM, error) {
	waiting, cancel := context.WithTimeout(ctx, letGoLimit)
	err := p.Unplug(waiting, w.host.DataDisk(&r, &d).ID)
	cancel()
	after := context.WithoutCancel(ctx)
	switch {
	case err == nil:
		return w.finishRemoval(after, r, p, &d, removeAction)
	case errors.Is(err, backend.ErrNoPort):
		return w.store.DoomDisk(after, r.ID, d.ID)
	case errors.Is(err, backend.ErrHeld):
		err = fault.New(fault.Conflict, "the guest does not let go of the disk %s: unmount it in the guest and try again, "+
			"or stop the VM", d.Name).WithCode("disk_in_use")
	}
	kept, keepErr := w.store.KeepDisk(after, r.ID, d.ID)
	return kept, errors.Join(cause(ctx, err), keepErr)
}

// ChangeDisk changes the size and the limits of a disk, which may be the system disk, at once.
func (w *Manager) ChangeDisk(ctx context.Context, id, name string, c record.DiskChange) (record.VM, error) {
	if name == record.SystemDisk && c.SizeGiB != nil {
		if _, err := w.resizeTo(ctx, id, *c.SizeGiB, "size_gib"); err != nil {
			return record.VM{}, err
		}
		c.SizeGiB = nil
	}
	var out record.VM
	err := w.withDisks(ctx, id, "disk", func(ctx context.Context, r record.VM, p backend.Plugger) (err error) {
		d, node := record.Disk{Limits: r.Spec.V.DiskLimits}, record.SystemDisk
		switch {
		case name != record.SystemDisk:
			if d, err = r.Disk(name); err != nil {
				return err
			}
			node = w.host.DataDisk(&r, &d).ID
		case !r.HasDisk():
			return fault.New(fault.Conflict, "the VM has no disk of its own; give it disk_gib when it is made").
				WithCode("no_disk")
		}
		has := false
		if p != nil {
			if has, err = p.HasDisk(ctx, node); err != nil {
				return err
			}
		}
		ctx = context.WithoutCancel(ctx)
		if c.SizeGiB != nil {
			if err := w.growDisk(ctx, &r, &d, *c.SizeGiB, p, has); err != nil {
				return err
			}
		}
		if out, err = w.store.ChangeDisk(ctx, id, name, c); err != nil || !has {
			return err
		}
		return p.SetLimits(ctx, node, backend.DiskLimits(c.Apply(d.Limits)))
	})
	return out, err
}

// growDisk grows a disk beside the system disk. has reports whether the VM's process has it.
func (w *Manager) growDisk(
	ctx context.Context, r *record.VM, d *record.Disk, sizeGiB int, p backend.Plugger, has bool,
) error {
	if sizeGiB <= d.SizeGiB {
		return fault.InvalidField("size_gib", "must be more than the %d that the disk has; disks only grow", d.SizeGiB)
	}
	if d.ReadOnly {
		return fault.InvalidField("size_gib", "is fixed for a disk that is read-only")
	}
	if err := w.roomFor(r, "size_gib", sizeGiB-d.SizeGiB); err != nil {
		return err
	}
	size := int64(sizeGiB) * record.GiB
	if has {
		return p.ResizeDisk(ctx, w.host.DataDisk(r, d).ID, size)
	}
	return storage.DirPool{}.Resize(ctx, w.host.DataVolume(r, d), size)
}

// InsertCD puts an image of the catalog into the CD drive, in place of what is there, at once or at the next
// start.
func (w *Manager) InsertCD(ctx context.Context, id, name string) (record.VM, error) {
	defer w.catalog.Hold()()
	content, err := w.catalogDisk(ctx, name)
	if err != nil {
		return record.VM{}, err
	}
	return w.setCD(ctx, id, &record.CD{Image: name, SHA256: content.SHA256, Path: content.DiskPath()})
}

// EjectCD takes the medium out of the CD drive.
func (w *Manager) EjectCD(ctx context.Context, id string) (record.VM, error) {
	return w.setCD(ctx, id, nil)
}

func (w *Manager) setCD(ctx context.Context, id string, cd *record.CD) (record.VM, error) {
	var out record.VM
	err := w.withDisks(ctx, id, "cd", func(ctx context.Context, r record.VM, p backend.Plugger) (err error) {
		ctx = context.WithoutCancel(ctx)
		done := false
		if p != nil {
			switch err := p.SetMedium(ctx, mediumOf(cd)); {
			case err == nil:
				done = true
			case errors.Is(err, backend.ErrHeld):
				return fault.New(fault.Conflict, "the guest has locked the CD drive: unmount the CD in the guest and try again, "+
					"or stop the VM").WithCode("cd_in_use")
			case !errors.Is(err, backend.ErrNoPort):
				return err
			}
		}
		out, err = w.store.SetCD(ctx, id, cd, done)
		return err
	})
	return out, err
}

func mediumOf(cd *record.CD) *backend.Disk {
	if cd == nil {
		return nil
	}
	medium := host.Medium(cd)
	return &medium
}

// noDataDisks refuses work that would leave out the disks beside the system disk.
func noDataDisks(r *record.VM, what string) error {
	if len(r.Disks.V) == 0 {
		return nil
	}
	names := make([]string, len(r.Disks.V))
	for i, d := range r.Disks.V {
		names[i] = d.Name
	}
	return fault.New(fault.Conflict, "%s would leave out the disks %s, which the VM has beside its system disk; "+
		"remove them first", what, strings.Join(names, ", ")).WithCode("has_disks")
}
