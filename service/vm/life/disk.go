package life

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// AddDisk makes a disk of a VM and attaches it, at once or at the next start. The disk's image is as the
// daemon names it.
func (l *Life) AddDisk(ctx context.Context, id string, d record.Disk) (record.Disk, error) {
	if d.Name == record.SystemDisk {
		return d, fault.InvalidField("name", "%s is the name of the system disk", d.Name)
	}
	return l.withDisk(ctx, id, "added the disk "+d.Name,
		func(id string) (record.VM, string, error) { return l.store.ReserveDisk(ctx, id, d.Name, d.Size) },
		func(at driver.Place) (record.Disk, error) { return l.driver.AddDisk(ctx, at, d) })
}

// ChangeDisk makes a disk of a VM larger and changes its limits, at once.
func (l *Life) ChangeDisk(ctx context.Context, id, name string, c driver.DiskChange) (record.Disk, error) {
	size := 0
	if c.Size != nil {
		size = *c.Size
	}
	return l.withDisk(ctx, id, "changed the disk "+name,
		func(id string) (record.VM, string, error) { return l.store.ReserveGrowth(ctx, id, name, size) },
		func(at driver.Place) (record.Disk, error) { return l.driver.ChangeDisk(ctx, at, name, c) })
}

// withDisk reserves what a request about a disk needs of the quota, has the daemon do it, and stores what
// the VM has then. If it is not known whether the daemon has done it, the reservation stays until it is.
func (l *Life) withDisk(
	ctx context.Context, id, message string, reserve func(id string) (record.VM, string, error),
	do func(at driver.Place) (record.Disk, error),
) (record.Disk, error) {
	if _, err := l.settled(ctx, id); err != nil {
		return record.Disk{}, err
	}
	r, reservation, err := reserve(id)
	if err != nil {
		return record.Disk{}, err
	}
	release := l.hold(ctx, r.ID, reservation)
	d, err := do(driver.PlaceOf(&r))
	release()
	after := context.WithoutCancel(ctx)
	switch {
	case refused(err):
		if settled := l.store.SettleDisk(after, r.ID, reservation, nil, ""); settled != nil {
			return d, settled
		}
		if fault.Is(err, fault.NotFound) {
			err = l.vanished(after, &r, err)
		}
		return d, err
	case err != nil:
		return d, err // it may have done it, or do it yet
	}
	seen, err := l.driver.Get(after, driver.PlaceOf(&r))
	if err != nil {
		l.log.Debug("a changed disk is stored with the next reconciliation", "vm", r.ID, "error", err)
		return d, nil
	}
	return d, l.store.SettleDisk(after, r.ID, reservation, &seen, message)
}

// hold renews a reservation until release is called. It then lasts a little longer.
func (l *Life) hold(ctx context.Context, id, reservation string) (release func()) {
	if reservation == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := routine.Start(l.log, "reservation of a disk", func() error {
		for backoff.Sleep(ctx, record.ReservationLease/3) {
			if err := l.store.RenewReservation(ctx, id, reservation); err != nil && ctx.Err() == nil {
				l.log.Warn("the quota may be exceeded: room for a disk was not kept", "vm", id, "error", err)
			}
		}
		return nil
	})
	return func() {
		cancel()
		<-done //nolint:errcheck // a panic was logged
	}
}

// refused reports whether the daemon certainly did not do what it was asked for.
func refused(err error) bool {
	for _, kind := range []fault.Kind{
		fault.Invalid, fault.NotFound, fault.Conflict, fault.TooMany, fault.StorageFailed,
	} {
		if fault.Is(err, kind) {
			return true
		}
	}
	return false
}

// RemoveDisk detaches a disk of a VM and removes it with what it holds. A VM that boots a kernel keeps it
// until it stops.
func (l *Life) RemoveDisk(ctx context.Context, id, name string) error {
	if name == record.SystemDisk {
		return fault.New(fault.Conflict, "the system disk cannot be removed; delete the VM")
	}
	if _, err := l.settled(ctx, id); err != nil {
		return err
	}
	r, err := l.store.CheckDiskRemoval(ctx, id, name)
	if err != nil {
		return err
	}
	seen, err := l.driver.RemoveDisk(ctx, driver.PlaceOf(&r), name)
	after := context.WithoutCancel(ctx)
	switch {
	case fault.Is(err, fault.NotFound):
		return l.vanished(after, &r, err)
	case err != nil:
		return err
	}
	return l.store.SettleDisk(after, r.ID, "", &seen, "removed the disk "+name)
}
