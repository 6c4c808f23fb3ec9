package record

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// SystemDisk is the name of a VM's first disk.
const SystemDisk = "system"

// Disk is a disk of a VM beside its system disk.
type Disk struct {
	Name           string `json:"name"`
	Size           int    `json:"size"`            // GiB
	Image          string `json:"image,omitempty"` // that it is a copy of, as the daemon names it
	ReadOnly       bool   `json:"read_only,omitempty"`
	Serial         string `json:"serial"`
	IOPS           int64  `json:"iops,omitempty"`             // 0: no limit
	BytesPerSecond int64  `json:"bytes_per_second,omitempty"` // 0: no limit
	State          string `json:"state"`                      // attached, pending or removing
}

// Reservation is room for a disk that the daemon was asked for. It counts for the quota until the VM has
// the disk, until the daemon has refused, or until Until if neither becomes known. Whoever waits for the
// daemon renews it.
type Reservation struct {
	ID    string    `json:"id"`
	Disk  string    `json:"disk"`
	Size  int       `json:"size"` // that the disk will have, in GiB
	More  int       `json:"more"` // than it has, in GiB
	Until time.Time `json:"until"`
}

// ReservationLease is how long a reservation lasts that nobody renews. What the daemon has begun when the
// connection to it, or this service, was lost has ended by then, and a comparison has seen it.
const ReservationLease = 3 * time.Minute

// dataSize returns the GiB of the VM's disks beside its system disk, without reservations.
func (r *VM) dataSize() (size int) { return sizeOf(r.Disks.V) }

func sizeOf(disks []Disk) (size int) {
	for _, d := range disks {
		size += d.Size
	}
	return size
}

// reserved returns the GiB that are reserved.
func (r *VM) reserved() (size int) {
	for _, v := range r.Reservations.V {
		size += v.More
	}
	return size
}

// dropReservations removes reservations whose time is over, those of disks that the VM has, and that with an
// id. It reports whether there were any.
func (r *VM) dropReservations(now time.Time, id string) (dropped bool) {
	kept := slices.DeleteFunc(slices.Clone(r.Reservations.V), func(v Reservation) bool {
		has, err := r.sizeOfDisk(v.Disk)
		return v.ID == id || v.Until.Before(now) || err == nil && has >= v.Size
	})
	dropped = len(kept) < len(r.Reservations.V)
	r.Reservations.V = kept
	return dropped
}

// sizeOfDisk returns the size of a disk of the VM in GiB.
func (r *VM) sizeOfDisk(name string) (int, error) {
	if name == SystemDisk {
		return r.Disk, nil
	}
	i := slices.IndexFunc(r.Disks.V, func(d Disk) bool { return d.Name == name })
	if i < 0 {
		return 0, fault.New(fault.NotFound, "the VM has no disk %s", name)
	}
	return r.Disks.V[i].Size, nil
}

// ReserveDisk checks the quota of a VM's tenant for a new disk, and reserves its size. SettleDisk ends that.
func (s *Store) ReserveDisk(ctx context.Context, id, name string, size int) (VM, string, error) {
	return s.reserve(ctx, id, audit.Entry{Action: "vm.disk.add", Message: name}, func(r *VM) (int, error) {
		if _, err := r.sizeOfDisk(name); err == nil {
			return 0, fault.New(fault.Conflict, "the VM has a disk %s already", name)
		}
		return size, nil
	}, name, size)
}

// ReserveGrowth checks the quota of a VM's tenant for a larger disk, and reserves the difference. SettleDisk
// ends that. A size of 0 is that which the disk has.
func (s *Store) ReserveGrowth(ctx context.Context, id, name string, size int) (VM, string, error) {
	return s.reserve(ctx, id, audit.Entry{Action: "vm.disk.change", Message: name}, func(r *VM) (int, error) {
		has, err := r.sizeOfDisk(name)
		switch {
		case err != nil:
			return 0, err
		case size == 0:
			return 0, nil
		case size < has:
			return 0, fault.InvalidField("size", "the disk has %d GiB already, and can only grow", has)
		}
		return size - has, nil
	}, name, size)
}

func (s *Store) reserve(
	ctx context.Context, id string, e audit.Entry, difference func(r *VM) (int, error), disk string, size int,
) (out VM, reservation string, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := s.ready(ctx, tx, id)
		if err != nil {
			return err
		}
		more, err := difference(&r)
		if err != nil {
			return err
		}
		r.dropReservations(s.now(), "")
		if more > 0 {
			if err := s.admit(ctx, tx, r.Tenant, Use{Disk: int64(more)}); err != nil {
				return err
			}
			reservation = NewID()
			kept := Reservation{reservation, disk, size, more, s.now().Add(ReservationLease)}
			r.Reservations.V = append(r.Reservations.V, kept)
		}
		e.Target, e.Tenant, e.Message = r.ID, r.Tenant, e.Message+" of "+r.Name
		if err := s.note(ctx, tx, e); err != nil {
			return err
		}
		out = r
		return s.save(ctx, tx, &r)
	})
	return out, reservation, err
}

// RenewReservation makes a reservation last for another ReservationLease, if there still is one.
func (s *Store) RenewReservation(ctx context.Context, id, reservation string) error {
	return s.observe(ctx, id, func(r *VM) (string, bool) {
		kept := slices.Clone(r.Reservations.V)
		i := slices.IndexFunc(kept, func(v Reservation) bool { return v.ID == reservation })
		if i < 0 {
			return "", false
		}
		kept[i].Until = s.now().Add(ReservationLease)
		r.Reservations.V = kept
		return "", true
	})
}

// SettleDisk stores what the daemon tells about a VM after a request about a disk, and ends the
// reservation for it, which may be empty. A nil seen says that the daemon has refused.
func (s *Store) SettleDisk(ctx context.Context, id, reservation string, seen *Seen, message string) error {
	return s.observe(ctx, id, func(r *VM) (string, bool) {
		changed := false
		if seen == nil {
			message = ""
		} else if seen.Generation >= r.DriverGen {
			changed = r.Observe(*seen)
		}
		return message, r.dropReservations(s.now(), reservation) || changed || message != ""
	})
}

// CheckDiskRemoval fails with Conflict if the disks of a VM cannot be removed, and records the removal.
func (s *Store) CheckDiskRemoval(ctx context.Context, id, name string) (VM, error) {
	var out VM
	return out, s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := s.ready(ctx, tx, id)
		if err != nil {
			return err
		}
		if out = r; r.Protected {
			return fault.New(fault.Conflict, "the VM is protected; set protected to false before you remove its disk")
		}
		return s.note(ctx, tx, audit.Entry{
			Action: "vm.disk.remove", Target: r.ID, Tenant: r.Tenant, Message: name + " of " + r.Name,
		})
	})
}
