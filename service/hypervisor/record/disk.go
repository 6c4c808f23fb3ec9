package record

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Disk is a disk of a VM beside its system disk.
type Disk struct {
	ID        string     `json:"id"` // never used again
	Name      string     `json:"name"`
	Port      int        `json:"port"` // that it is plugged into, from 1
	SizeGiB   int        `json:"size_gib"`
	Image     string     `json:"image,omitempty"` // that it is a copy of
	ReadOnly  bool       `json:"read_only,omitempty"`
	Serial    string     `json:"serial"`
	Limits    DiskLimits `json:"limits,omitzero"`
	State     string     `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
}

// DiskLimits limit what a guest does with a disk, reads and writes together. Zero values mean no limit.
type DiskLimits struct {
	IOPS           int64 `json:"iops,omitempty"`
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
}

// States of disks. A disk is stored from before it is made until after it is removed, so that a restarted
// daemon knows what a killed one left.
const (
	DiskMaking     = "making"
	DiskReady      = "ready"
	DiskUnplugging = "unplugging" // its guest is asked to let go of it; it stays if the guest does not
	DiskRemoving   = "removing"   // it goes as soon as no process has it
)

// CD is the medium of a CD drive.
type CD struct {
	Image  string `json:"image"`
	SHA256 string `json:"sha256"` // of the content
	Path   string `json:"path"`   // of the content
}

// Equal reports whether two media hold the same. Each may be nil.
func (c *CD) Equal(other *CD) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.SHA256 == other.SHA256
}

// SystemDisk is the name of a VM's system disk.
const SystemDisk = "system"

// Disk returns the disk with a name, other than the system disk.
func (r *VM) Disk(name string) (Disk, error) {
	for _, d := range r.Disks.V {
		if d.Name == name && d.State != DiskMaking {
			return d, nil
		}
	}
	return Disk{}, ErrNoDisk(name)
}

// ErrNoDisk returns the error for a disk that a VM does not have.
func ErrNoDisk(name string) error { return fault.New(fault.NotFound, "the VM has no disk %s", name) }

// Unsettled returns the disks that a killed daemon was making or removing.
func (r *VM) Unsettled() (all []Disk) {
	for _, d := range r.Disks.V {
		if d.State == DiskMaking || d.State == DiskUnplugging || d.State == DiskRemoving {
			all = append(all, d)
		}
	}
	return all
}

// DataGiB is the size of all disks beside the system disk.
func (r *VM) DataGiB() (sum int) {
	for _, d := range r.Disks.V {
		sum += d.SizeGiB
	}
	return sum
}

// keepRunning notes what the VM's process has, before what is wanted changes.
func (r *VM) keepRunning() {
	if had := r.Hardware(); r.State.HasProcess() && r.Running.V == nil {
		r.Running.V = &had
	}
}

// IntendDisk stores that a disk is about to be made.
func (s *Store) IntendDisk(ctx context.Context, id string, d Disk) (VM, error) {
	return s.changeDisks(ctx, id, func(r *VM) {
		d.State, d.CreatedAt = DiskMaking, s.now()
		r.Disks.V = append(r.Disks.V, d)
	})
}

// changeDisks stores a step that nobody needs to know of.
func (s *Store) changeDisks(ctx context.Context, id string, change func(r *VM)) (VM, error) {
	var r VM
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if r, err = vmIn(ctx, tx, id); err != nil {
			return err
		}
		change(&r)
		return save(ctx, tx, &r)
	})
	return r, err
}

// SettleNewDisk stores that a disk was made. plugged reports whether the VM's process has it; without a
// process, it does not matter.
func (s *Store) SettleNewDisk(ctx context.Context, id, disk string, plugged bool) (VM, error) {
	var d *Disk
	return s.changeSaying(ctx, id, "vm.disk.add", func(r *VM) (string, error) {
		if d = r.diskByID(disk); d == nil {
			return "", fault.New(fault.Conflict, "the disk was removed meanwhile")
		}
		if !plugged {
			r.keepRunning()
		} else if r.Running.V != nil {
			r.Running.V.Disks = append(slices.Clone(r.Running.V.Disks), disk)
		}
		d.State = DiskReady
		return fmt.Sprintf("the disk %s of %d GiB is added", d.Name, d.SizeGiB) + r.waiting("disks"), nil
	})
}

// waiting ends the message about a change to a field that may wait for the next start.
func (r *VM) waiting(field string) string {
	if slices.Contains(r.Pending(), field) {
		return "; the next start applies it"
	}
	return ""
}

func (r *VM) diskByID(id string) *Disk {
	if i := slices.IndexFunc(r.Disks.V, func(d Disk) bool { return d.ID == id }); i >= 0 {
		return &r.Disks.V[i]
	}
	return nil
}

// IntendNoDisk stores that a disk is about to be removed, or that a guest is asked to let go of it.
func (s *Store) IntendNoDisk(ctx context.Context, id, disk, state string) (VM, error) {
	return s.setDiskState(ctx, id, disk, state)
}

// KeepDisk undoes IntendNoDisk.
func (s *Store) KeepDisk(ctx context.Context, id, disk string) (VM, error) {
	return s.setDiskState(ctx, id, disk, DiskReady)
}

func (s *Store) setDiskState(ctx context.Context, id, disk, state string) (VM, error) {
	return s.changeDisks(ctx, id, func(r *VM) {
		if d := r.diskByID(disk); d != nil {
			if state == DiskRemoving {
				r.keepRunning()
			}
			d.State = state
		}
	})
}

// DoomDisk stores that a disk is removed as soon as the VM's process, which keeps it, has ended.
func (s *Store) DoomDisk(ctx context.Context, id, disk string) (VM, error) {
	return s.changeSaying(ctx, id, "vm.disk.remove", func(r *VM) (string, error) {
		d := r.diskByID(disk)
		if d == nil {
			return "", fault.New(fault.Conflict, "the disk was removed meanwhile")
		}
		r.keepRunning()
		d.State = DiskRemoving
		return "the disk " + d.Name + " is removed when the VM stops", nil
	})
}

// SettleNoDisk stores that a disk was removed. Without an action, nobody asked for that now.
func (s *Store) SettleNoDisk(ctx context.Context, id, disk, action string) (VM, error) {
	return s.changeSaying(ctx, id, action, func(r *VM) (string, error) {
		name := disk
		if d := r.diskByID(disk); d != nil {
			name = d.Name
		}
		gone := func(id string) bool { return id == disk }
		if h := r.Running.V; h != nil {
			h.Disks = slices.DeleteFunc(slices.Clone(h.Disks), gone)
		}
		r.Disks.V = slices.DeleteFunc(r.Disks.V, func(d Disk) bool { return d.ID == disk })
		return "the disk " + name + " is removed", nil
	})
}

// DropDisk forgets a disk that was never acknowledged.
func (s *Store) DropDisk(ctx context.Context, id, disk string) (VM, error) {
	return s.changeDisks(ctx, id, func(r *VM) {
		r.Disks.V = slices.DeleteFunc(r.Disks.V, func(d Disk) bool { return d.ID == disk })
	})
}

// DiskChange is a change to a disk. Nil fields stay as they are.
type DiskChange struct {
	SizeGiB        *int
	IOPS           *int64
	BytesPerSecond *int64
}

// Apply returns limits with the change.
func (c *DiskChange) Apply(l DiskLimits) DiskLimits {
	if c.IOPS != nil {
		l.IOPS = *c.IOPS
	}
	if c.BytesPerSecond != nil {
		l.BytesPerSecond = *c.BytesPerSecond
	}
	return l
}

// ChangeDisk stores the size and the limits of a disk, which may be the system disk.
func (s *Store) ChangeDisk(ctx context.Context, id, name string, c DiskChange) (VM, error) {
	return s.changeSaying(ctx, id, "vm.disk.change", func(r *VM) (string, error) {
		size, limits := &r.Spec.V.DiskGiB, &r.Spec.V.DiskLimits
		if name != SystemDisk {
			d, err := r.Disk(name)
			if err != nil {
				return "", err
			}
			at := r.diskByID(d.ID)
			size, limits = &at.SizeGiB, &at.Limits
		}
		message := "the disk " + name
		if c.SizeGiB != nil {
			*size = *c.SizeGiB
			message += fmt.Sprintf(" has %d GiB now", *size)
		}
		if to := c.Apply(*limits); to != *limits {
			*limits = to
			message += " may do " + to.String()
		}
		return message, nil
	})
}

// String returns limits as in events.
func (l DiskLimits) String() string {
	text := "as many operations as it can"
	if l.IOPS > 0 {
		text = fmt.Sprintf("%d operations a second", l.IOPS)
	}
	if l.BytesPerSecond > 0 {
		return text + fmt.Sprintf(" and %d bytes a second", l.BytesPerSecond)
	}
	return text
}

// SetCD stores the medium of a VM's CD drive; nil: none. done reports whether the VM's process has it.
func (s *Store) SetCD(ctx context.Context, id string, cd *CD, done bool) (VM, error) {
	action, message := "vm.cd.eject", "the CD is ejected"
	if cd != nil {
		action, message = "vm.cd.insert", "the CD is "+cd.Image
	}
	return s.changeSaying(ctx, id, action, func(r *VM) (string, error) {
		if !done {
			r.keepRunning()
		} else if r.Running.V != nil {
			r.Running.V.CD = cd
		}
		r.CD.V = cd
		return message + r.waiting("cd"), nil
	})
}

// changeSaying is Change with a message that is known only once the row was read.
func (s *Store) changeSaying(
	ctx context.Context, id, action string, do func(r *VM) (message string, err error),
) (VM, error) {
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		if r, err = vmIn(ctx, tx, id); err != nil {
			return err
		}
		message, err := do(&r)
		if err != nil {
			return err
		}
		if err := s.tell(ctx, tx, &r, EventDisk, message); err != nil {
			return err
		}
		if action != "" {
			e := audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message}
			if err := s.note(ctx, tx, e); err != nil {
				return err
			}
		}
		return save(ctx, tx, &r)
	})
	return r, err
}
